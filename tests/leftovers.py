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
STAYING = (b"multiprocessing.resource_tracker", b"nursery.py", b"render_worker.py")
"""Words of helpers that Python, the tests and the package start once per process."""
CACHES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "VLLM_CACHE_ROOT")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)

_opened: list[str] = []
"""Files outside the folders for them that this test has opened to write."""
_allowed: list[str] = ["/dev/", "/proc/", "/sys/"]


def pytest_configure(config: pytest.Config) -> None:
    children.adopt_orphans()
    own = tempfile.mkdtemp(prefix="pods-", dir="/tmp")  # short: a socket's name has 107 bytes at most
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = own
    allow(
        own, *(os.environ[name] for name in ("XDG_CACHE_HOME", "MPLCONFIGDIR", "VLLM_CACHE_ROOT") if name in os.environ)
    )
    if config.option.basetemp:
        allow(str(Path(config.option.basetemp).parent))
    sys.addaudithook(_look)


def allow(*folders: str) -> None:
    """Let tests write into these folders."""
    _allowed.extend(os.path.join(os.path.realpath(folder), "") for folder in folders)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open":
        return
    path, _, flags = arguments
    is_named = isinstance(path, str | bytes | os.PathLike) and isinstance(flags, int)
    if is_named and flags & (os.O_WRONLY | os.O_RDWR):
        found = os.path.realpath(os.fsdecode(path))
        if not found.startswith(tuple(_allowed)) and "/__pycache__/" not in found and "/.hypothesis/" not in found:
            _opened.append(found)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    _opened.clear()
    variables, folder, handlers = dict(os.environ), os.getcwd(), [signal.getsignal(number) for number in SIGNALS]
    processes, files = _children(), _files()
    yield
    left = [f"the file {path}, outside its folder" for path in dict.fromkeys(_opened) if os.path.isfile(path)]
    left += [f"the file {path}" for path in sorted(_files() - files)]
    left += _end_new(processes)
    now = dict(os.environ)
    now.pop("PYTEST_CURRENT_TEST", None), variables.pop("PYTEST_CURRENT_TEST", None)
    if names := sorted(name for name in now.keys() | variables.keys() if now.get(name) != variables.get(name)):
        left.append(f"a changed environment: {', '.join(names)}")
        os.environ.clear()
        os.environ.update(variables)
    if os.getcwd() != folder:
        left.append(f"the current folder {os.getcwd()}")
        os.chdir(folder)
    for number, handler in zip(SIGNALS, handlers, strict=True):
        if signal.getsignal(number) != handler:
            left.append(f"a handler of {number.name}")
            signal.signal(number, handler)
    if left:
        pytest.fail(f"{request.node.nodeid} left behind: {'; '.join(left)}", pytrace=False)


def _files() -> set[str]:
    """What lies where tests should leave nothing: among the temporary files, and in the folder of the repository."""
    temporary = {os.path.join(tempfile.gettempdir(), name) for name in os.listdir(tempfile.gettempdir())}
    return {path for path in temporary if "pytest-of-" not in path} | {str(ROOT / name) for name in os.listdir(ROOT)}


def _children() -> set[int]:
    """Process ids of this process's children, and of orphans that it has adopted."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):
            found |= set(map(int, Path(f"/proc/self/task/{thread}/children").read_bytes().split()))
    return found


def _end_new(before: set[int]) -> list[str]:
    """Wait until all processes but those of before have ended; kill what does not, and say what it was."""
    if _running(_children() - before):
        gc.collect()  # an object that nobody holds any more may have one
    deadline = time.monotonic() + GRACE_SECONDS
    while (running := _running(_children() - before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in running:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [f"the process {pid} ({words})" for pid, words in running.items()]


def _running(processes: set[int]) -> dict[int, str]:
    """Those that have not ended, with their words; the others are let go."""
    found = {}
    for pid in processes:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if words and not any(name in words for name in STAYING):
                found[pid] = words.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
            elif not words:  # a zombie has none
                os.waitpid(pid, os.WNOHANG)
    return found
