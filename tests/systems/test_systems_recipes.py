"""Every recipe of the folder `systems` is whole, and every part is used by one and checks its options."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from loops import each
from podsrl.compare.runs import plan
from podsrl.compare.systems import parts_of_slots, read_system, system_names
from podsrl.config.files import read_tree
from podsrl.config.load import build, load_config
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.control import make_budget
from podsrl.errors import UsageError
from podsrl.lib.options import check_options
from podsrl.lib.parts import SLOTS
from podsrl.lib.slots import make_slots
from podsrl.run.before.sizes import make_parts

FOLDER = Path(__file__).parents[2] / "src" / "podsrl" / "config" / "recipes" / "systems"
FILES = sorted(FOLDER.glob("*.toml"))


def test_the_names_are_the_files() -> None:
    assert sorted(system_names()) == [file.stem for file in FILES] and {"grpo", "grpo_ga", "pods"} <= {*system_names()}


@each("file", FILES)
def test_a_recipe_names_known_parts_with_options_that_they_take(file: Path) -> None:
    system = read_system(file.stem)
    slots = parts_of_slots(system)
    for name, keys in slots.items():
        assert all(name in SLOTS[key].table for key in keys), (name, keys)
        check_options(SLOTS[keys[0]].table[name], system.options.get(name, {}), where=f"options.{name}")
    assert system.options.keys() <= slots.keys()
    make_parts(system.config)


def test_every_part_is_used_by_a_recipe() -> None:
    used = {
        (key, name)
        for each in system_names()
        for name, keys in parts_of_slots(read_system(each)).items()
        for key in keys
    }
    used.add(("budget.rollouts", load_config("auto").budget.rollouts))
    used |= {("steer.prune", "random"), ("steer.close", "certain"), ("steer.close", "until_mixed")}
    used.add(("loss.bound", "confident"))
    defaults = {(option, attrgetter(option)(RunConfig())) for option in SLOTS}
    assert {(key, name) for key, slot in SLOTS.items() for name in slot.table} - defaults <= used


OUT_OF_RANGE: dict[tuple[str, str], dict[str, Sequence[Any]]] = {
    ("enough", "mixed"): {"max_rounds": (0, 17), "metric": ["std"]},
    ("rollouts", "harder"): {"most": (1, 2.5), "mode": ["et"], "std": [1], "bound": [3]},
    ("rollouts", "bandit"): {"arms": ((), (1, 2), (4, 2)), "eta": [0.0], "gamma": [0.0], "k": [0], "price_rate": [-1]},
    ("rollouts", "worth"): {"rows": [0], "window": [0]},
    ("rollouts", "seek"): {"right": [-1], "wrong": [-1], "more": [0], "most": [1]},
    ("rollouts", "neyman"): {"share": (0.0, 1.5), "least": [1], "most": [1], "memory": (-0.1, 1.1)},
    ("rollouts", "varied"): {"rounds": (0, 17), "share": (0.0, 1.5), "growth": (0, 1.5)},
    ("rollouts", "hints"): {
        "most": (-0.1, 1.0),
        "least": (-0.1, 0.9),
        "noise": [1.0],
        "rounds": (1, 9),
        "target": (0.2, 1.0),
    },
    ("rollouts", "confidence"): {"phases": (0, 17), "alpha": (0.0, 1.0), "explore": [-1], "prior": [0], "largest": [0]},
    ("questions", "dynamics"): {"forget": (1.1, -0.1), "candidates": [0]},
    ("questions rollouts", "difficulty"): {"temperature": [0], "target": [1.5], "every": [0], "num_references": [0]},
    ("questions rollouts", "profile"): {
        **{"num_probes": [1], "drop_above": [1.1], "unsolved_share": [1.0], "largest": [6], "most_profiled": [0]},
        "window": [0],
    },
    ("guide", "examples"): {"count": [0], "size": [0], "max_characters": [0]},
    ("guide", "nudge"): {"count": [0], "drop": (-0.1, 1.1), "form": ["hint"]},
    ("prune branch", "ambiguous"): {
        **{"until": [0], "least": (-0.1, 1.1), "gap": [2], "look": [(0,)], "edits": [1.5], "suffix": [2]},
        "rouge": [-1],
        "shares": ((), ((0, 1.5),), ((3, 1.0),), ((0, 1.0), (0, 0.5))),
    },
    ("prune branch shape", "confident"): {
        **{"widest": [0], "top": [0], "unsure": (0, 1.1), "floor": (-0.1, 1.1), "spike": [-1], "quantile": [1.5]},
        "weight": (-0.1, 0.5),
    },
    ("rollouts prune shape", "contrast"): {"at": ([], [0], [1.5]), "more": (-1, 65), "most": (1, 1025)},
    ("prune", "quality"): {"at": [0], "keep": (0, 1.1), "by": ["step"], "target": [2], "least": [0.5], "prior": [0]},
    ("prune", "states"): {"at": ([0], [2.5])},
    ("repair", "scope"): {"share": (0, 1.5)},
    ("enough rollouts keep", "pilot"): {
        **{"pilots": (1, 2.5), "lower": (-0.1, 1.0), "upper": (-0.1, 1.0, 0.9), "wide": (0, 65), "rounds": (1, 16)},
        **{"most_age": [0], "size": [0]},
    },
    ("shape", "probe"): {"ridge": [0.0], "window": [1], "warm_steps": [0]},
    ("shape", "anchors"): {"weight": [-1.0], "discount": (-0.1, 1.1), "state": ["page"]},
    ("shape", "contexts"): {"weight": [-1.0]},
    ("shape", "posterior"): {"weight": [-1.0]},
    ("shape", "novelty"): {"weight": [-1.0], "bound": [-1.0]},
    ("shape", "bins"): {"beta": [0], "eta": [-1], "clip": [0], "largest": [0], "gamma": [2], "hysteresis": [0.5]},
}
"""Slots and the part in them -> values of its options that are out of their ranges."""
NEEDED = {
    "quality": {"at": 8},
    "ambiguous": {"until": 8},
    "contrast": {"at": [8]},
    "pilot": {"pilots": 2},
    "scope": {"repair": "podsrl.tasks.arithmetic:repair"},
}
"""Part -> options without a default."""


@each(
    "slots, part, option, value",
    [
        (*key, name, value)
        for key, options in OUT_OF_RANGE.items()
        for name, values in options.items()
        for value in values
    ],
)
def test_an_option_out_of_its_range_is_named(slots: str, part: str, option: str, value: object) -> None:
    options = {part: {**NEEDED.get(part, {}), option: value}}
    others = {"shape": "loss.shape", "prune": "steer.prune", "branch": "steer.branch", "repair": "replay.repair"}
    with pytest.raises(UsageError, match=rf"^options\.{part}\.{option} = "):
        if named := [others[slot] for slot in slots.split() if slot in others]:
            make_slots({option: [part] for option in named}, options)
        else:
            make_budget(dict.fromkeys(slots.split(), part), options)


def test_the_comparison_has_every_system_of_its_sums_as_an_arm(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    systems, mixed = {name: read_system(name) for name in system_names()}, load_config("mixed")
    sums = [name for name, system in systems.items() if system.config.task == mixed.task]
    assert sorted(config.arms) == sorted(sums) and len(sums) > 30 and config.baseline == "grpo"
    assert all(arm == {"extends": f"systems/{name}"} for name, arm in config.arms.items())
    assert config.num_seeds == 5 and config.jobs == 2
    minutes = len(config.arms) * config.num_seeds * config.base["stop"]["seconds"] / config.jobs / 60
    assert minutes <= 50
    for member in plan(config.model_copy(update={"num_seeds": 1}), tmp_path):
        own = systems[member.arm].config
        assert member.config.model_copy(update={"seed": 0, "threads": 0, "eval": own.eval, "stop": own.stop}) == own
