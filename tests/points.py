"""A covering set: points of the slots in which every two parts of different slots stand together, and every recipe."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from podsrl.config.files import recipe_names
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig, SteerConfig
from podsrl.control import Budget
from podsrl.errors import UsageError
from podsrl.lib.part_states import split_states
from podsrl.lib.parts import SLOTS
from podsrl.lib.slots import Slots
from podsrl.policy import load_model
from podsrl.run.before.prepare import Prepared, prepare
from podsrl.run.before.sizes import make_parts
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.trainer_state import without_groups
from podsrl.types import Group

ALL_SLOTS = tuple(slot for option, slot in SLOTS.items() if option.startswith("budget.") or option == "loss.shape")
OWN = {
    "budget.enough": ("in_two_rounds",),
    "budget.questions": ("Least",),
    "budget.rollouts": ("twice", "thrice", "probed", "Growing"),
    "budget.guide": ("hinted",),
    "budget.keep": ("signal",),
    "loss.shape": ("later_less", "Growing"),
}
"""Of small_parts.py, by the option that they fill."""
SMALL: Mapping[str, Mapping[str, Any]] = {
    "harder": {"most": 8},
    "dynamics": {"candidates": 2},
    "difficulty": {"num_references": 3, "num_rollouts": 3, "num_candidates": 8},
    "profile": {"num_probes": 3, "drop_above": 0.9, "largest": 4, "most_profiled": 8, "window": 1},
    "bandit": {"arms": [2, 4, 6], "k": 1, "window": 2},
    "confidence": {"largest": 2},
    "worth": {"sizes": [2, 4, 6], "window": 5},
    "neyman": {"most": 8},
    "varied": {"rounds": 2, "growth": 1},
    "seek": {"right": 1, "wrong": 1, "more": 2, "most": 8},
    "examples": {"count": 1},
    "hints": {"solution": "podsrl.tasks.arithmetic:worked_solution"},
    "nudge": {"hints": "podsrl.tasks.arithmetic:first_words", "form": "{hint}"},
    "bins": {"k": 1, "window": 2},
    "fifo": {"num": 1, "size": 4},
    "pilot": {"pilots": 2, "wide": 2, "rounds": 2},
}
"""Part -> options with which it does something in a few questions of four rollouts."""
STEERED = {"ambiguous", "confident", "contrast", "pilot", "probe"}
"""Parts that work with one of `[steer]` or `[replay]`."""
NO_SHAPE = ""
"""Stands for no shape at all."""
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
    """One part per slot."""

    names: tuple[str, ...]
    """In the order of `ALL_SLOTS`."""

    def __str__(self) -> str:
        return "-".join(name.removeprefix("small_parts:") or "none" for name in self.names)

    @property
    def tree(self) -> dict[str, Any]:
        """What it says in a config."""
        budget = {slot.method: name for slot, name in zip(ALL_SLOTS[:-1], self.names, strict=False)}
        shape = [self.names[-1]] if self.names[-1] else []
        options = {name: dict(SMALL[name]) for name in dict.fromkeys(self.names) if name in SMALL}
        return {"budget": budget, "replay": {"groups": "nothing"}, "loss": {"shape": shape}, "options": options}


def slots_of(tree: Mapping[str, Any]) -> Slots:
    """The parts of a point.

    Raises:
        UsageError: they do not go together.
    """
    return make_parts(config_of(tree))


def names_of_slot(option: str) -> list[str]:
    """Everything that fills a slot: shipped parts and small ones."""
    shipped = [
        *(name for name in SLOTS[option].table if name not in STEERED),
        *([NO_SHAPE] if option == "loss.shape" else []),
    ]
    return [*shipped, *(f"small_parts:{name}" for name in OWN[option])]


KEPT_PROCESSES = (b"workers.supervisor", b"workers.worker")
"""Of rewards: they belong to what all points have in common, which is prepared once."""


@cache
def is_accepted(point: Point) -> bool:
    with suppress(UsageError):
        slots_of(point.tree)
        return True
    return False


@cache
def covering() -> tuple[Point, ...]:
    """Points that hold every two parts of different slots that are accepted together in any point, found greedily."""
    choices = [names_of_slot(slot.option) for slot in ALL_SLOTS]
    places = range(len(choices))
    wanted = dict.fromkeys(
        ((a, one), (b, other)) for a, b in combinations(places, 2) for one in choices[a] for other in choices[b]
    )
    found: list[Point] = []
    while wanted:
        (a, one), (b, other) = next(iter(wanted))
        plain = [{a: one, b: other}.get(place, choices[place][0]) for place in places]
        everywhere = [next((name for name in (one, other) if name in choices[place]), plain[place]) for place in places]
        everywhere[a], everywhere[b] = one, other
        names = next((names for names in (plain, everywhere) if is_accepted(Point(tuple(names)))), None)
        if names is None:
            del wanted[(a, one), (b, other)]
            continue
        for place in places:
            if place not in (a, b) and names[place] not in (one, other):
                names[place] = _best(names, place, choices[place], wanted)
        found.append(Point(tuple(names)))
        for pair in _pairs(names):
            wanted.pop(pair, None)
    return tuple(found)


def _best(names: list[str], place: int, choices: Sequence[str], wanted: Mapping[Any, Any]) -> str:
    """The name at a place that adds most wanted pairs, of those with which the point is accepted."""
    points = [(*names[:place], name, *names[place + 1 :]) for name in choices]
    points.sort(key=lambda point: -sum(pair in wanted for pair in _pairs(point)))
    return next(point[place] for point in points if is_accepted(Point(point)))


def _pairs(names: Sequence[str]) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    return combinations(enumerate(names), 2)


def of_recipes() -> dict[str, dict[str, Any]]:
    """`auto` and every recipe of a system that leaves `[steer]` alone, and is not up to what other runs write -> its
    slots; `auto` has its rule, too."""
    found = {}
    for name in ("auto", *(each for each in recipe_names() if each.startswith("systems/"))):
        config = load_config(name)
        if config.steer == SteerConfig() and config.replay.groups != "swarm":
            options = {part: SMALL.get(part, table) for part, table in config.options.items()}
            loss = {"shape": list(config.loss.shape)}
            slots = {section: getattr(config, section).model_dump() for section in ("budget", "replay")}
            found[name] = {**slots, "loss": loss, "options": options}
    found["auto"] |= {"options": {"worth": SMALL["worth"]}, "more": ("select.rule=max_signal",)}
    return found


def config_of(tree: Mapping[str, Any], *overrides: str) -> RunConfig:
    """A small run at a point."""
    slots = [f"{section}={toml(tree[section])}" for section in ("budget", "replay") if section in tree]
    slots.append(f"loss.shape={toml(tree['loss']['shape'])}")
    return load_config("pods", [*CONFIG, *slots, f"options={toml(tree['options'])}", *overrides])


@cache
def _prepared(overrides: tuple[str, ...]) -> Prepared:
    return prepare(load_config("pods", [*CONFIG, *overrides]))


def trainer_at(tree: Mapping[str, Any], *overrides: str) -> Trainer:
    """A trainer of such a run, in float64; what the points have in common is prepared once."""
    overrides = (*tree.get("more", ()), *overrides)
    config, slots = config_of(tree, *overrides), slots_of(tree)
    parts = replace(_prepared(overrides), slots=slots, budget=Budget(slots))
    return Trainer(config, model=load_model(config.model).double(), parts=parts)


def toml(value: Any) -> str:
    """A value in TOML's notation."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}" = {toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else repr(value)


def digest_of(slots: Slots) -> str:
    """Of what the parts remember."""
    values, arrays = split_states(without_groups(slots.state()))
    content = [repr(values), *((name, str(array.dtype), array.tolist()) for name, array in sorted(arrays.items()))]
    return hashlib.sha256(repr(content).encode()).hexdigest()


def facts(groups: tuple[Group, ...]) -> list[Any]:
    """What two processes and one agree upon to the last bit; log-probs are exact to float32 alone."""
    found: list[Any] = []
    for group in groups:
        found.append((group.id, group.index, group.is_trained, group.prompt_ids))
        for rollout in group.rollouts:
            done = rollout.completion
            found.append((done.index, done.token_ids, rollout.reward, rollout.origin, rollout.prompt_ids))
    return found
