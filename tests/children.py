"""Processes that a test starts, forked from one that has imported what is slow to import: `Popen` and `run`.

They take what their namesakes of `subprocess` take. What is forked is a command of this interpreter: a module after -m,
a program after -c, or a script. Starting one spares it the imports of torch and transformers, some three seconds of
processor time. Tests of what a fresh interpreter does (its start-up, a signal during imports, what it does not
import) use `subprocess` itself, and so do tests of programs that import neither.
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
from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from threading import Lock
from typing import Any

__all__ = ["DEVNULL", "PIPE", "STDOUT", "CalledProcessError", "CompletedProcess", "Popen", "TimeoutExpired", "run"]

NURSERY = Path(__file__).with_name("nursery.py")
ROOM = "." * 100_000
"""An argument and a variable of the nursery, where a child's own are written for /proc to show."""
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_READ_AT_IMPORT = ("PYTHON", "HF_", "TRANSFORMERS_", "CUDA_")
"""First letters of variables that the nursery has read for good, but for those that are followed."""
_AT_START = dict(os.environ)
"""Of this process, before any test changed it."""
_FOLLOWED = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONBREAKPOINT"}
"""Ray sets the last one where a test imports it, and an interpreter reads it at each breakpoint."""
_USUAL = {
    "executable": None, "preexec_fn": None, "close_fds": True, "shell": False, "process_group": -1,
    "uid": None, "gid": None, "gids": None, "umask": -1,
}  # fmt: skip
_STREAMS = ("p2cread", "c2pwrite", "errwrite")
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PARAMETERS = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`; a command of this interpreter is a fork of the nursery."""

    def _execute_child(self, *values: Any) -> None:
        asked = dict(zip(_PARAMETERS, values, strict=True))
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        if not _is_forked(asked, environment):
            super()._execute_child(*values)  # type: ignore[misc]
            return
        passed = sorted(map(int, asked["pass_fds"]))
        streams = [asked[name] if asked[name] != -1 else own for own, name in enumerate(_STREAMS)]
        request = {
            "words": [os.fspath(word) for word in asked["args"]],
            "folder": os.fspath(asked["cwd"] or os.getcwd()),
            "environment": {os.fspath(name): os.fspath(value) for name, value in environment.items()},
            "session": asked["start_new_session"],
            "ignored": [int(number) for number in _ASKING if signal.getsignal(number) == signal.SIG_IGN],
            "descriptors": [0, 1, 2, *passed],
        }
        self.pid = nursery().fork(request, [*streams, *passed])
        num_forked[0] += 1
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]


def _is_forked(asked: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether it is a command that the nursery does as a fresh interpreter would: its own variables are as there."""
    words = asked["args"]
    return (
        sys.platform == "linux"
        and all(asked.get(name, usual) == usual for name, usual in _USUAL.items())
        and isinstance(words, list | tuple)
        and all(isinstance(word, str | os.PathLike) for word in words)
        and [os.fspath(word) for word in words[:1]] == [sys.executable]
        and _is_known([os.fspath(word) for word in words[1:]])
        and os.path.isdir(asked["cwd"] or ".")
        and _read_at_import(environment) == _read_at_import(_AT_START)
    )


def _is_known(words: Sequence[str]) -> bool:
    kind, *rest = (words[1:] if words[:1] == ["-P"] else words) or ["-"]
    return bool(rest) if kind in ("-c", "-m") else not kind.startswith("-")


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    names = {name for name in environment if name.startswith(_READ_AT_IMPORT)} - _FOLLOWED
    return {name: environment[name] for name in names}


def run(
    words: Sequence[str],
    *,
    input: Any = None,
    capture_output: bool = False,
    check: bool = False,
    timeout: float | None = None,
    **options: Any,
) -> CompletedProcess[Any]:
    """As `subprocess.run`, but a fork of the nursery."""
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    if input is not None:
        options["stdin"] = PIPE
    with Popen(words, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


num_forked = [0]
"""Children so far."""
staying: set[int] = set()
"""Process ids of nurseries, which stay until this process ends."""


class Nursery:
    """This process's own; it ends with it."""

    def __init__(self) -> None:
        adopt_orphans()
        ours, theirs = socket.socketpair()
        fixed = {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "TOKENIZERS_PARALLELISM": "false",
            "PODS_TEST_ROOM": ROOM,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(NURSERY), str(theirs.fileno()), ROOM],
            pass_fds=[theirs.fileno()],
            stdin=DEVNULL,
            env={name: value for name, value in _AT_START.items() if name != "PYTHONPATH"} | fixed,
            start_new_session=True,
        )
        staying.add(self._process.pid)
        theirs.close()
        self._connection, self._lock = ours, Lock()
        atexit.register(self.close)

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Process id of a child of this process."""
        with self._lock:
            try:
                socket.send_fds(self._connection, [b"\n"], list(descriptors))
                self._connection.sendall(json.dumps(request).encode() + b"\n")
                return int(self._connection.recv(32))
            except BaseException as error:  # an answer that is read by nobody would be the next request's
                self._process.kill()
                nursery.cache_clear()
                if isinstance(error, OSError | ValueError):
                    raise RuntimeError(f"the nursery has ended with {self._process.wait()}") from error
                raise

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    return Nursery()


os.register_at_fork(after_in_child=nursery.cache_clear)


def adopt_orphans() -> None:
    """Become the parent of all orphans below this process, as the nursery's children are; only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def adopts_orphans() -> bool:
    """Whether it is; else nobody hears how a child of the nursery ends."""
    if sys.platform != "linux":
        return True
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found))
    return bool(found.value)
