"""Keeps a user's function from stopping, or changing, the process that calls it.

Every exception of such a function is its own failure, SystemExit and KeyboardInterrupt too. A real Ctrl-C or SIGTERM is
recognised by its signal, and stops the process even if the function catches the exception.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM)


class Guard:
    """Surrounds calls of a user's function; puts back the working folder and the handlers of both signals.

    Example:
        >>> with Guard() as guard:
        ...     try:
        ...         raise SystemExit(0)  # as a user's function may
        ...     except BaseException:
        ...         guard.check()  # nobody pressed Ctrl-C
    """

    def __init__(self) -> None:
        self._stop: BaseException | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._folder: str | None = None

    def __enter__(self) -> Guard:
        self._folder = _folder()
        if threading.current_thread() is threading.main_thread():  # only this one gets signals
            for number in _STOPS:
                self._handlers[number] = handler = signal.getsignal(number)
                if callable(handler):
                    signal.signal(number, self._recording(handler))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        if self._folder is not None and _folder() != self._folder:
            with suppress(OSError):
                os.chdir(self._folder)
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise the exception of a real signal, if one came."""
        if self._stop is not None:
            raise self._stop

    def _recording(self, handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def record(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                self._stop = error
                raise

        return record


def _folder() -> str | None:
    """The working folder; None where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
