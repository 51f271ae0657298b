"""`pods systems`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podsrl.cli.console import AsJson, output, print_paragraph, say
from podsrl.config.options import toml_value

if TYPE_CHECKING:
    from podsrl.compare.systems import System

Json = dict[str, Any]


def systems(
    name: Annotated[str | None, typer.Argument(help="A system; without one, all are listed.")] = None,
    all_of_it: Annotated[bool, typer.Option("--all", help="Also show the source of each, and what it sets.")] = False,
    json: AsJson = False,
) -> None:
    """List published ways to spend rollouts, which come as recipes, or describe one of them.

    [bold]Examples[/]

      pods systems                       which one for which trouble, and all
      pods systems --all                 also the sources, and what each sets
      pods systems dars                  one: its parts, options and recipe
      pods systems --json                all, for programs
      pods train systems/pods            train with one, on sums
      pods compare systems               all of them against each other

    A system is named in a config, as systems = ["dars"], and has a recipe of a few lines. It decides which questions a
    step poses, how many rollouts each gets, which of them are trained on, or with which advantages.
    docs/write-a-system.md shows how to write your own. A recipe without one sets other options alone.
    """
    from podsrl.compare.systems import measured, read_system, system_names

    if name is not None:
        system = read_system(name)
        if json:
            output.print_json(data=_facts(system, measured()))
        else:
            _describe(system)
        return
    found = [read_system(each) for each in system_names()]
    if json:
        result = measured()
        output.print_json(data=[_facts(system, result) for system in found])
    else:
        _list(found, all_of_it)


def _list(found: Sequence[System], is_all: bool) -> None:
    from podsrl.compare.systems import GROUPS, TROUBLES

    output.print("What is your trouble?", style="bold")
    for trouble in TROUBLES:
        besides = f"; besides: {trouble.besides}" if trouble.besides else ""
        start = f"  {trouble.what:<41}"
        print_paragraph(f"{', '.join(trouble.systems)}{besides}", indent=" " * len(start), start=start)
    for group, what in GROUPS.items():
        output.print(f"\n{group}: {what}", style="bold", markup=False, highlight=False)
        for system in found:
            if system.about.group == group:
                _row(system, is_all)
    more = "" if is_all else "\nsources, settings:  pods systems --all"
    say(f"{more}\none of them:        pods systems NAME\ntrain with it:      pods train systems/NAME")


def _row(system: System, is_all: bool) -> None:
    about = system.about
    lines = [f"{about.idea}. When: {about.when}. Costs: {about.cost}. Seen: {about.seen}."]
    lines += [f"Source: {about.source}.", f"Sets: {system.line}."] * is_all
    for number, line in enumerate(lines):
        print_paragraph(line, indent=" " * 22, start=f"  {system.name:<20}" if number == 0 else None)


def _describe(system: System) -> None:
    about = system.about
    output.print(f"{system.name}: {about.name}", style="bold cyan", markup=False, highlight=False)
    print_paragraph(about.idea, indent="    ")
    for title in ("when", "cost", "seen", "source", "differs"):
        output.print(f"\n{title}", style="bold")
        print_paragraph(getattr(about, title) or "–", indent="    ")
    for name in system.config.systems:
        output.print()
        show_system(name, own=system.options.get(name, {}))
    output.print("\nrecipe", style="bold")
    say("\n".join(f"    {line}".rstrip() for line in system.toml.splitlines()))
    output.print("\ntrain with it", style="bold")
    say(f"    pods train {system.recipe}\n    pods config --resolved {system.recipe} > mine.toml")


def show_system(name: str, as_json: bool = False, *, own: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Print what the parts of a system do, and all its options.

    Args:
        own: those that are set.
    """
    parts = parts_of(name, own)
    if as_json:
        return output.print_json(data=parts)
    output.print(f"systems = {name}", style="bold", markup=False, highlight=False)
    for part in parts:
        print_paragraph(f"{part['name']} decides {', '.join(part['moments'])}. {part['summary']}", indent="    ")
        for option in part["options"]:
            note = "" if option["value"] == option["default"] else f" (default {_written(option['default'])})"
            say(f"      {option['name']} = {_written(option['value'])}{note}")
            if option["meaning"]:
                print_paragraph(option["meaning"], indent="          ")


def parts_of(name: str, own: Mapping[str, Any]) -> list[Json]:
    """The parts of a system, with all options: set ones, and defaults."""
    from podsrl.lib.moments import MOMENTS
    from podsrl.lib.options import part_options, part_summary
    from podsrl.lib.parts import factories

    return [
        {
            "system": name,
            "name": factory.__name__,
            "moments": [moment for moment in MOMENTS if hasattr(factory, moment)],
            "summary": part_summary(factory),
            "options": [
                {**asdict(option), "value": own.get(option.name, option.default)} for option in part_options(factory)
            ],
        }
        for factory in factories(name)
    ]


def _written(value: Any) -> str:
    """As in a recipe; TOML has no word for what is not set."""
    return "not set" if value is None else toml_value(value)


def _facts(system: System, result: Mapping[str, Any] | None) -> Json:
    costs = {} if result is None else result["costs"]
    measures = {cost: arms[system.name] for cost, arms in costs.items() if system.name in arms}
    return {
        "name": system.name,
        "recipe": system.recipe,
        **system.about.model_dump(exclude={"name"}),
        "title": system.about.name,
        "changes": dict(system.changes),
        "parts": [part for name in system.config.systems for part in parts_of(name, system.options.get(name, {}))],
        "evidence": measures or None,
    }
