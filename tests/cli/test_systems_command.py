"""`pods systems`: what there is, and one of them, for people and for programs."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable

import pytest

from podsrl.compare.systems import GROUPS, TROUBLES, read_system, system_names
from podsrl.config.load import load_config
from podsrl.lib.options import part_options, part_summary

Pods = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_asks_for_the_trouble_and_has_a_row_for_every_system_in_its_group(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, said, _ = pods("systems")
    assert code == 0 and all(len(line.rstrip()) <= width for line in said.splitlines()) and "…" not in said
    assert said.startswith("What is your trouble?\n")
    troubles, *groups = said.split("\n\n")[: 1 + len(GROUPS)]
    assert all(trouble.what in troubles and ", ".join(trouble.systems) in troubles for trouble in TROUBLES)
    shown = {group.split(":")[0]: re.findall(r"^  (\w+)", group, re.MULTILINE) for group in groups}
    wanted = {name: read_system(name).about for name in system_names()}
    assert shown == {group: [name for name, about in wanted.items() if about.group == group] for group in GROUPS}
    words = " ".join(said.split())
    assert all(f"When: {about.when}. Costs: {about.cost}. Seen: {about.seen}." in words for about in wanted.values())
    listed = pods("systems", "--all")[1]
    assert "select.rule=max_variance" in listed and "systems=dars,mixed" in listed and "2504.13818" in listed


@pytest.mark.parametrize("name", system_names())
def test_one_system_says_what_about_says_and_every_option_of_its_parts(pods: Pods, name: str) -> None:
    code, said, _ = pods("systems", name)
    system = read_system(name)
    words = " ".join(said.split())
    assert code == 0 and " ".join(system.about.differs.split()) in words and f"pods train systems/{name}" in words
    code, said, _ = pods("systems", f"systems/{name}", "--json")
    facts = json.loads(said)
    assert facts["name"] == name and facts["idea"] == system.about.idea and facts["title"] == system.about.name
    assert list(dict.fromkeys(part["system"] for part in facts["parts"])) == list(system.config.systems)
    for each in system.config.systems:
        parts = [part for part in facts["parts"] if part["system"] == each]
        values = {option["name"]: option["value"] for part in parts for option in part["options"]}
        assert values.items() >= system.options.get(each, {}).items()
        assert all(part["summary"] and part["moments"] for part in parts)
        assert all(f"{option} = " in words for option in values)


def test_the_recipe_that_is_shown_is_what_trains(pods: Pods, tmp_path: object) -> None:
    system = read_system("pods")
    tree = tomllib.loads(system.toml)
    assert tree.pop("extends") == "mixed" and "about" not in tree
    flags = [f"{section}.{key}={value}" for section, own in tree.items() for key, value in own.items()]
    assert load_config("mixed", flags).model_copy(update={"about": system.about}) == system.config


def test_an_unknown_name_is_one_line_with_the_nearest(pods: Pods) -> None:
    code, said, errors = pods("systems", "grpo-ga")
    assert code == 2 and said == "" and "Did you mean 'grpo_ga'?" in errors and errors.count("\n") == 1


def test_options_of_a_part_come_from_its_signature_and_docstring() -> None:
    class Part:
        """What it
        does.

        And why.
        """

        def __init__(self, *, size: int, share: float = 0.5, silent: bool = False) -> None:
            """Make one.

            Args:
                size, share: of all: at
                    least 1.

            Raises:
                ValueError: never: not this one.
            """

    found = {option.name: (option.default, option.meaning) for option in part_options(Part)}
    assert found == {
        "size": (None, "of all: at least 1."),
        "share": (0.5, "of all: at least 1."),
        "silent": (False, ""),
    }
    assert part_summary(Part) == "What it does."
