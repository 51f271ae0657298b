"""vLLM's own processes: the terminal's signals do not reach them, they end with this one, and nobody waits for ever.

Ctrl-C, and a terminal that is closed, signal all processes of a group. What generates has to live until the run has
saved: so each child leads a session of its own, and with it a group.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from multiprocessing import util
from typing import Any, TypeVar

_LOOK_SECONDS = 0.5
_TELL_SECONDS = 10.0
"""What waits for a child that fails has so long to say why."""
_END_ALL = 'while read -r pid; do all="$all -$pid"; done; kill -s KILL -- $all'  # it has read all when the parent ends
T = TypeVar("T")


class Watch:
    """Starts child processes, and ends them and all below them when this one is gone and when they take too long."""

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._is_closing = threading.Event()
        self.is_late = False
        """They were ended because they took too long."""
        self._shell = subprocess.Popen(
            ["sh", "-c", _END_ALL], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    @property
    def has_ended(self) -> bool:
        """One of the children."""
        return any(_status(pid) is not None for pid in self._pids)

    def start(self, make: Callable[[], T]) -> T:
        """What `make` returns, which starts children by `multiprocessing`; where it fails, they are ended.

        It runs in another thread, and this one waits: a signal that raises an exception here is heard at once, whatever
        `make` does with exceptions, and so is the end of a child that `make` does not look at.

        Raises:
            RuntimeError: a child has failed.
        """
        found: Future[T] = Future()
        threading.Thread(target=self._make, args=(make, found), daemon=True, name="vllm-start").start()
        try:
            while not wait([found], _LOOK_SECONDS).done:
                if any(map(_status, self._pids)) and not wait([found], _TELL_SECONDS).done:
                    raise RuntimeError("one of its own processes has failed")
            return found.result()
        except BaseException:
            self._kill()
            self.end(0.0)
            raise

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Call this again and again once a child has ended: it has to end the waits for them."""
        threading.Thread(target=self._look, args=(wake,), daemon=True, name="vllm-watch").start()

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """End the children if this takes longer."""
        timer = threading.Timer(seconds, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def end(self, seconds: float = 20.0) -> None:
        """Wait until the children have ended, but not longer than this; then end them."""
        self._is_closing.set()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(_status(pid) is None for pid in self._pids):
            time.sleep(0.05)
        self._kill()
        for child in multiprocessing.active_children():
            if child.pid in self._pids:
                child.join()
        self._shell.kill()
        self._shell.communicate()

    def _make(self, make: Callable[[], T], found: Future[T]) -> None:
        spawn, util.spawnv_passfds = util.spawnv_passfds, self._spawn
        try:
            found.set_result(make())
        except BaseException as error:
            found.set_exception(error)
        finally:
            util.spawnv_passfds = spawn

    def _spawn(self, path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        """As `multiprocessing` starts a process, but in a session of its own."""
        if self._is_closing.is_set():
            raise RuntimeError("nobody waits for it any more")
        child = subprocess.Popen(args, executable=path, pass_fds=passfds, start_new_session=True)
        child.returncode = 0  # `multiprocessing` waits for it, not this object
        if "--multiprocessing-fork" in args:  # else it removes what the others leave in shared memory, behind them
            self._pids.append(child.pid)
            assert self._shell.stdin is not None
            self._shell.stdin.write(b"%d\n" % child.pid)
            self._shell.stdin.flush()
        return child.pid

    def _kill(self) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _end_late(self) -> None:
        self.is_late = True
        self._kill()

    def _look(self, wake: Callable[[], None]) -> None:
        while not self._is_closing.wait(_LOOK_SECONDS):
            if self.has_ended:
                wake()


def _status(pid: int) -> int | None:
    """Exit code of a child that has ended, or the signal that ended it; None: it runs."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # it was waited for
        return 0
    return None if found is None else found.si_status
