"""Kill any process of a run at any instant, and look at what comes of it.

    PYTHONPATH=tests python tests/scale/kill_anything.py --times 100 --seed 0

A trial starts a run and, at random moments, sends KILL, TERM or INT to a random one of all of its processes. While the
run goes on, nothing is done; when it ends, it has to end in time and with one line, and it is resumed, during which it
may be killed again. In the end the numbers and the weights have to be those of a run that nobody killed, bit for bit,
and no process, no shared memory and no temporary file may be left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from killing import ALL_SECONDS, Pace, Run, adopting, kill_any, role_of, tree, wait_for_moment

import small_options

END_SECONDS, LEFT_SECONDS = 300.0, 300.0
"""Bounds: from the kill to the end of a run that ends, and from there to the end of all that it has started."""
OWN_ERROR = re.compile(r"(error|failed|interrupted|process \d|the other processes were stopped)")
SMALL = (
    *small_options.SMALL,
    "--eval.every_steps=3",
    "--stop.steps=8",
    "--checkpoint.every_seconds=0",
    "--checkpoint.every_steps=1",
    "--checkpoint.keep=2",
    "--record.groups_every_steps=2",
    "--model.matmul=onednn",
    "--model.device=cpu",
    "--threads=1",
)


@dataclass(frozen=True)
class Case:
    options: tuple[str, ...]
    num_processes: int = 1
    share: int = 1
    """How often it comes, as a weight."""

    def start(self, folder: Path, *, is_resumed: bool) -> list[str]:
        what = ["--resume", str(folder)] if is_resumed else ["pods", "--out", str(folder), *SMALL, *self.options]
        launcher = ["launch", "--processes", str(self.num_processes)] if self.num_processes > 1 else ["train"]
        return [*launcher, *what, "--plain"]


CASES = {
    "ahead, R=1": Case(("--scale.generators=1", "--order.ahead=1"), share=5),
    "ahead, R=2": Case(("--scale.generators=2", "--order.ahead=1"), share=5),
    "sync, R=2": Case(("--scale.generators=2",), share=3),
    "launch, ahead, R=2": Case(("--scale.generators=2", "--order.ahead=1"), 2, share=5),
    "launch, sync, R=2": Case(("--scale.generators=2",), 2, share=2),
    "Ray, ahead, R=1": Case(("--scale.generators=1", "--order.ahead=1", "--scale.ray=local"), share=2),
    "launch, Ray, ahead, R=2": Case(("--scale.generators=2", "--order.ahead=1", "--scale.ray=local"), 2, share=1),
}


@dataclass
class Kill:
    case: str
    victim: str
    number: int
    moment: str
    outcome: str = "went on"

    def __str__(self) -> str:
        return f"{self.victim} {signal.Signals(self.number).name[3:]} ({self.moment}): {self.outcome}"


@dataclass
class Trial:
    case: str
    seed: int
    kills: list[Kill] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    folder: str = ""


# --- a trial ---


def numbers_of(folder: Path) -> dict[str, Any]:
    """All that has to be the same, bit for bit."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    plain = [{k: v for k, v in line.items() if not k.startswith(("seconds/", "memory/"))} for line in lines]
    newest = max(folder.glob("checkpoints/step-*"))
    files = [*newest.rglob("*.safetensors"), folder / "groups.jsonl"]
    found = {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    return found | {"metrics": plain, "checkpoint": newest.name}


def measure(case: Case, folder: Path) -> tuple[Pace, dict[str, Any]]:
    """Let a run go on to its end; returns its pace and its numbers."""
    run, log = Run(case.start(folder, is_resumed=False), folder), folder / "metrics.jsonl"
    while run.is_running and not log.exists():
        time.sleep(0.005)
    first = time.monotonic() - run.begun
    assert run.process.wait(ALL_SECONDS) == 0, run.text
    line_seconds = (time.monotonic() - run.begun - first) / max(1, len(log.read_text().splitlines()))
    shutil.rmtree(run.temporary)
    numbers = numbers_of(folder)
    return Pace(first, len(numbers["metrics"]), line_seconds), numbers


def try_one(name: str, seed: int, num_kills: int, pace: Pace, wanted: dict[str, Any], above: Path) -> Trial:
    """Start, kill, resume, until the run ends by itself, and compare its numbers; `num_kills` at most."""
    rng, case, trial = random.Random(seed), CASES[name], Trial(name, seed)
    folder, runs = above / f"trial-{seed}", list[Run]()
    trial.folder = str(folder)
    before = tree(os.getpid())
    with adopting():
        try:
            while True:
                is_resumed = (folder / "config.toml").exists()
                run = Run(case.start(folder, is_resumed=is_resumed), folder)
                runs.append(run)
                if _follow(run, rng, trial, num_kills, pace):
                    break
                if rng.random() < 0.5:  # else the next run begins while the rest of this one may still be there
                    trial.problems += _left(run)
            if not trial.problems and (found := numbers_of(folder)) != wanted:
                trial.problems.append(f"other numbers: {[key for key in wanted if found.get(key) != wanted[key]]}")
            for run in runs:
                trial.problems += _left(run)
            hidden = [str(path) for path in folder.rglob(".*") if path.name != ".lock"]
            trial.problems += [f"left in the run's folder: {path}" for path in hidden]
        except Exception as error:
            trial.problems.append(f"{type(error).__name__}: {error}")
        finally:
            orphans = tree(os.getpid()) - before
            if orphans and not trial.problems:
                trial.problems.append(f"orphans: {[(pid, role_of(pid)) for pid in orphans]}")
            for pid in orphans:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for i, run in enumerate(runs):
                run.process.wait()
                if trial.problems:
                    (above / f"trial-{seed}.run-{i}.txt").write_text(run.text)
                run.printed.close()
                shutil.rmtree(run.temporary, ignore_errors=True)
    if not trial.problems:
        shutil.rmtree(folder)
    return trial


def _follow(run: Run, rng: random.Random, trial: Trial, num_kills: int, pace: Pace) -> bool:
    """Kill, and wait for the end; returns whether the run has ended by itself, or something is wrong."""
    kills: list[Kill] = []
    last = time.monotonic()
    while len(trial.kills) < num_kills and run.is_running:
        moment = wait_for_moment(run, rng, pace, is_first=not kills)
        found = kill_any(run, rng) if run.is_running else None
        if found is not None:
            kills.append(Kill(trial.case, *found, moment))
            trial.kills.append(kills[-1])
            last = time.monotonic()
    try:
        code = run.process.wait(ALL_SECONDS)
    except subprocess.TimeoutExpired:
        trial.problems.append(f"still running {ALL_SECONDS:g} s after the last kill: {run.members()}")
        return True
    seconds = time.monotonic() - last
    if code == 0:
        wanted = "resumed step-" if run.had_checkpoint else "starting over"
        if "--resume" in run.arguments and wanted not in run.text:
            trial.problems.append(f"nothing said {wanted!r}")
        return True
    if seconds > END_SECONDS:
        trial.problems.append(f"it ended {seconds:.1f} s after the kill")
    trial.problems += _errors_in(run, code, kills)
    has_run, has_checkpoint = (run.folder / "config.toml").exists(), any(run.folder.glob("checkpoints/step-*"))
    comes = "resumed" if has_checkpoint else "no checkpoint yet, started over" if has_run else "no run yet, begun again"
    ended = "stopped" if code in (130, 143) else "ended"
    if kills:
        blamed = next((kill for kill in reversed(kills) if kill.victim != "generator"), kills[-1])
        blamed.outcome = f"{ended} after {seconds:.1f} s, {comes}"
    return bool(trial.problems)


def _errors_in(run: Run, code: int, kills: list[Kill]) -> list[str]:
    """What is wrong with how a run ended that did not finish."""
    if not kills:
        return [f"it ended with exit code {code}, and nobody had killed it"]
    if code < 0:
        is_ours = any(kill.number == -code and kill.victim in ("run", "launcher") for kill in kills)
        return [] if is_ours else [f"it ended by signal {-code}"]
    lines = [line for line in run.text.splitlines() if OWN_ERROR.match(line)]
    problems = [f"{len(lines)} lines of error"] if not 1 <= len(lines) <= 2 else []
    return problems + ["a traceback"] * ("Traceback" in run.text)


def _left(run: Run) -> list[str]:
    """What a run leaves behind for good."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := [*run.left(), *run.left_in_shared_memory()]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f"left {LEFT_SECONDS:g} s after its end: {each}" for each in left]


def main() -> None:
    """Kill as often as the command line says; exit code 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="kills in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time")
    parser.add_argument("--case", action="append", choices=[*CASES], help="one of the cases; default: all")
    options = parser.parse_args()
    names = options.case or [*CASES]
    above = Path(tempfile.mkdtemp(prefix="pods-kills-"))
    rng, trials = random.Random(options.seed), list[Trial]()
    with ProcessPoolExecutor(options.at_once) as pool:
        measured = [pool.submit(measure, CASES[name], above / f"reference-{i}") for i, name in enumerate(names)]
        references = {name: future.result() for name, future in zip(names, measured, strict=True)}
        for name, (pace, _) in references.items():
            print(f"{name}: {pace.first_seconds:.1f} s to the first line", flush=True)
        planned, waiting = 0, set()
        while planned < options.times:
            name = rng.choices(names, [CASES[name].share for name in names])[0]
            num = min(rng.choice([1, 2, 2, 3, 4]), options.times - planned)
            waiting.add(pool.submit(try_one, name, options.seed * 100_000 + planned, num, *references[name], above))
            planned += num
        for future in as_completed(waiting):
            trials.append(trial := future.result())
            done = sum(len(each.kills) for each in trials)
            state = "; ".join(trial.problems) or "same numbers"
            where = f" [{trial.folder}]" if trial.problems else ""
            print(f"{done:3}/{planned} {trial.case}: {'; '.join(map(str, trial.kills))} -> {state}{where}", flush=True)
    _summarise(trials)
    is_bad = any(trial.problems for trial in trials)
    if not is_bad:
        shutil.rmtree(above)
    sys.exit(is_bad)


def _summarise(trials: list[Trial]) -> None:
    kills = [kill for trial in trials for kill in trial.kills]
    rows = Counter(
        (kill.victim, signal.Signals(kill.number).name, re.sub(r" after [\d.]+ s", "", kill.outcome)) for kill in kills
    )
    num_wrong = sum(bool(trial.problems) for trial in trials)
    print(f"\n{len(kills)} kills in {len(trials)} trials, {num_wrong} of them wrong")
    for (victim, number, outcome), count in sorted(rows.items()):
        print(f"{count:4}  {victim:22} {number:8} {outcome}")


if __name__ == "__main__":
    main()
