"""Commands that can be killed: forked by the nursery, or started by the command line as a user would."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from benchmarks import command
from podsrl.errors import PodsError
from podsrl.lib.below import below
from podsrl.lib.parent import asked_of_child

MARKER = "PODS_BENCHMARK_KILLS"
"""Environment variable of all that is started, so that what is left of it is found."""
START_SECONDS = 900.0
"""How long the nursery may take to warm up."""


class Child(Protocol):
    """A command that runs in a process group of its own."""

    pid: int

    def ended(self, seconds: float) -> int | None:
        """Its exit code, negative for a signal, if it ends within these seconds."""


class Nursery:
    """The process of `benchmarks.kills.nursery`; a context manager. PodsError: it does not start, or has ended."""

    def __init__(self, scratch: Path, warm_up: Sequence[str]) -> None:
        self._scratch, self._text = scratch, b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kills.nursery", str(scratch / "warm"), *warm_up],
            cwd=command.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(scratch / "nursery.txt").open("wb"),
            env=environment(scratch),
        )
        self.pid = self._process.pid
        if self.line(START_SECONDS) != "ready":
            self._fail()

    def fork(self, words: Sequence[str], output: Path) -> Forked:
        """Start `pods` with these words."""
        assert self._process.stdin is not None
        request = {"words": list(words), "output": str(output)}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        pid = self.line(START_SECONDS)
        if pid is None:
            self._fail()
        return Forked(self, int(str(pid)))

    def line(self, seconds: float) -> str | None:
        """Its next answer, if it comes within these seconds. PodsError: it has ended."""
        assert self._process.stdout is not None
        pipe, deadline = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._text:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            if not (more := os.read(pipe, 1 << 12)):
                self._fail()
            self._text += more
        found, _, self._text = self._text.partition(b"\n")
        return found.decode()

    def close(self) -> None:
        """End it, and what it has forked."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()

    def _fail(self) -> None:
        said = (self._scratch / "nursery.txt").read_text(errors="replace").strip()
        raise PodsError(f"the process that forks does not answer: {said[-300:]}")

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Forked:
    """A child of the nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid

    def ended(self, seconds: float) -> int | None:
        code = self._nursery.line(seconds)
        return None if code is None else int(code)


class Fresh:
    """`python -m podsrl.cli` with these words, which imports everything itself."""

    def __init__(self, words: Sequence[str], output: Path, scratch: Path) -> None:
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "podsrl.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment(scratch),
                process_group=0,
            )
        self.pid = self._process.pid

    def ended(self, seconds: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None


def environment(scratch: Path) -> dict[str, str]:
    """Of all that is started; temporary files lie in a folder of their own."""
    return {**os.environ, **asked_of_child(), MARKER: str(scratch), "TMPDIR": str(scratch / "temporary")}


def kill(pid: int) -> None:
    """SIGKILL to a process and its group."""
    for send in (os.killpg, os.kill):  # the group is made a moment after the process
        with suppress(ProcessLookupError):
            send(pid, signal.SIGKILL)


def cpu_seconds(pid: int, *, has_children: bool) -> float:
    """Processor time of a process (and of those below it) since it started; 0 where it has ended."""
    found = 0.0
    for each in (pid, *(below(pid) if has_children else ())):
        with suppress(OSError, ValueError, IndexError):
            found += float(Path(f"/proc/{each}/schedstat").read_text().split()[0]) / 1e9
    return found


def left_alive(scratch: Path, but: int) -> list[int]:
    """Processes that were started here and still live, except the nursery."""
    marker, found = f"{MARKER}={scratch}".encode(), []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and int(name) != but and marker in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
    return found
