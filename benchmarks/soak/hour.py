"""An hour of training, looked at from outside: does memory, do files or processes grow, and how fast do the logs.

    python -m benchmarks soak                     an hour, two runs at once, an observer and a live page on the first
    python -m benchmarks soak --quick             half a minute, small steps
    python -m benchmarks soak --minutes 600       a night

"pods" is the recipe of that name as it is, with `pods watch` and `pods report --live` beside it. "ahead" takes small
steps, which it generates one step ahead in a child process and judges in worker processes. Both write checkpoints,
records and evaluations. Every few seconds this process reads /proc and the folders of both. At the end it sends Ctrl-C,
looks for what is left behind, and resumes each run for some steps. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.soak.processes import (
    files,
    folder_bytes,
    held_below,
    is_running,
    looked_at_folder,
    shared_memory,
)
from benchmarks.timing import Say
from podsrl.errors import PodsError, UsageError
from podsrl.lib.below import below
from podsrl.lib.logs import append_line, last_line, write_atomically
from podsrl.lib.parent import asked_of_child

Json = dict[str, Any]
LONG = {"stop.seconds": "0", "stop.steps": "99999999"}
RUNS: Mapping[str, Mapping[str, str]] = {
    "pods": {"checkpoint.every_seconds": "20"},
    "ahead": {
        "rollouts.num_prompts": "2",
        "rollouts.num_rollouts": "16",
        "select.num_kept": "8",
        "order.ahead": "1",
        "scale.generators": "1",
        "task.rewards": "{correct = 1.0, any_correct = 0.5}",
        "task.reward_workers": "1",
        "task.num_eval": "64",
        "eval.every_seconds": "0",
        "eval.every_steps": "200",
        "checkpoint.every_seconds": "0",
        "checkpoint.every_steps": "100",
    },
}
"""Run -> its options besides those of the recipe "pods"."""
QUICK = {
    "task.num_eval": "8",
    "rollouts.num_prompts": "2",
    "rollouts.num_rollouts": "8",
    "select.num_kept": "4",
    "checkpoint.every_seconds": "2",
}
SAMPLE_SECONDS, QUICK_SAMPLE_SECONDS = 5.0, 1.0
QUICK_SECONDS = 30.0
END_SECONDS = 180.0
"""How long a command has to end after Ctrl-C, and a resumed run to take its steps."""
LEAVE_SECONDS = 10.0
"""How long the processes below a command may outlive it: they look for it once per second."""
RESUMED_STEPS = 5


def main(arguments: Sequence[str]) -> None:
    from benchmarks.soak.result import summary

    parser = command.new_parser("soak", __doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="half a minute at most, small steps")
    parser.add_argument("--out", type=Path, help="folder for the runs and the samples; default: a new one below runs/")
    command.measure(parser, arguments, lambda options, say: summary(soak(options, say)))


@dataclass(slots=True)
class Started:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    output: Path
    temporary: Path
    seen: set[int] = field(default_factory=set)
    """Process ids below it, so far."""
    segments: set[str] = field(default_factory=set)
    """Shared memory that it had, so far."""


def soak(options: argparse.Namespace, say: Say) -> Path:
    """Run everything for the given minutes; returns the folder with samples.jsonl and end.json.

    Raises:
        PodsError: a command ended too early.
        UsageError: not Linux, or an option that cannot be.
    """
    if not 0 < options.minutes <= 10_000:
        raise UsageError(f"--minutes {options.minutes:g}: wanted 0 … 10,000")
    folder = looked_at_folder("soak", options.out)
    seconds, pause = 60 * options.minutes, SAMPLE_SECONDS
    if options.quick:
        seconds, pause = min(seconds, QUICK_SECONDS), QUICK_SAMPLE_SECONDS
    facts = {"quick": options.quick, "seconds": seconds, "options": {run: dict(own) for run, own in RUNS.items()}}
    write_atomically(folder / "soak.json", json.dumps(facts))
    with _ending() as commands:
        for run, own in RUNS.items():
            chosen = {**LONG, **own, **(QUICK if options.quick else {})}
            flags = (f"--{key}={value}" for key, value in chosen.items())
            commands[run] = start(("train", "pods", *flags, "--plain", "--out", str(folder / run)), folder, run)
        _wait_for_logs(commands, folder, say)
        commands["watch"] = start(("watch", str(folder / "pods"), "--plain"), folder, "watch")
        commands["page"] = start(
            ("report", str(folder / "pods"), "--live", "--out", str(folder / "page.html")), folder, "page"
        )
        _look_on(commands, folder, seconds, pause, say)
        say("ending")
        end: Json = {name: stop(commands[name]) for name in (*RUNS, "watch", "page")}
    end |= {"left": left(commands), "resumed": {run: _resume(folder, run) for run in RUNS}}
    write_atomically(folder / "end.json", json.dumps(end))
    return folder


def start(words: Sequence[str], folder: Path, name: str) -> Started:
    """Start `pods` with these words; its temporary files go to a folder of its own."""
    output, temporary = folder / f"{name}.txt", folder / f"{name}.tmp"
    temporary.mkdir()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "podsrl.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **asked_of_child(), "TMPDIR": str(temporary)},
        )
    return Started(process, output, temporary)


def stop(started: Started) -> int:
    """Send Ctrl-C, unless the command has ended; returns its exit code.

    Raises:
        PodsError: it does not end.
    """
    started.seen |= below(started.process.pid)
    if started.process.poll() is None:
        started.process.send_signal(signal.SIGINT)
    try:
        return started.process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        raise PodsError(f"{started.output.stem} did not end within {END_SECONDS:g} s of Ctrl-C") from None


def left(commands: Mapping[str, Started]) -> dict[str, list[str]]:
    """What commands that have ended left behind."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while (alive := _alive(commands)) and time.monotonic() < deadline:
        time.sleep(0.1)
    segments = {path for started in commands.values() for path in started.segments if Path(path).exists()}
    temporary = [str(path) for started in commands.values() for path in files(started.temporary)]
    return {"processes": sorted(map(str, alive)), "segments": sorted(segments), "temporary_files": sorted(temporary)}


def _alive(commands: Mapping[str, Started]) -> set[int]:
    return {pid for started in commands.values() for pid in started.seen if is_running(pid)}


def sample(name: str, started: Started, folder: Path) -> Json:
    """One look at a command."""
    pid, log = started.process.pid, folder / name / "metrics.jsonl"
    started.seen |= below(pid)
    mapped = shared_memory(pid)
    started.segments |= {path for path in mapped if Path(path).exists()}
    line = last_line(log) if log.exists() else None
    return {
        "command": name,
        "step": (line or {}).get("step"),
        "processes": held_below(pid),
        "segments": len(mapped),
        "temporary_files": len(files(started.temporary)),
        "output_bytes": started.output.stat().st_size,
        "folder_bytes": folder_bytes(folder / name),
    }


def _look_on(commands: Mapping[str, Started], folder: Path, seconds: float, pause: float, say: Say) -> None:
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        for name, started in commands.items():
            if started.process.poll() is not None:
                last = started.output.read_text(errors="replace").strip().rpartition("\n")[2]
                raise PodsError(f"{name} ended after {passed:.0f} s with code {started.process.returncode}: {last}")
            append_line(folder / "samples.jsonl", {"seconds": passed, **sample(name, started, folder)})
        say(f"{passed / 60:.1f} of {seconds / 60:g} minutes")
        time.sleep(pause)


def _wait_for_logs(commands: Mapping[str, Started], folder: Path, say: Say) -> None:
    deadline = time.monotonic() + 10 * END_SECONDS
    for run, started in commands.items():
        say(f"waiting for the first line of {run}")
        while not (folder / run / "metrics.jsonl").exists():
            if started.process.poll() is not None or time.monotonic() > deadline:
                raise PodsError(f"{run} wrote no line: {started.output.read_text(errors='replace').strip()[-300:]}")
            time.sleep(0.1)


def _resume(folder: Path, run: str) -> Json:
    """Take some more steps: seconds until the first of them is written, and the exit code."""
    log = folder / run / "metrics.jsonl"
    step = (last_line(log) or {})["step"]
    words = ("train", "--resume", str(folder / run), f"--stop.steps={step + RESUMED_STEPS}", "--plain")
    size, begun = log.stat().st_size, time.monotonic()
    started = start(words, folder, f"{run}-resumed")
    while started.process.poll() is None and log.stat().st_size <= size and time.monotonic() < begun + END_SECONDS:
        time.sleep(0.05)
    seconds = time.monotonic() - begun
    try:
        return {"steps": step, "seconds": seconds, "code": started.process.wait(END_SECONDS)}
    finally:
        started.process.kill()


@contextmanager
def _ending() -> Iterator[dict[str, Started]]:
    """Commands, of which none is left afterwards."""
    commands: dict[str, Started] = {}
    try:
        yield commands
    finally:
        for started in commands.values():
            started.process.kill()
            started.process.wait()
