"""vLLM's own processes: they end with this one, and whoever waits for them does not wait for ever."""

from __future__ import annotations

import multiprocessing
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait

_LOOK_SECONDS = 0.5


class Watch:
    """Ends child processes when this process is gone, however it ended, and when they take too long.

    Args:
        pids: of the children.
        wake: called again and again once one of them has ended: it has to end the waits for them.
    """

    def __init__(self, pids: Collection[int], wake: Callable[[], None]) -> None:
        self._children = [child for child in multiprocessing.active_children() if child.pid in set(pids)]
        self._sentinels = [child.sentinel for child in self._children]
        self._wake, self._is_closing = wake, threading.Event()
        self.is_late = False
        """They were ended because they took too long."""
        script = 'trap "" INT TERM HUP; read -r _; kill -KILL "$@"'  # the read ends with this process
        self._shell = subprocess.Popen(
            ["sh", "-c", script, "sh", *map(str, pids)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        threading.Thread(target=self._look, daemon=True, name="vllm-watch").start()

    @property
    def has_ended(self) -> bool:
        """One of them."""
        return bool(wait(self._sentinels, 0))

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
        for child in self._children:
            child.join(max(0.0, deadline - time.monotonic()))
            child.kill()
            child.join()
        self._shell.kill()
        self._shell.communicate()

    def _end_late(self) -> None:
        self.is_late = True
        for child in self._children:
            child.kill()

    def _look(self) -> None:
        while not wait(self._sentinels, _LOOK_SECONDS):
            if self._is_closing.is_set():
                return
        while not self._is_closing.is_set():
            self._wake()
            self._is_closing.wait(_LOOK_SECONDS)


def children() -> set[int]:
    """Process ids of the children that `multiprocessing` has started here."""
    return {child.pid for child in multiprocessing.active_children() if child.pid is not None}
