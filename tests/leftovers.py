"""A pytest plugin: a test that leaves something behind fails by itself, with its name.

What counts: a process that still runs; a file outside the test's own folder; a changed environment, current folder or
handler of a signal. What fixtures of a module or session start stays until they end. Each process of tests has a folder
of its own for temporary files, and adopts orphans, so that no process is lost from sight.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import children

ROOT = Path(__file__).parents[1]
GRACE_SECONDS = 20.0
"""A process that was told to end has so long, on a busy machine."""
STAYING = (b"multiprocessing.resource_tracker",)
"""Words of helpers that Python and the package start once per process. The nursery is the tests' own, and what a test
module keeps running has words in its KEPT_PROCESSES."""
CACHES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
OF_TOOLS = {"__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".triton", "build", "dist"}
"""Folders that Python and tools write wherever they run, also beside the tests: .ci/run makes site and wheel then."""
OF_IMPORTS = ("wandb-artifacts", "wandb-media")
"""Last letters of temporary folders that a package makes once, when it is imported."""
OTHERS = ("pytest-of-",)
"""First letters of what pytest keeps among the temporary files."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)

_WRITES = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}
"""What makes a file, as Python reports it, and which of its arguments is the file."""
_made: list[str] = []
"""Files outside the folders for them that this test has made, or opened to write."""
_temporary: list[str] = []
"""The folder for temporary files; a test or fixture that wants another has it within its own."""
_allowed: list[str] = ["/dev/", "/proc/", "/sys/"]


def pytest_configure(config: pytest.Config) -> None:
    children.adopt_orphans()
    own = tempfile.mkdtemp(prefix="pods-", dir="/tmp")  # short: a socket's name has 107 bytes at most
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = own
    _temporary[:] = [own]
    allow(own, *(os.environ[name] for name in CACHES if name in os.environ))
    if config.option.basetemp:
        allow(str(Path(config.option.basetemp).parent))
    sys.addaudithook(_look)


def allow(*folders: str) -> None:
    """Let tests write into these folders."""
    _allowed.extend(os.path.join(os.path.realpath(folder), "") for folder in folders)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _WRITES:
        return
    path = arguments[_WRITES[event]]
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        return
    if isinstance(path, str | bytes | os.PathLike):
        found = os.path.realpath(os.fsdecode(path))
        is_outside = not os.path.join(found, "").startswith(tuple(_allowed)) and OF_TOOLS.isdisjoint(found.split("/"))
        if is_outside and not os.path.isdir(found):  # to open one is to make an unnamed file in it
            _made.append(found)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    _made.clear()
    variables, folder, handlers = _variables(), _folder(), [signal.getsignal(number) for number in SIGNALS]
    processes, files = _children(), _files()
    yield
    left = [f"the file {path}, outside its folder" for path in dict.fromkeys(_made) if os.path.lexists(path)]
    left += [f"the file {path}" for path in sorted(_files() - files) if path not in _made]
    left += _end_new(processes, (*STAYING, *getattr(request.module, "KEPT_PROCESSES", ())))
    now = _variables()
    if names := sorted(name for name in now.keys() | variables.keys() if now.get(name) != variables.get(name)):
        left.append(f"a changed environment: {', '.join(map(os.fsdecode, names))}")
        for name in names:
            os.environb.pop(name, None)
        os.environb.update({name: variables[name] for name in names if name in variables})
    if (now_in := _folder()) != folder:
        left.append(f"the current folder {now_in}")
        os.chdir(folder)
    for number, handler in zip(SIGNALS, handlers, strict=True):
        if signal.getsignal(number) != handler:
            left.append(f"a handler of {number.name}")
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if not children.adopts_orphans():
        left.append("orphans that another process adopts")
        children.adopt_orphans()
    if left:
        pytest.fail(f"{request.node.nodeid} left behind: {'; '.join(left)}", pytrace=False)


def _variables() -> dict[bytes, bytes]:
    """The environment, but what pytest and the imports of Ray and verl change themselves."""
    found: dict[bytes, bytes] = os.environ._data.copy()  # type: ignore[attr-defined]  # through dict() it takes 50 µs
    for name in (b"PYTEST_CURRENT_TEST", b"RAY_CLIENT_MODE", b"TORCH_CUDA_ARCH_LIST"):
        found.pop(name, None)
    return found


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "that is gone"


def _files() -> set[str]:
    """What lies where tests should leave nothing: among the temporary files, and in the folder of the repository."""
    names = {folder: os.listdir(folder) for folder in (*_temporary, str(ROOT))}
    return {
        f"{folder}/{name}"
        for folder in names
        for name in names[folder]
        if name not in OF_TOOLS and not name.startswith(OTHERS) and not name.endswith(OF_IMPORTS)
    }


def _children() -> set[int]:
    """Process ids of this process's children, and of orphans that it has adopted; none where there is no /proc."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task") if sys.platform == "linux" else ():
        with suppress(OSError), open(f"/proc/self/task/{thread}/children", "rb", buffering=0) as ids:
            found.update(map(int, ids.readall().split()))
    return found


def _end_new(before: set[int], staying: tuple[bytes, ...]) -> list[str]:
    """Wait until all processes but those of before have ended; kill what does not, and say what it was."""
    deadline, left = 0.0, []
    while running := _running(_children() - before, staying):
        if not deadline:
            gc.collect()  # an object that nobody holds any more may have one
            deadline = time.monotonic() + GRACE_SECONDS
        if time.monotonic() < deadline:
            time.sleep(0.01)
            continue
        left += [f"the process {pid} ({words})" for pid, words in running.items()]
        for pid in running:  # what it has started becomes a child of this process, and is the next to be killed
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return left


def _running(processes: set[int], staying: tuple[bytes, ...]) -> dict[int, str]:
    """Those that have not ended, with their words; the others are let go."""
    found = {}
    for pid in processes - children.staying:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if os.waitpid(pid, os.WNOHANG) == (0, 0) and not any(name in words for name in staying):
                found[pid] = words.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return found
