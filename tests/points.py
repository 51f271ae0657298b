"""A covering set: points, lists of systems, in which every two parts stand together that can, and every recipe."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from podsrl.config.files import recipe_names
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.control import Budget
from podsrl.lib.moments import MOMENTS, SYSTEMS
from podsrl.lib.options import part_options
from podsrl.lib.part_states import split_states
from podsrl.lib.parts import Parts, factories, make_parts
from podsrl.lib.resolve import load
from podsrl.policy import load_model
from podsrl.run.before.prepare import Prepared, prepare
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.trainer_state import without_groups
from podsrl.types import Group

COVERED = {"enough", "questions", "rollouts", "guide", "keep", "shape"}
"""Moments of the parts that a point may have."""
MOST_SHAPES = 3
"""Of a point: a later one may hide what an earlier one did."""
NEVER_ALONE = ("podsrl.systems.poise:Probe",)
"""They read what another part of their system notes while it looks at rollouts."""
OWN = ("InTwoRounds", "Least", "Twice", "Thrice", "Probed", "Growing", "Hinted", "Signal", "LaterLess")
"""Of small_parts.py."""
LAST = ("gigpo", "small_parts:LaterLess")
"""They give one advantage per token, which some shapes do not take."""
SMALL: Mapping[str, Mapping[str, Any]] = {
    "adhint": {"solution": "podsrl.tasks.arithmetic:worked_solution", "rounds": 2},
    "aero": {"right": 1, "wrong": 0, "more": 2, "most": 8},
    "dars": {"most": 8},
    "dots": {"num_references": 3, "num_rollouts": 3, "num_candidates": 8},
    "dots_rr": {"num": 1, "size": 4},
    "dps": {"candidates": 2},
    "duet": {"most": 8},
    "gdro_prompts": {"k": 1, "window": 2},
    "gdro_rollouts": {"arms": [2, 4, 6], "k": 1, "window": 2},
    "nudgerl": {"hints": "podsrl.tasks.arithmetic:first_words", "form": "{hint}"},
    "pilot_commit": {"pilots": 2, "wide": 2, "rounds": 2},
    "reinforce_ada": {"right": 1, "wrong": 1, "more": 2, "most": 8},
    "sgpo": {"num_probes": 3, "drop_above": 0.9, "largest": 4, "most_profiled": 8, "window": 1},
    "vigor": {"rounds": 2, "growth": 1},
    "worth": {"sizes": [2, 4, 6], "window": 5},
    "xrpo": {"largest": 2, "count": 1},
}
"""System -> options with which it does something in a few questions of four rollouts."""
CONFIG = (
    "rollouts.num_prompts=3",
    "rollouts.num_rollouts=4",
    "select.num_kept=3",
    "rollouts.max_new_tokens=14",
    "task.digits=1",
    "task.num_eval=4",
    "eval.every_seconds=0",
    "stop.seconds=0",
    "stop.steps=9",
    "optim.lr=1e-3",
    "model.matmul=mkl",
    'task.rewards={"small_parts:lucky" = 1.0}',
    "task.correct=small_parts:lucky",
)


@dataclass(frozen=True, slots=True)
class Point:
    """Parts of systems, or systems of one part."""

    names: tuple[str, ...]
    """In the order of `names_of_parts`."""

    def __str__(self) -> str:
        return "-".join(name.rpartition(":")[2] for name in self.names)

    @property
    def tree(self) -> dict[str, Any]:
        """What it says in a config."""
        options = {name: found for name in self.names if (found := _small_options(name))}
        return {"systems": list(self.names), "options": options}


@cache
def names_of_parts() -> tuple[str, ...]:
    """All that may stand in a point: each part of a system that ships, on its own, and small ones."""
    places = {place: name if len(own) == 1 else place for name, own in SYSTEMS.items() for place in own}
    shipped = [name for place, name in places.items() if _moments_of(name) <= COVERED and place not in NEVER_ALONE]
    names = [*shipped, *(f"small_parts:{name}" for name in OWN)]
    return (*(name for name in names if name not in LAST), *LAST)


@cache
def _moments_of(system: str) -> frozenset[str]:
    made = factories(system)
    return frozenset(moment for moment in MOMENTS if any(hasattr(each, moment) for each in made))


def _small_options(name: str) -> dict[str, Any]:
    """Of a system, or of one part of one."""
    if name in SMALL or ":" not in name:
        return dict(SMALL.get(name, {}))
    own = {option.name for option in part_options(load(name))}
    owners = [system for system, places in SYSTEMS.items() if name in places]
    return {key: value for key, value in SMALL.get(owners[-1], {}).items() if key in own} if owners else {}


def parts_of(tree: Mapping[str, Any]) -> Parts:
    """The parts of a point.

    Raises:
        UsageError: they do not go together.
    """
    return make_parts(tree["systems"], tree["options"])


KEPT_PROCESSES = (b"workers.supervisor", b"workers.worker")
"""Of rewards: they belong to what all points have in common, which is prepared once."""


@cache
def covering() -> tuple[Point, ...]:
    """Points that hold every two parts that can stand together, found greedily."""
    wanted = dict.fromkeys(pair for pair in combinations(names_of_parts(), 2) if _can_stand(pair))
    found: list[Point] = []
    while wanted:
        names: tuple[str, ...] = next(iter(wanted))
        while (larger := _larger(names, wanted)) is not None:
            names = larger
        found.append(Point(names))
        for pair in combinations(names, 2):
            wanted.pop(pair, None)
    return tuple(found)


def _larger(names: tuple[str, ...], wanted: Mapping[tuple[str, str], None]) -> tuple[str, ...] | None:
    """The names with the one that adds most wanted pairs; None: none adds any and can stand there."""
    every = names_of_parts()
    larger = [tuple(sorted((*names, name), key=every.index)) for name in every if name not in names]
    counts = {each: sum(pair in wanted for pair in combinations(each, 2)) for each in filter(_can_stand, larger)}
    best = max(counts, key=lambda each: counts[each], default=names)
    return best if counts.get(best, 0) > sum(pair in wanted for pair in combinations(names, 2)) else None


def _can_stand(names: Sequence[str]) -> bool:
    """Whether parts can stand in one point: no moment is decided twice, and at most `MOST_SHAPES` shape."""
    counts = Counter(moment for name in names for moment in _moments_of(name))
    return all(count <= (MOST_SHAPES if moment == "shape" else 1) for moment, count in counts.items())


def of_recipes() -> dict[str, dict[str, Any]]:
    """`auto` and every recipe of systems, but those that look at running rollouts or are up to what other runs write ->
    its systems; `auto` has its rule, too."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("auto", *(each for each in recipe_names() if each.startswith("systems/"))):
        config = load_config(name)
        moments = frozenset().union(*map(_moments_of, config.systems))
        if moments and not moments & {"look", "close"} and "sapo" not in config.systems:
            options = {system: {**config.options.get(system, {}), **SMALL.get(system, {})} for system in config.systems}
            tree = {"systems": list(config.systems), "options": options}
            if tree not in found.values():
                found[name] = tree
    return found | {"auto": {**found["auto"], "more": ("select.rule=max_signal",)}}


def config_of(tree: Mapping[str, Any], *overrides: str) -> RunConfig:
    """A small run at a point."""
    systems = (f"{key}={toml(tree[key])}" for key in ("systems", "options"))
    return load_config("pods", [*CONFIG, *systems, *overrides])


@cache
def _prepared(overrides: tuple[str, ...]) -> Prepared:
    return prepare(load_config("pods", [*CONFIG, *overrides]))


def trainer_at(tree: Mapping[str, Any], *overrides: str) -> Trainer:
    """A trainer of such a run, in float64; what the points have in common is prepared once."""
    overrides = (*tree.get("more", ()), *overrides)
    config, made = config_of(tree, *overrides), parts_of(tree)
    parts = replace(_prepared(overrides), systems=made, budget=Budget(made))
    return Trainer(config, model=load_model(config.model).double(), parts=parts)


def toml(value: Any) -> str:
    """A value in TOML's notation."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}" = {toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else repr(value)


def digest_of(parts: Parts) -> str:
    """Of what the parts remember."""
    values, arrays = split_states(without_groups(parts.state()))
    content = [repr(values), *((name, str(array.dtype), array.tolist()) for name, array in sorted(arrays.items()))]
    return hashlib.sha256(repr(content).encode()).hexdigest()


def facts(groups: tuple[Group, ...]) -> list[Any]:
    """What two processes and one agree upon to the last bit; log-probs are exact to float32 alone."""
    found: list[Any] = []
    for group in groups:
        found.append((group.id, group.index, group.is_trained, group.prompt_ids))
        for rollout in group.rollouts:
            done = rollout
            found.append((done.index, done.token_ids, rollout.reward, rollout.origin, rollout.prompt_ids))
    return found
