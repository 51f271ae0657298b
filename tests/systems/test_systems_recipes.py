"""Every recipe of the folder `systems` is whole, and every system is used by one and checks its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loops import each
from podsrl.compare.runs import plan
from podsrl.compare.systems import GROUPS, TROUBLES, read_system, system_names
from podsrl.config.files import read_tree
from podsrl.config.load import build, load_config
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError
from podsrl.lib.moments import SYSTEMS
from podsrl.lib.parts import make_parts
from podsrl.run.before.sizes import parts_of

FOLDER = Path(__file__).parents[2] / "src" / "podsrl" / "config" / "recipes" / "systems"
FILES = sorted(FOLDER.glob("*.toml"))


def test_the_names_are_the_files() -> None:
    assert sorted(system_names()) == [file.stem for file in FILES] and {"grpo", "grpo_ga", "pods"} <= {*system_names()}


@each("file", FILES)
def test_a_recipe_names_known_systems_with_options_that_they_take(file: Path) -> None:
    system = read_system(file.stem)
    assert {*system.config.systems} <= SYSTEMS.keys()
    parts_of(system.config)


@each("file", FILES)
def test_a_recipe_says_all_that_a_list_shows_and_briefly(file: Path) -> None:
    about = read_system(file.stem).about
    assert about.group in GROUPS and about.name and about.source
    for text, most in ((about.idea, 15), (about.when, 12), (about.cost, 9), (about.seen, 21)):
        assert 0 < len(text.split()) <= most and not text.endswith(".") and "|" not in text


def test_a_trouble_names_systems_that_are_there() -> None:
    assert {name for trouble in TROUBLES for name in trouble.systems} <= {*system_names()}


def test_every_system_is_used_by_a_recipe() -> None:
    recipes = ("auto", *(f"systems/{name}" for name in system_names()))
    used = {system for recipe in recipes for system in load_config(recipe).systems}
    assert SYSTEMS.keys() - used == {"random", "certain", "until_mixed", "levels"}


OUT_OF_RANGE: dict[str, dict[str, Sequence[Any]]] = {
    "certain": {"first": [1], "lowest": ["0"]},
    "until_mixed": {"first": [1], "right": [-1], "wrong": [-1]},
    "random": {"share": (-0.1, 1.0)},
    "dapo": {"max_rounds": (0, 17), "metric": ["std"]},
    "mixed": {"metric": ["std"]},
    "dars": {"most": (1, 2.5), "mode": ["et"], "std": [1], "bound": [3]},
    "gdro_rollouts": {"arms": ((), (1, 2), (4, 2)), "eta": [0.0], "gamma": [0.0], "k": [0], "price_rate": [-1]},
    "worth": {"rows": [0], "window": [0]},
    "reinforce_ada": {"right": [-1], "wrong": [-1], "more": [0], "most": [1]},
    "aero": {"weight": [-1.0]},
    "duet": {"share": (0.0, 1.5), "least": [1], "most": [1], "memory": (-0.1, 1.1)},
    "vigor": {"rounds": (0, 17), "share": (0.0, 1.5), "growth": (0, 1.5)},
    "adhint": {"most": (-0.1, 1.0), "least": (-0.1, 0.9), "noise": [1.0], "rounds": (1, 9), "target": (0.2, 1.0)},
    "xrpo": {
        **{"phases": (0, 17), "alpha": (0.0, 1.0), "explore": [-1], "prior": [0], "largest": [0]},
        **{"count": [0], "size": [0], "max_characters": [0], "weight": [-1.0], "bound": [-1.0]},
    },
    "dps": {"forget": (1.1, -0.1), "candidates": [0]},
    "dots": {"temperature": [0], "target": [1.5], "every": [0], "num_references": [0]},
    "dots_rr": {"num": [0], "size": [0]},
    "sgpo": {
        **{"num_probes": [1], "drop_above": [1.1], "unsolved_share": [1.0], "largest": [6], "most_profiled": [0]},
        "window": [0],
    },
    "nudgerl": {"count": [0], "drop": (-0.1, 1.1), "form": ["hint"], "weight": [-1.0]},
    "latr": {
        **{"until": [0], "least": (-0.1, 1.1), "gap": [2], "look": [(0,)], "edits": [1.5], "suffix": [2]},
        "rouge": [-1],
        "shares": ((), ((0, 1.5),), ((3, 1.0),), ((0, 1.0), (0, 0.5))),
    },
    "echo": {
        **{"widest": [0], "top": [0], "unsure": (0, 1.1), "floor": (-0.1, 1.1), "spike": [-1], "quantile": [1.5]},
        "weight": (-0.1, 0.5),
    },
    "trace": {"at": ([], [0], [1.5]), "more": (-1, 65), "most": (1, 1025)},
    "arrol": {"at": [0], "keep": (0, 1.1), "by": ["step"], "target": [2], "least": [0.5], "prior": [0]},
    "poise": {"at": ([0], [2.5]), "ridge": [0.0], "window": [1], "warm_steps": [0]},
    "scope": {"share": (0, 1.5)},
    "prof": {"wrong": ["best"]},
    "pilot_commit": {
        **{"pilots": (1, 2.5), "lower": (-0.1, 1.0), "upper": (-0.1, 1.0, 0.9), "wide": (0, 65), "rounds": (1, 16)},
        **{"most_age": [0], "size": [0]},
    },
    "gigpo": {"weight": [-1.0], "discount": (-0.1, 1.1), "state": ["page"]},
    "gdro_prompts": {"beta": [0], "eta": [-1], "clip": [0], "largest": [0], "gamma": [2], "hysteresis": [0.5]},
}
"""System -> values of its options that are out of their ranges."""
NEEDED = {
    "random": {"at": 8},
    "arrol": {"at": 8},
    "latr": {"until": 8},
    "trace": {"at": [8]},
    "pilot_commit": {"pilots": 2},
    "scope": {"repair": "podsrl.tasks.arithmetic:repair"},
    "prof": {"score": "podsrl.tasks.arithmetic:right_steps"},
}
"""System -> options without a default."""


@each(
    "system, option, value",
    [
        (system, name, value)
        for system, options in OUT_OF_RANGE.items()
        for name, values in options.items()
        for value in values
    ],
)
def test_an_option_out_of_its_range_is_named(system: str, option: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^options\.{system}\.{option} = "):
        make_parts([system], {system: {**NEEDED.get(system, {}), option: value}})


def test_the_comparison_has_every_system_of_its_sums_as_an_arm(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    systems, mixed = {name: read_system(name) for name in system_names()}, load_config("mixed")
    sums = [
        name for name, system in systems.items() if system.config.task == mixed.task and name not in ("sapo", "ftis")
    ]
    assert sorted(config.arms) == sorted(sums) and len(sums) > 30 and config.baseline == "grpo"
    assert all(arm == {"extends": f"systems/{name}"} for name, arm in config.arms.items())
    assert config.num_seeds == 5 and config.jobs == 2
    minutes = len(config.arms) * config.num_seeds * config.base["stop"]["seconds"] / config.jobs / 60
    assert minutes <= 50
    for member in plan(config.model_copy(update={"num_seeds": 1}), tmp_path):
        own = systems[member.arm].config
        assert member.config.model_copy(update={"seed": 0, "threads": 0, "eval": own.eval, "stop": own.stop}) == own
