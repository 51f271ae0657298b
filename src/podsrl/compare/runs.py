"""Compare arms on paired seeds with equal training time: plan the runs and run them.

    COMPARE/compare.toml          what is compared
            runs/ARM-seedS/       one run folder per arm and seed (run/saving/folder.py)
            compare.json          the result (compare/measure.py)

Every run is a process of its own (`pods train`, or `pods launch` with several processes), so that arms share nothing;
at most `jobs` run at a time. A comparison that was stopped resumes: finished runs stay as they are, and unfinished ones
are resumed.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podsrl.config.files import Tree, check_extends, merge, read_changes, read_tree
from podsrl.config.load import build, changed_keys, dump
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import PodsError, UsageError
from podsrl.lib.child import Process, last_line
from podsrl.lib.logs import write_atomically
from podsrl.lib.signals import answered_by
from podsrl.run.before.costs import with_costs
from podsrl.run.before.settle import settle

SHARED = ("stop.", "eval.", "task.", "model.", "threads", "rollouts.max_new_tokens")
"""What all arms must have in common: equal time, the same questions in the same order, equal evaluation. How many
questions a step asks is part of a way of training, as a budget decides it too."""
RENEWABLE = ("jobs", "num_seeds", "baseline", "fraction", "metric", "prices")
"""What may change in a comparison that is there already: no run depends on it."""
STOP_SECONDS = 60.0
"""A run that is asked to stop saves a checkpoint; one that takes longer than this is killed."""


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


class RunFailed(PodsError):
    """A run of the comparison ended with an error."""


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
    changes = changed_keys(first.config.model_dump(mode="json"), member.config.model_dump(mode="json"))
    if unfair := [line for line in changes if line.startswith(SHARED)]:
        raise UsageError(f"arm {member.arm!r} differs from {first.arm!r} in {', '.join(unfair)}; put these in base")


def _check_is_unchanged(member: Member) -> None:
    """A run that is there already was started with the config that it would be started with now."""
    file = member.path / "config.toml"
    if not file.exists():
        return
    old = build(RunConfig, read_tree(file), str(file))
    changes = changed_keys(old.model_dump(mode="json"), with_costs(settle(member.config)[0]).model_dump(mode="json"))
    if changes := [line for line in changes if not line.startswith(("about.", "stop.without_signal"))]:
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


def run_all(members: Sequence[Member], jobs: int, on_tick: Callable[[], None], num_processes: int = 1) -> bool:
    """Run what is not finished yet, `jobs` runs at a time; `on_tick` is called a few times per second, to redraw.

    Returns:
        True when all are finished, False after Ctrl-C, SIGTERM or SIGHUP (the runs have saved checkpoints).
    Raises:
        RunFailed: a run ended with an error; the others were stopped with a checkpoint.
    """
    waiting = [member for member in members if not member.is_finished]
    running: dict[Member, Process] = {}
    try:
        with answered_by(_interrupt):
            while waiting or running:
                while waiting and len(running) < jobs:
                    member = waiting.pop(0)
                    running[member] = _spawn(member, num_processes)
                time.sleep(0.5)
                on_tick()
                for member, process in list(running.items()):
                    if (code := process.code) is not None:
                        del running[member]
                        _check(member, code)
    except KeyboardInterrupt:
        return False
    finally:
        _stop(list(running.values()))
        on_tick()
    return True


def _interrupt(number: int) -> None:
    """A signal to this process stops its runs too, and they save checkpoints."""
    raise KeyboardInterrupt


def _stop(processes: Sequence[Process]) -> None:
    """SIGTERM, which a run answers with a checkpoint, then patience, then SIGKILL."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(STOP_SECONDS)
        process.kill()


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


def _spawn(member: Member, num_processes: int) -> Process:
    """Start a run, or resume it; what it prints goes to its log."""
    verb = ["train"] if num_processes == 1 else ["launch", "--processes", str(num_processes)]
    command = [sys.executable, "-P", "-m", "podsrl.cli", *verb, "--plain"]
    if (member.path / "config.toml").exists():
        command += ["--resume", str(member.path)]
    else:
        file = member.path.with_name(f"{member.path.name}.toml")
        write_atomically(file, dump(member.config))
        command += [str(file), "--out", str(member.path)]
    with member.log.open("ab") as log:
        return Process(command, output=log)


def _check(member: Member, code: int) -> None:
    if code != 0 or not member.is_finished:
        reason = last_line(member.log) or "no output"
        kind = UsageError if code == 2 else RunFailed
        raise kind(f"run {member.path.name} ended with exit code {code}: {reason} (see {member.log})")
