"""`pods systems`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from podsrl.cli.console import AsJson, output, print_paragraph, say
from podsrl.config.options import toml_value

if TYPE_CHECKING:
    from podsrl.compare.systems import System

Json = dict[str, Any]


def systems(
    name: Annotated[str | None, typer.Argument(help="A system; without one, all are listed.")] = None,
    all_of_it: Annotated[bool, typer.Option("--all", help="Also show what each does, and what it sets.")] = False,
    json: AsJson = False,
) -> None:
    """List published ways to spend rollouts, which come as recipes, or describe one of them.

    [bold]Examples[/]

      pods systems                       all: their source, and what was measured
      pods systems --all                 also the idea of each, and what it sets
      pods systems dars                  one: its parts, options and recipe
      pods systems --json                all, for programs
      pods train systems/pods            train with one, on sums
      pods compare systems               all of them against each other

    A system is named in a config, as systems = ["dars"], and has a recipe of a few lines. It decides which questions a
    step poses, how many rollouts each gets, which of them are trained on, or with which advantages. docs/systems.md
    shows how to write your own. A recipe without one sets other options alone.
    """
    from podsrl.compare.systems import measured, read_system, system_names

    result = measured()
    if name is not None:
        system = read_system(name)
        if json:
            output.print_json(data=_facts(system, result))
        else:
            _describe(system, result)
        return
    found = [read_system(each) for each in system_names()]
    if json:
        output.print_json(data=[_facts(system, result) for system in found])
    else:
        _list(found, result, all_of_it)


def _list(found: Sequence[System], result: Mapping[str, Any] | None, is_all: bool) -> None:
    from podsrl.compare.systems import needed, verdict

    print_paragraph(verdict(result) if result else "No comparison of them was measured yet.", style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("system", no_wrap=True, style="cyan")
    for head in ("rollouts needed", "correct at the end") if result else ():
        table.add_column(head, no_wrap=True, justify="right")
    table.add_column("source", overflow="fold")
    for system in found:
        cost = needed(result, system.name) if result else None
        measures = [cost.text, f"{result['last_accuracy'][system.name]:.1%}"] if result and cost else ["–"] * 2
        table.add_row(system.name, *(measures if result else ()), short_source(system.about.source))
    say("")
    output.print(table, highlight=False, markup=False)
    if result:
        say("")
        print_paragraph(
            f"Rollouts needed: those to {result['fraction']:.0%} of the best accuracy of {result['baseline']}, over "
            f"those of {result['baseline']}. In brackets: the 95 % interval over {result['num_seeds']} seeds. "
            f"Measured on {result['hardware']}."
        )
    for system in found if is_all else ():
        output.print(f"\n{system.name}", style="cyan", markup=False, highlight=False)
        print_paragraph(system.about.idea, indent="    ")
        print_paragraph(system.line, indent="    ")
    more = "" if is_all else "\nwhat each does: pods systems --all"
    say(f"{more}\none of them:    pods systems NAME\nall compared:   pods compare systems")


def short_source(source: str) -> str:
    """The number of a paper, where there is one.

    Example:
        >>> short_source("arXiv 2504.13818, algorithm 1; its code was read")
        'arXiv 2504.13818'
    """
    number = re.search(r"arXiv[ :]?(\d{4}\.\d{4,5})", source)
    return f"arXiv {number[1]}" if number else re.split("[,;(]", source)[0].strip()


def _describe(system: System, result: Mapping[str, Any] | None) -> None:
    from podsrl.compare.systems import needed

    about = system.about
    output.print(f"{system.name}: {about.name}", style="bold cyan", markup=False, highlight=False)
    print_paragraph(about.idea, indent="    ")
    for title, text in (("source", about.source), ("differs", about.differs)):
        output.print(f"\n{title}", style="bold")
        print_paragraph(text or "–", indent="    ")
    if result is not None and (cost := needed(result, system.name)) is not None:
        output.print("\nrollouts needed", style="bold")
        to = f"to {result['fraction']:.0%} of {result['baseline']}'s best accuracy"
        print_paragraph(f"{to}, over those of {result['baseline']}: {cost.text}", indent="    ")
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
