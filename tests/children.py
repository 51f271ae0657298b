"""Processes that a test starts, forked from one that has imported what is slow to import: `Popen` and `run`.

They take what their namesakes of `subprocess` take, and a command of this interpreter: a module after -m, a program
after -c, or a script. Starting one costs a tenth of the processor time of a fresh interpreter that imports torch and
transformers. Tests of what a fresh interpreter does (its start-up, a signal during imports, what it does not import)
use `subprocess` itself, and so do tests of programs that import neither.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
NURSERY = Path(__file__).with_name("nursery.py")
ROOM = "." * 100_000
"""An argument and a variable of the nursery, where a child's own are written for /proc to show."""
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER = 36
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PARAMETERS = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`, but a fork of the nursery."""

    def _execute_child(self, *values: Any) -> None:
        asked = dict(zip(_PARAMETERS, values, strict=True))
        words = [os.fspath(word) for word in asked["args"]]
        for name, wanted in {"shell": False, "preexec_fn": None, "pass_fds": (), "close_fds": True}.items():
            if asked[name] != wanted:
                raise ValueError(f"{name} = {asked[name]!r}: a forked child has {wanted!r}; use subprocess")
        if words[0] != sys.executable:
            raise ValueError(f"{words[0]} is not {sys.executable}: use subprocess")
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        if differing := {name for name in environment.keys() | os.environ.keys() if _is_differing(name, environment)}:
            raise ValueError(f"{sorted(differing)} are for a fresh interpreter: use subprocess")
        streams = [
            theirs if theirs != -1 else own
            for own, theirs in enumerate((asked["p2cread"], asked["c2pwrite"], asked["errwrite"]))
        ]
        request = {
            "parent": os.getpid(),
            "words": words,
            "folder": os.fspath(asked["cwd"] or os.getcwd()),
            "environment": {os.fspath(name): os.fspath(value) for name, value in environment.items()},
            "session": asked["start_new_session"],
            "ignored": [
                number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_IGN
            ],
        }
        self.pid = nursery().fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]


def _is_differing(name: str, environment: Mapping[str, str]) -> bool:
    is_read_at_start = name.startswith("PYTHON") and name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return is_read_at_start and environment.get(name) != os.environ.get(name)


def run(
    words: Sequence[str],
    *,
    capture_output: bool = False,
    check: bool = False,
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`, but a fork of the nursery."""
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    with Popen(words, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Nursery:
    """This process's own; it ends with it."""

    def __init__(self) -> None:
        adopt_orphans()
        ours, theirs = socket.socketpair()
        fixed = {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(NURSERY), str(theirs.fileno()), ROOM],
            pass_fds=[theirs.fileno()],
            stdin=DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | fixed,
            start_new_session=True,
        )
        self.pid = self._process.pid
        theirs.close()
        self._connection = ours
        atexit.register(self.close)

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Process id of a child of this process."""
        socket.send_fds(self._connection, [b"\n"], list(streams))
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        answer = self._connection.recv(32)
        if not answer:
            raise RuntimeError(f"the nursery has ended with {self._process.wait()}")
        return int(answer)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    return Nursery()


def adopt_orphans() -> None:
    """Become the parent of all orphans below this process, as the nursery's children are."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
