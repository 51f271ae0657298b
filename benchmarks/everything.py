"""Run every benchmark that saves a result, one after another; goes on where it stopped.

    python -m benchmarks all                      measures and saves what this processor has no file of, for this commit
    python -m benchmarks all --quick              each with its quick size, saving nothing; some minutes
    python -m benchmarks all --only select floor  some of them
    python -m benchmarks all --since COMMIT       leaves out what was measured at COMMIT or later

Each runs in a process of its own; what it prints goes to runs/benchmarks/NAME.log. Needs a clone without changes,
since a result names its commit. A benchmark that lacks something (a package, a GPU, data) is skipped with the reason;
one that fails is named at the end, and the others run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks import BENCHMARKS, files
from benchmarks.files import ROOT
from podsrl.cli.progress import bar
from podsrl.errors import PodsError, UsageError, nearest
from podsrl.lib.parent import asked_of_child

LOGS = ROOT / "runs" / "benchmarks"
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "planner": ("--cpu-time", "--save"),
    "trl-accuracy": ("--save", "--out", "{folder}"),
    "systems": ("--save", "--out", "{folder}"),
    "demo": ("--tune", "--save", "--out", "{folder}"),
    "gpu-tests": ("--save", "--out", "{folder}"),
    "gpu-demo": ("--save", "--out", "{folder}"),
    "gpu-gsm8k": ("--save", "--out", "{folder}"),
    "engine-gpu": (
        *("--shapes", "0.5b", "--rollouts", "16", "64", "256", "512", "--curve", "16", "64", "256", "512"),
        *("--new-tokens", "128", "--repeats", "2", "--save", "--out", "{folder}"),
    ),
    "halves": (
        *("--rollouts", "8", "16", "32", "64", "128", "--kept", "4", "8", "16", "32", "64"),
        *("--repeats", "2", "--save", "--out", "{folder}"),
    ),
}
"""Of the whole measurement, where they are not `--save` alone; {folder} holds finished parts, one folder per commit."""
QUICK: Mapping[str, tuple[str, ...]] = {
    "families": ("qwen2", "gpt2"),
    "planner": ("--steps", "2", "--probe-seconds", "8"),
    "interval-coverage": ("--comparisons", "2"),
    "trl-accuracy": ("--quick", "--out", "{folder}"),
    "systems": ("--quick", "--out", "{folder}"),
    "gpu-tests": ("--quick", "--out", "{folder}"),
    "gpu-demo": ("--quick", "--out", "{folder}"),
    "gpu-gsm8k": ("--quick", "--out", "{folder}"),
    "engine-gpu": (
        *("--shapes", "s128", "--rollouts", "4", "8", "--curve", "2", "4"),
        *("--new-tokens", "8", "--repeats", "1", "--out", "{folder}"),
    ),
    "halves": (
        *("--shapes", "s128", "--rollouts", "2", "4", "--kept", "2", "--new-tokens", "8"),
        *("--micro-batches", "1024", "--repeats", "1", "--out", "{folder}"),
    ),
}
"""Of the quick size, where they are not `--quick` alone."""
NEED_GPU = ("gpu-tests", "gpu-demo", "gpu-gsm8k", "engine-gpu", "halves")
PATIENCE_SECONDS = 30.0
"""After Ctrl-C, how long a benchmark may take to end."""


@dataclass(slots=True)
class Outcome:
    """What became of a benchmark."""

    name: str
    state: str
    """"done", "stopped" (out of time), "skipped" or "failed"."""
    minutes: float = 0.0
    why: str = ""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is saved")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of them")
    parser.add_argument(
        "--since", default="HEAD", metavar="COMMIT", help="measured then or later counts; default: HEAD"
    )
    options = parser.parse_args(arguments)
    names = saving()
    for name in options.only or ():
        if name not in names:
            raise UsageError(f"--only {name}: wanted some of {', '.join(names)}.{nearest(name, names)}")
    since = files.commit(options.since)
    if since is None:
        raise UsageError(f"--since {options.since}: git knows no such commit here; wanted one of this clone")
    if files.has_changes() and not options.quick:
        raise UsageError(
            "the code has changes that no commit has, and results name their commit: commit them, or --quick"
        )
    outcomes = run_all([name for name in names if name in (options.only or names)], since, is_quick=options.quick)
    for outcome in outcomes:
        print(f"{outcome.name} {outcome.state}: {outcome.why or f'{outcome.minutes:.1f} minutes'}")
    if any(outcome.state == "done" for outcome in outcomes) and not options.quick:
        print("`python -m benchmarks pages` writes the new figures into README and docs.")
    if failed := [outcome.name for outcome in outcomes if outcome.state == "failed"]:
        raise PodsError(f"{len(failed)} failed: {', '.join(failed)}; the same command runs them again")


def saving() -> list[str]:
    """Benchmarks that save a result, in the order in which they run."""
    calls = ("command.measure(", "from benchmarks.claims import")
    return [name for name in BENCHMARKS if any(call in source(name) for call in calls) or name in ARGUMENTS]


@cache
def source(name: str) -> str:
    """The text of a benchmark's module."""
    return (ROOT / "benchmarks").joinpath(*BENCHMARKS[name].split(".")).with_suffix(".py").read_text(encoding="utf-8")


def path_here(name: str) -> Path:
    """The file of this machine's result: its processor's, or its GPU's where the benchmark needs one."""
    return files.path_of(name, files.device_name("cuda") if name in NEED_GPU and has_gpu() else None)


def run_all(names: Sequence[str], since: str, *, is_quick: bool) -> list[Outcome]:
    """Run benchmarks one after another. KeyboardInterrupt leaves what is finished."""
    outcomes = []
    for number, name in enumerate(names, start=1):
        if why := why_not(name, since, is_quick=is_quick):
            outcomes.append(Outcome(name, "skipped", why=why))
        else:
            text = f"[{number}/{len(names)}] {name}"
            outcomes.append(run_one(name, arguments_of(name, is_quick=is_quick), text))
    return outcomes


def why_not(name: str, since: str, *, is_quick: bool) -> str:
    """Why a benchmark need not or cannot run; empty: it runs."""
    if name in NEED_GPU and not has_gpu():
        return "needs a GPU"
    if is_quick:
        return "" if name in QUICK or '"--quick"' in source(name) else "has no quick size"
    here = path_here(name)
    measured_at = json.loads(here.read_text(encoding="utf-8"))["commit"] if here.exists() else None
    if measured_at and (
        measured_at == since or files.git("merge-base", "--is-ancestor", since, measured_at) is not None
    ):
        return f"was measured at commit {measured_at}"
    return ""


def arguments_of(name: str, *, is_quick: bool, when: str = "") -> list[str]:
    """What follows a benchmark's name on its command line; `when` names the folder of a quick one, else the time."""
    folder = LOGS / f"{name}-{files.commit()}"
    if is_quick:
        folder = LOGS / f"{name}-quick-{when or time.strftime('%Y%m%d-%H%M%S')}"
    chosen = QUICK.get(name, ("--quick",)) if is_quick else ARGUMENTS.get(name, ("--save",))
    return [each.replace("{folder}", str(folder)) for each in chosen]


def has_gpu() -> bool:
    """Whether torch sees one."""
    import torch

    return torch.cuda.is_available()


def run_one(name: str, arguments: Sequence[str], text: str, seconds: float = math.inf) -> Outcome:
    """Run one benchmark in a process of its own, which ends with this one; after so many seconds it is asked to end."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log, start = LOGS / f"{name}.log", time.monotonic()
    command = [sys.executable, "-m", "benchmarks", name, *arguments]
    environment = {**os.environ, **asked_of_child()}
    with log.open("wb") as file, bar(text) as show:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
        try:
            while child.poll() is None and (done := time.monotonic() - start) < seconds:
                time.sleep(0.2)
                show(done, None, "")
        finally:
            is_over = child.poll() is None
            end(child)
    took = (time.monotonic() - start) / 60
    if is_over:
        return Outcome(name, "stopped", took, f"its {seconds:g} s ran out; the same command continues it")
    if child.returncode == 0:
        return Outcome(name, "done", took)
    why = f"{last_line(log)} (see {os.path.relpath(log)})"
    return Outcome(name, "skipped" if child.returncode == 2 else "failed", took, why)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a benchmark and what it has started in its session."""
    with suppress(ProcessLookupError):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)  # SIGINT may be ignored, as in a background job
            with suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE_SECONDS)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_line(log: Path) -> str:
    """What a benchmark said last."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"
