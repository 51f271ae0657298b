"""A process that has imported what is slow to import, and forks from itself what tests start: see children.py.

It imports nothing of the package, so each child imports today's source. A request is a line of JSON, with the child's
standard streams as descriptors beside it; the answer is the child's process id. A child is forked twice, so that it
becomes a child of the tests' process, which adopts orphans. It looks like a fresh process also from outside: its
command line and environment are those of the request.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

IMPORTED = (
    "torch", "torch.distributed", "torch.nn.attention", "transformers", "transformers.generation", "safetensors.torch",
    "transformers.models.qwen2.modeling_qwen2", "transformers.models.qwen2.tokenization_qwen2", "peft", "numpy.random",
    "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto", "pydantic", "typer",
    "rich.console", "rich.live", "rich.progress", "rich.table", "jinja2", "psutil", "tomli_w", "multiprocessing",
)  # fmt: skip

Request = dict[str, Any]


def serve(connection: socket.socket) -> Request | None:
    """Fork a child for each request until the connection is closed; in a child, return its request."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    if (num_threads := len(os.listdir("/proc/self/task"))) != 1:
        sys.exit(f"the process that forks has {num_threads} threads, wanted 1")
    while True:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 253)  # Linux sends no more at once
        if not descriptors:
            return None
        request: Request = json.loads(_line(connection))
        theirs, ours = os.pipe()
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            if pid := os.fork():
                os.write(ours, b"%d\n" % pid)
                os._exit(0)
            while os.getppid() == middle:
                os.sched_yield()
            connection.detach()
            _become(request, descriptors)
            return request
        os.waitpid(middle, 0)  # from now on the child is one of the tests' process, which may wait for it
        os.close(ours)
        if not (answer := os.read(theirs, 32)):
            sys.exit("no child could be forked")
        connection.sendall(answer)
        for descriptor in (theirs, *descriptors):
            os.close(descriptor)


def _line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        found += connection.recv(1 << 20)
    return found


def _become(request: Request, descriptors: Sequence[int]) -> None:
    """Take the request's descriptors, folder, environment, session and signals."""
    wanted = request["descriptors"]
    above = max(*wanted, *map(int, os.listdir("/proc/self/fd"))) + 1  # out of the way of all of them
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
    os.closerange(3, above)
    for number, copy in zip(wanted, copies, strict=True):
        os.dup2(copy, number)
        os.close(copy)
    if request["session"]:
        os.setsid()
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request["folder"])
    os.environ.clear()  # every variable gets a place of its own, so that the first ones' may be written over
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # it was found by the nursery's own variables
    _show(request["words"], request["environment"])
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    sys.modules["torch"].set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))


def _show(words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Put command line and environment where /proc finds them: over those that this process was started with."""
    with open("/proc/self/stat", encoding="utf-8") as stat:
        places = [int(field) for field in stat.read().rpartition(")")[2].split()[45:49]]
    for start, end, texts in (
        (places[0], places[1], words),
        (places[2], places[3], [f"{name}={value}" for name, value in variables.items()]),
    ):
        data = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - start - 1]
        ctypes.memmove(start, data.ljust(end - start, b"\0"), end - start)


def run(request: Request) -> None:
    """Do what the interpreter would with these words."""
    _, *words = request["words"]
    own = [path for path in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]
    is_safe = words[0] == "-P"
    kind, *rest = words[1:] if is_safe else words
    first = [] if is_safe else ["" if kind == "-c" else os.getcwd() if kind == "-m" else os.path.dirname(kind)]
    sys.path[:] = [*first, *own, *sys.path]
    sys.orig_argv = list(request["words"])
    if kind == "-c":
        main = types.ModuleType("__main__")
        sys.modules["__main__"], sys.argv = main, ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


def end_as_interpreter(request: Request) -> NoReturn:
    """Run the request, and end with its exit code, but leave the memory to the system: to free it takes 0.3 s."""
    code, is_interrupted = 0, False
    try:
        run(request)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if not isinstance(ended.code, int | None):
            print(ended.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code, is_interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        end_as_interpreter(asked)
