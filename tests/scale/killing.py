"""A run whose processes can be told apart, found again wherever they are, and killed at random."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from running import environment

import children
from podsrl.lib.parent import asked_of_child
from waiting import is_alive, processes, variables_of, words_of

MARK = "PODS_KILLED_RUN"
"""Environment variable by which the processes of a run are found."""
ALL_SECONDS = 600.0
"""Bound of a whole run."""
OF_RAY = ("Ray's keeper", "Ray's own")
"""Roles of processes without which Ray ends the run by itself, in its own words."""
SIGNALS = [signal.SIGKILL] * 7 + [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]

# --- processes ---


def tree(root: int) -> set[int]:
    """A process and all below it that have not ended."""
    with suppress(psutil.NoSuchProcess):
        return set(filter(is_alive, (root, *(child.pid for child in psutil.Process(root).children(recursive=True)))))
    return set()


def role_of(pid: int) -> str:
    """What a process is in its run."""
    words = words_of(pid)
    line = " ".join(words)
    if "generators.child" in line:
        return "generator"
    if "ray_cluster" in line:
        return "Ray's keeper"
    if "podsrl.cli" in words and ("train" in words or "launch" in words):
        rank = variables_of(pid).get("RANK")
        return "launcher" if "launch" in words else f"process {rank}" if rank is not None else "run"
    if "supervisor" in line:
        return "reward worker"
    if words and words[0].startswith("ray::"):
        return "Ray's actor" if "Service" in words[0] else "idle worker of Ray"
    if "/ray/" in line:
        return "Ray's own"
    return f"other ({Path(words[0]).name if words else '?'})"


def catches_signals(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM, as a Python command has soon after its start."""
    with suppress(OSError):
        mask = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return mask is not None and bool(int(mask[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of all orphans below, so that they are found also where they lost their environment.

    Afterwards it is as before: tests adopt what they fork (`children.adopt_orphans`).
    """
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(37, ctypes.byref(before))
    prctl(36, 1)
    try:
        yield
    finally:
        prctl(36, before.value)


# --- a run ---


class Run:
    """A command that runs, with what it prints and a folder of its own for temporary files."""

    def __init__(self, arguments: list[str], folder: Path, module: str = "podsrl.cli") -> None:
        self.arguments, self.folder, self.mark = arguments, folder, os.urandom(8).hex()
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
        self.process = children.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=children.DEVNULL,
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
            if words_of(pid):  # else it ends just now
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
        ours = re.compile(r"plasma|ray|torch_")  # generators have memory without a name; "podsrl-" is of servers
        return [f"/dev/shm/{name}" for name in names if ours.match(name) and not is_open_anywhere(name)]


def is_open_anywhere(name: str) -> bool:
    """Whether any process has it open: other programs of this machine have theirs."""
    for pid in processes():
        with suppress(OSError):
            opened = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            if f"/dev/shm/{name}" in opened or f"/dev/shm/{name}" in Path(f"/proc/{pid}/maps").read_text():
                return True
    return False


@dataclass(frozen=True)
class Pace:
    """Of a run that nobody killed."""

    first_seconds: float
    """To its first line."""
    num_lines: int
    line_seconds: float


def changes_of(log: Path) -> Iterator[int]:
    """How often a log has changed since the first call, each time that one looks."""
    size, num = -1, -1
    while True:
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            size, num = now, num + 1
        yield num


def wait_for_moment(run: Run, rng: random.Random, pace: Pace, *, is_first: bool) -> str:
    """Wait for a random moment, or for the end of the run, whichever comes first; says which moment it is."""
    kind, pause = rng.random(), 0.0
    changes, wanted = changes_of(run.folder / "metrics.jsonl"), rng.randrange(pace.num_lines + 1)
    if not is_first:
        deadline, what = time.monotonic() + rng.uniform(0, 1.5), "soon after the last"
    elif kind < 0.3:
        deadline, what = run.begun + rng.uniform(0.02, 1.1) * pace.first_seconds, "at its start"
    elif kind < 0.5:
        deadline, what, pause = run.begun + ALL_SECONDS, "in a checkpoint", rng.uniform(0, 0.03)
    else:
        deadline, what = run.begun + ALL_SECONDS, f"after line {wanted}"
        pause = rng.uniform(0, 1.2) * pace.line_seconds
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
    members = {role: pids for role, pids in run.members().items() if role not in OF_RAY}
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
