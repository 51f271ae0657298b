"""A thousand SIGKILLs at random instants of real training: every run that is resumed ends in the bits of a whole one.

    python -m benchmarks kills                    1,000 kills, about 20 minutes of one core
    python -m benchmarks kills --quick            12 kills
    python -m benchmarks kills --schedule "groups that close" --kills 200

A process that has imported everything forks a child, which runs or resumes `pods train`. The child and its process
group get SIGKILL when they have used a random amount of processor time, from none to more than the run needs, and up to
20 ms later, so that waits for the disk are hit too. Then the next child resumes. A run that has ended is compared with
one that was never killed: weights, optimizer, what parts remember, metrics without seconds, recorded groups, names of
files. Schedules take turns. Every 50th kill hits the command line in a fresh interpreter. After Ctrl-C the
result is that of the kills so far. Linux only.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.kills.children import Child, Fresh, Nursery, cpu_seconds, kill, left_alive
from benchmarks.kills.compare import differences, ends, unfinished
from benchmarks.kills.schedules import AHEAD, SCHEDULES, SWARM, words_of
from benchmarks.soak.processes import files, looked_at_folder, shared_memory
from benchmarks.timing import Say
from podsrl.errors import PodsError, UsageError
from podsrl.lib.logs import append_line, write_atomically

Json = dict[str, Any]
QUICK_KILLS = 12
FRESH_EVERY = 50
"""Kills of forked children per kill of a fresh interpreter."""
AHEAD_EVERY = 4
"""Turns of all schedules per turn of the one whose starts are slow."""
POLL_SECONDS = 0.004
LATER_SECONDS = 0.02
LEAVE_SECONDS = 10.0
"""How long what a killed process started may outlive it."""
LONGEST_SECONDS = 1800.0
"""Of one child."""
MOST_FAILURES = 10


def main(arguments: Sequence[str]) -> None:
    from benchmarks.kills.page import summary

    parser = command.new_parser("kills", __doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--schedule", choices=SCHEDULES, help="of these alone; default: all of them, in turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="12 kills at most")
    parser.add_argument("--out", type=Path, help="folder for what happened; default: a new one below runs/")
    command.measure(parser, arguments, lambda own, say: summary(kills(own, say)))


def kills(options: argparse.Namespace, say: Say) -> Path:
    """Kill and resume; returns the folder with kills.jsonl and facts.json.

    Raises:
        PodsError: too many runs failed; kills.jsonl has the reasons.
        UsageError: not Linux, or an option that cannot be.
    """
    if not 1 <= options.kills <= 1_000_000:
        raise UsageError(f"--kills {options.kills}: wanted 1 … 1,000,000")
    folder = looked_at_folder("kills", options.out)
    (folder / "temporary").mkdir()
    begun, first = time.monotonic(), next(iter(SCHEDULES))
    with Nursery(folder, words_of(first, {"stop.steps": "1"})) as nursery:
        killer = _Killer(folder, nursery, random.Random(options.seed), say)
        with suppress(KeyboardInterrupt):  # the result is then that of the kills so far
            _take_turns(
                killer,
                [options.schedule] if options.schedule else list(SCHEDULES),
                min(QUICK_KILLS, options.kills) if options.quick else options.kills,
                is_short=options.quick,
            )
    facts = {
        "quick": options.quick,
        "seed": options.seed,
        "seconds": time.monotonic() - begun,
        "temporary_files": list(map(str, files(folder / "temporary"))),
    }
    write_atomically(folder / "facts.json", json.dumps(facts))
    return folder


def _take_turns(killer: _Killer, names: Sequence[str], num_kills: int, *, is_short: bool) -> None:
    for turn in count():
        for name in names:
            if name == AHEAD and len(names) > 1 and (is_short or turn % AHEAD_EVERY):
                continue
            killer.run(name, num_kills)
            if killer.num_kills >= num_kills:
                return


@dataclass(frozen=True, slots=True)
class _Whole:
    """A run that was never killed."""

    ends: Json
    cpu_seconds: float


class _Killer:
    """Runs and kills; all that happens is a line of kills.jsonl."""

    def __init__(self, folder: Path, nursery: Nursery, rng: random.Random, say: Say) -> None:
        self._folder, self._nursery, self._rng, self._say = folder, nursery, rng, say
        self._output = folder / "output.txt"
        self._whole: dict[str, _Whole] = {}
        self._import_seconds = 0.0
        self._num_failures = 0
        self.num_kills = 0

    def run(self, name: str, num_kills: int) -> None:
        """Train one run to its end, through as many kills as come (`num_kills` at most over all runs), and compare."""
        whole = self._whole.get(name) or self._train_whole(name)
        folder, kills = self._folder / "killed", 0
        while (code := self._start(name, folder, whole, is_killed=self.num_kills < num_kills)) is None:
            kills += 1
        found = differences(ends(folder), whole.ends) if code == 0 else [f"exit code {code}"]
        self._log(end=name, kills=kills, differences=found)
        if found:
            self._num_failures += 1
            shutil.move(folder, self._folder / f"failed-{self._num_failures}")
            shutil.copy(self._output, self._folder / f"failed-{self._num_failures}.txt")
            if self._num_failures == MOST_FAILURES:
                raise PodsError(f"{MOST_FAILURES} runs ended otherwise than whole ones; see {self._folder}/kills.jsonl")
        shutil.rmtree(folder, ignore_errors=True)
        self._output.unlink()

    def _train_whole(self, name: str) -> _Whole:
        folder = self._folder / "whole"
        if name == SWARM:
            self._train(name, self._folder / "another", "--seed=1")
            (self._folder / "swarm" / "torn.00000001.groups").touch()
        used = self._train(name, folder)
        whole = self._whole[name] = _Whole(ends(folder), used)
        if not any(line.get("grad_norm") for line in whole.ends["metrics.jsonl"]):
            raise PodsError(f"{name}: no step had a gradient, so that equal weights would show nothing")
        shutil.rmtree(folder)
        if not self._import_seconds:
            fresh = Fresh(self._words(name, folder), self._output, self._folder)
            _, alone = self._finish(fresh, has_children=False)
            self._import_seconds = max(0.1, alone - used)
            self._log(end=name, kills=0, is_fresh=True, differences=differences(ends(folder), whole.ends))
            shutil.rmtree(folder)
        return whole

    def _train(self, name: str, folder: Path, *more: str) -> float:
        """Train a run to its end; the processor time that it took."""
        child = self._nursery.fork([*self._words(name, folder), *more], self._output)
        code, used = self._finish(child, has_children=name == AHEAD)
        if code:
            raise PodsError(f"{name} ended with code {code}: {self._output.read_text(errors='replace')[-300:]}")
        return used

    def _words(self, name: str, folder: Path) -> list[str]:
        own = {"options.sapo.folder": str(self._folder / "swarm")} if name == SWARM else {}
        return [*words_of(name, own), "--out", str(folder)]

    def _start(self, name: str, folder: Path, whole: _Whole, *, is_killed: bool) -> int | None:
        """Start or resume; the exit code, or None where it was killed."""
        has_begun = (folder / "config.toml").exists()
        words = ["train", "--plain", "--resume", str(folder)] if has_begun else self._words(name, folder)
        is_fresh = is_killed and self.num_kills % FRESH_EVERY == FRESH_EVERY // 2
        longest = 1.1 * whole.cpu_seconds + is_fresh * self._import_seconds
        instant = longest * self._rng.random() ** 2  # more of them early: a run goes on through several kills
        child = Fresh(words, self._output, self._folder) if is_fresh else self._nursery.fork(words, self._output)
        self._say(f"{self.num_kills} kills, {name}")
        if not is_killed:
            return self._finish(child, has_children=False)[0]
        return self._kill(child, name, instant, is_fresh=is_fresh, was_resumed=has_begun, folder=folder)

    def _kill(
        self, child: Child, name: str, instant: float, *, is_fresh: bool, was_resumed: bool, folder: Path
    ) -> int | None:
        begun = time.monotonic()
        while (used := cpu_seconds(child.pid, has_children=name == AHEAD)) < instant:
            if (code := child.ended(POLL_SECONDS)) is not None:
                return code
            if time.monotonic() - begun > LONGEST_SECONDS:
                raise PodsError(f"{name}: a child has not ended after {LONGEST_SECONDS:g} s")
        time.sleep(self._rng.uniform(0.0, LATER_SECONDS))
        segments = shared_memory(child.pid)
        kill(child.pid)
        code = child.ended(LONGEST_SECONDS)
        if code is not None and code >= 0:
            return code
        self.num_kills += 1
        self._log(
            kill=self.num_kills,
            schedule=name,
            is_fresh=is_fresh,
            was_resumed=was_resumed,
            cpu_seconds=used,
            unfinished=unfinished(folder),
            left_processes=self._wait_for_below(),
            left_segments=sorted(path for path in segments if Path(path).exists()),
        )
        return None

    def _wait_for_below(self) -> list[int]:
        deadline = time.monotonic() + LEAVE_SECONDS
        while (left := left_alive(self._folder, but=self._nursery.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def _finish(self, child: Child, *, has_children: bool) -> tuple[int, float]:
        """Wait until it has ended; its exit code, and the processor time that it and those below it took."""
        used, begun = 0.0, time.monotonic()
        while (code := child.ended(POLL_SECONDS)) is None:
            used = max(used, cpu_seconds(child.pid, has_children=has_children))
            if time.monotonic() - begun > LONGEST_SECONDS:
                raise PodsError(f"a child has not ended after {LONGEST_SECONDS:g} s: {self._output}")
        return code, used

    def _log(self, **line: Any) -> None:
        append_line(self._folder / "kills.jsonl", line)
