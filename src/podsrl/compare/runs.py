"""Compare arms on paired seeds with equal training time: plan the runs, which `podsrl.compare.schedule` then runs.

COMPARE/compare.toml          what is compared
        runs/ARM-seedS/       one run folder per arm and seed (run/saving/folder.py)
        compare.json          the result (compare/measure.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podsrl.config.files import Tree, check_extends, merge, read_changes, read_tree
from podsrl.config.load import build, changed_keys, dump
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.lib.logs import last_line, write_atomically
from podsrl.lib.moments import WORDS
from podsrl.lib.parts import factories
from podsrl.policy.device import choose_device
from podsrl.run.before.costs import with_costs
from podsrl.run.before.memory_advice import FREE
from podsrl.run.before.settle import settle

_OF_ROLLOUTS = ("max_new_tokens", "max_prompt_tokens", "stop_strings")
SHARED = ("stop.", "eval.", "task.", "model.", "threads", *(f"rollouts.{name} " for name in _OF_ROLLOUTS))
"""What all arms must have in common, besides the options of their task set: equal time, the same questions in the same
order, equal evaluation. How many questions a step asks is part of a way of training, as systems decide it too."""
RENEWABLE = ("jobs", "slice_seconds", "num_seeds", "baseline", "fraction", "metric", "prices")
"""What may change in a comparison that is there already: no run depends on it."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One run of a comparison."""

    arm: str
    seed: int
    config: RunConfig
    path: Path

    @property
    def log(self) -> Path:
        """What its process printed."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def is_finished(self) -> bool:
        return (self.path / "finished.json").exists()

    @property
    def is_on_cpu(self) -> bool:
        """Whether its model is; UsageError: its device is unknown, or not there."""
        return choose_device(self.config.model).type == "cpu"

    @property
    def seconds(self) -> float:
        """That it has trained."""
        line = last_line(self.path / "metrics.jsonl")
        return float((line or {}).get("seconds/train_elapsed") or 0.0)


def plan(config: CompareConfig, folder: Path) -> list[Member]:
    """List every run, seed by seed; the order of the arms rotates with the seed, so that no arm has a fixed place.

    Raises:
        UsageError: an arm's config is wrong, arms differ in what must be shared, or finished runs have another config.
    """
    arms = list(config.arms)
    members = []
    for turn in range(config.num_seeds):
        seed, first = config.first_seed + turn, turn % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            run_config = _arm_config(config, arm, seed)
            members.append(Member(arm, seed, run_config, folder / "runs" / f"{arm}-seed{seed}"))
    for member in members:
        _check_is_comparable(member, members[0])
        _check_is_unchanged(member)
    return members


def _check_is_comparable(member: Member, first: Member) -> None:
    stop, evaluation = member.config.stop, member.config.eval
    if stop.seconds == 0 or stop.steps > 0 or evaluation.every_seconds == 0:
        raise UsageError(
            f"arm {member.arm!r}: stop.seconds = {stop.seconds:g}, stop.steps = {stop.steps}, eval.every_seconds = "
            f"{evaluation.every_seconds:g}; a comparison wants equal training time: set base.stop.seconds and "
            "base.eval.every_seconds, and stop.steps = 0"
        )
    for name in member.config.systems:
        if any("lone_runs" in getattr(part, "breaks", ()) for part in factories(name)):
            raise UsageError(
                f"arm {member.arm!r}: a comparison wants that {WORDS['lone_runs']}, and with systems = {name!r} it may "
                "train on what another arm or seed has made: leave it out"
            )
    changes = changed_keys(first.config.model_dump(mode="json"), member.config.model_dump(mode="json"))
    own = f"options.{first.config.task.name}"
    if unfair := [line for line in changes if line.startswith((*SHARED, f"{own} ", f"{own}."))]:
        raise UsageError(f"arm {member.arm!r} differs from {first.arm!r} in {', '.join(unfair)}; put these in base")


def _check_is_unchanged(member: Member) -> None:
    """A run that is there already was started with the config that it would be started with now.

    It may have chosen other sizes that change no result.
    """
    file = member.path / "config.toml"
    if not file.exists():
        return
    old = build(RunConfig, read_tree(file), str(file))
    changes = changed_keys(old.model_dump(mode="json"), with_costs(settle(member.config)[0]).model_dump(mode="json"))
    if changes := [line for line in changes if not line.startswith(("about.", "stop.without_signal", *FREE))]:
        raise UsageError(f"{member.path} was started with another config ({', '.join(changes)}): choose another --out")


def open_folder(config: CompareConfig, folder: Path) -> None:
    """Write `compare.toml`, or check that what is there is the same comparison."""
    path, text = folder / "compare.toml", dump(config)
    if path.exists():
        old = build(CompareConfig, read_tree(path), str(path))
        changes = [
            line
            for line in changed_keys(old.model_dump(mode="json"), config.model_dump(mode="json"))
            if not line.startswith(RENEWABLE)
        ]
        if changes:
            raise UsageError(f"--out {folder}: holds another comparison ({', '.join(changes)}); choose another folder")
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def _arm_config(config: CompareConfig, arm: str, seed: int) -> RunConfig:
    on = {"stop": {"without_signal": 0}}  # an arm that learns nothing is a result, and no end of the comparison
    tree = merge(merge(on, _with_bases(config.base)), _changes(arm, config.arms[arm]))
    if "seed" in tree:
        raise UsageError(
            f"arm {arm!r} sets seed = {tree['seed']}; seeds come from first_seed and num_seeds: leave it out"
        )
    return build(RunConfig, {**tree, "seed": seed}, f"of arm {arm!r}")


def _with_bases(base: Mapping[str, Any]) -> Tree:
    """The tables of `base` over those of the recipe that it extends, and of what that one extends."""
    own = dict(base)
    return merge(read_tree(check_extends(own.pop("extends"), "base")), own) if "extends" in own else own


def _changes(name: str, arm: Mapping[str, Any]) -> Tree:
    """The tables of an arm over those of the recipe that it extends; `base` stands for the last of the chain."""
    own = dict(arm)
    return merge(read_changes(check_extends(own.pop("extends"), f"arm {name!r}")), own) if "extends" in own else own
