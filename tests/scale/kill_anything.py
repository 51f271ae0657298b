"""Kill any process of a run at any instant, and look at what comes of it.

    python tests/scale/kill_anything.py --times 100 --seed 0

A trial starts a run and, at random moments, sends KILL, TERM or INT to a random one of all of its processes. While the
run goes on, nothing is done; when it ends, it has to end in time and with one line, and it is resumed, during which it
may be killed again. In the end the numbers and the weights have to be those of a run that nobody killed, bit for bit,
and no process, no shared memory and no temporary file may be left.
"""

from __future__ import annotations

import argparse
import ctypes
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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from podsrl.lib.parent import asked_of_child
from running import environment, pods

MARK = "PODS_KILLED_RUN"
"""Environment variable by which the processes of a run are found."""
END_SECONDS, LEFT_SECONDS, ALL_SECONDS = 60.0, 30.0, 600.0
"""Bounds: from the kill to the end of a run that ends; from there to the end of all that it started; of a whole run."""
SIGNALS = [signal.SIGKILL] * 7 + [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
OWN_ERROR = re.compile(r"(error|failed|interrupted|process \d|the other processes were stopped)")
SMALL = (
    "--rollouts.num_prompts=2",
    "--rollouts.num_rollouts=8",
    "--select.num_kept=4",
    "--rollouts.max_new_tokens=24",
    "--task.num_eval=8",
    "--eval.every_seconds=0",
    "--eval.every_steps=3",
    "--stop.seconds=0",
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
    "ahead, R=1": Case(("--scale.generators=1", "--steps.name=ahead"), share=5),
    "ahead, R=2": Case(("--scale.generators=2", "--steps.name=ahead"), share=5),
    "sync, R=2": Case(("--scale.generators=2",), share=3),
    "launch, ahead, R=2": Case(("--scale.generators=2", "--steps.name=ahead"), 2, share=5),
    "launch, sync, R=2": Case(("--scale.generators=2",), 2, share=2),
    "Ray, ahead, R=1": Case(("--scale.generators=1", "--steps.name=ahead", "--scale.ray=local"), share=2),
    "launch, Ray, ahead, R=2": Case(("--scale.generators=2", "--steps.name=ahead", "--scale.ray=local"), 2, share=1),
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
class Reference:
    """A run that nobody killed."""

    numbers: dict[str, Any]
    first_seconds: float
    """To its first line."""
    num_lines: int
    line_seconds: float


@dataclass
class Trial:
    case: str
    seed: int
    kills: list[Kill] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    folder: str = ""


# --- processes ---


def processes() -> dict[int, int]:
    """Process id -> parent, of all that have not ended."""
    found = {}
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            state, parent, *_ = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            if state not in "ZX":
                found[int(entry)] = int(parent)
    return found


def tree(root: int) -> set[int]:
    """A process and all below it."""
    parents, found = processes(), {root}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return found & set(parents)


def words_of(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []


def variables_of(pid: int) -> dict[str, str]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(pair.partition("=")[::2] for pair in text.split("\0"))
    return {}


def role_of(pid: int) -> str:
    """What a process is in its run."""
    words = words_of(pid)
    line = " ".join(words)
    if "generators.child" in line:
        return "generator"
    if "ray_local" in line:
        return "Ray's keeper"
    if "podsrl.cli" in words and ("train" in words or "launch" in words):
        rank = variables_of(pid).get("RANK")
        return "launcher" if "launch" in words else f"process {rank}" if rank is not None else "run"
    if "supervisor" in line:
        return "reward worker"
    if words and words[0].startswith("ray::"):
        return "Ray's actor" if "Actor" in words[0] else "idle worker of Ray"
    for name in ("gcs_server", "raylet/raylet", "log_monitor", "monitor.py", "runtime_env", "dashboard"):
        if name in line:
            return f"Ray's {name.rpartition('/')[2]}"
    return f"other ({Path(words[0]).name if words else '?'})"


def catches_signals(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM, as a Python command has soon after its start."""
    with suppress(OSError):
        mask = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return mask is not None and bool(int(mask[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@contextmanager
def adopting() -> Iterator[None]:
    """Become the parent of all orphans below, so that they are found also where they lost their environment."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1)
    try:
        yield
    finally:
        prctl(36, 0)


# --- a run ---


class Run:
    """A command that runs, with what it prints and a folder of its own for temporary files."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.folder, self.mark = folder, os.urandom(8).hex()
        self.temporary = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # short: a socket's name has 107 bytes at most
        self.shared = set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()
        self.had_checkpoint = any(folder.glob("checkpoints/step-*"))
        own = {
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "inductor"),  # torch makes it when it is imported
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_WAIT_POLICY": "PASSIVE",
            **asked_of_child(),
        }
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the run
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            pods(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=self.printed,
            stderr=self.printed,
            env=environment() | own,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def text(self) -> str:
        return os.pread(self.printed.fileno(), 1 << 20, 0).decode(errors="replace")

    def members(self) -> dict[str, list[int]]:
        """Its processes by their roles."""
        found: dict[str, list[int]] = {}
        for pid in tree(self.process.pid):
            found.setdefault(role_of(pid), []).append(pid)
        return found

    def left(self) -> list[str]:
        """What it has left behind by now."""
        marked = {pid for pid in processes() if variables_of(pid).get(MARK) == self.mark}
        return [
            *(f"process {pid} ({role_of(pid)})" for pid in sorted(marked)),
            *(str(path) for path in self.temporary.iterdir()),
        ]

    def left_in_shared_memory(self) -> list[str]:
        names = set(os.listdir("/dev/shm")) - self.shared if Path("/dev/shm").exists() else set()
        ours = re.compile(r"podsrl|pods|plasma|ray|torch_")
        return [f"/dev/shm/{name}" for name in names if ours.match(name) and not is_open_anywhere(name)]


def is_open_anywhere(name: str) -> bool:
    """Whether any process has it in its memory: other programs of this machine have theirs."""
    for pid in processes():
        with suppress(OSError):
            if f"/dev/shm/{name}" in Path(f"/proc/{pid}/maps").read_text():
                return True
    return False


def numbers_of(folder: Path) -> dict[str, Any]:
    """All that has to be the same, bit for bit."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    plain = [{k: v for k, v in line.items() if not k.startswith(("seconds/", "memory/"))} for line in lines]
    newest = max(folder.glob("checkpoints/step-*"))
    files = [*newest.rglob("*.safetensors"), folder / "groups.jsonl"]
    found = {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    return found | {"metrics": plain, "checkpoint": newest.name}


def changes_of(log: Path) -> Iterator[int]:
    """How often a log has changed since the first call, each time that one looks."""
    size, num = -1, -1
    while True:
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            size, num = now, num + 1
        yield num


def wait_for_moment(run: Run, rng: random.Random, reference: Reference, *, is_first: bool) -> str:
    """Wait for a random moment, or for the end of the run, whichever comes first; says which moment it is."""
    kind, pause = rng.random(), 0.0
    changes, wanted = changes_of(run.folder / "metrics.jsonl"), rng.randrange(reference.num_lines + 1)
    if not is_first:
        deadline, what = time.monotonic() + rng.uniform(0, 1.5), "soon after the last"
    elif kind < 0.3:
        deadline, what = run.begun + rng.uniform(0.02, 1.1) * reference.first_seconds, "at its start"
    elif kind < 0.5:
        deadline, what, pause = run.begun + ALL_SECONDS, "in a checkpoint", rng.uniform(0, 0.03)
    else:
        deadline, what = run.begun + ALL_SECONDS, f"after line {wanted}"
        pause = rng.uniform(0, 1.2) * reference.line_seconds
    while run.is_running and time.monotonic() < deadline:
        num = next(changes)
        if what == "in a checkpoint" and num >= wanted // 2 and any(run.folder.glob("checkpoints/.step-*")):
            break
        if what.startswith("after line") and num >= max(wanted, 1):
            break
        time.sleep(0.001 if what == "in a checkpoint" else 0.005)
    time.sleep(pause)
    return what


def kill_any(run: Run, rng: random.Random) -> tuple[str, int] | None:
    """Send a random signal to a process of a random role; None where all have ended."""
    members = run.members()
    if not members:
        return None
    role = rng.choice(sorted(members))
    pid, number = rng.choice(members[role]), rng.choice(SIGNALS)
    if role in ("run", "launcher", "process 0", "process 1") and not catches_signals(pid):
        number = signal.SIGKILL  # of Python itself, no handler is there yet
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return None
    return role, int(number)


# --- a trial ---


def measure(case: Case, folder: Path) -> Reference:
    """Let a run go on to its end."""
    run, log = Run(case.start(folder, is_resumed=False), folder), folder / "metrics.jsonl"
    while run.is_running and not log.exists():
        time.sleep(0.005)
    first = time.monotonic() - run.begun
    assert run.process.wait(ALL_SECONDS) == 0, run.text
    line_seconds = (time.monotonic() - run.begun - first) / max(1, len(log.read_text().splitlines()))
    shutil.rmtree(run.temporary)
    numbers = numbers_of(folder)
    return Reference(numbers, first, len(numbers["metrics"]), line_seconds)


def try_one(name: str, seed: int, num_kills: int, reference: Reference, above: Path) -> Trial:
    """Start, kill, resume, until the run ends by itself, and compare; `num_kills` at most."""
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
                if _follow(run, rng, trial, num_kills, reference):
                    break
                if rng.random() < 0.5:  # else the next run begins while the rest of this one may still be there
                    trial.problems += _left(run)
            if not trial.problems and numbers_of(folder) != reference.numbers:
                found, wanted = numbers_of(folder), reference.numbers
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


def _follow(run: Run, rng: random.Random, trial: Trial, num_kills: int, reference: Reference) -> bool:
    """Kill, and wait for the end; returns whether the run has ended by itself, or something is wrong."""
    kills: list[Kill] = []
    last = time.monotonic()
    while len(trial.kills) < num_kills and run.is_running:
        moment = wait_for_moment(run, rng, reference, is_first=not kills)
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
        if "--resume" in words_in(run) and wanted not in run.text:
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


def words_in(run: Run) -> list[str]:
    return list(run.process.args) if isinstance(run.process.args, list) else []


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
        print(*(f"{name}: {each.first_seconds:.1f} s to the first line" for name, each in references.items()), sep="\n")
        planned, waiting = 0, set()
        while planned < options.times:
            name = rng.choices(names, [CASES[name].share for name in names])[0]
            num = min(rng.choice([1, 2, 2, 3, 4]), options.times - planned)
            waiting.add(pool.submit(try_one, name, options.seed * 100_000 + planned, num, references[name], above))
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
