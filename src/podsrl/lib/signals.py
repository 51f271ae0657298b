"""Signals that ask a process to stop: Ctrl-C, SIGTERM, and SIGHUP, which comes when the terminal is closed.

`leave_on_signal` ends a command from its first instant on. Code that has to save something first handles the signals
itself with `answered_by`. Either way the exit code is 128 + the signal's number: 130, 143 or 129.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_SHOW_CURSOR = b"\x1b[?25h"
_received: list[int] = []
_leaving: list[int] = []


def exit_code() -> int:
    """Exit code of a process that was asked to stop; 130 if no signal is known."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


def is_leaving() -> bool:
    """Whether KeyboardInterrupt was raised to leave the command; a library may have changed the exception."""
    return bool(_leaving)


@contextmanager
def answered_by(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle(number)` in the main thread for each signal that comes while the context is open.

    Other threads get no signals, so there the context does nothing. SIGHUP stays ignored under nohup.
    """

    def answer(number: int, frame: FrameType | None) -> None:
        _take(number)
        handle(number)

    in_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in STOPPING if not _is_nohup(number)] if in_main else []
    previous = {number: signal.signal(number, answer) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def pausing(settle: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Give a function that stops this process, after `settle()`, where SIGTSTP (Ctrl-Z) has come since its last call.

    SIGCONT lets the process go on. The function does nothing in other threads, which get no signals, where SIGTSTP is
    ignored, and where this process leads the session of its terminal, so that no shell could let it go on.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        with suppress(OSError):
            if os.isatty(2):
                os.write(2, b"\nstopping after this step; fg lets it go on\n")

    def pause() -> None:
        if asked:
            settle()
            asked.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    is_asked = threading.current_thread() is threading.main_thread() and _may_stop()
    previous = signal.signal(signal.SIGTSTP, ask) if is_asked else None
    try:
        yield pause
    finally:
        if is_asked:
            signal.signal(signal.SIGTSTP, previous)


def _may_stop() -> bool:
    leads = os.isatty(2) and os.getsid(0) == os.getpid()
    return signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN and not leads


def leave_on_signal() -> None:
    """End the command with one line: by KeyboardInterrupt, or at once where the exception could be lost.

    It could be lost in the middle of an import, where libraries turn exceptions into others; in a finaliser, which must
    not raise; and when it was raised already. Signals that the system ignores for this process stay ignored.
    """
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)
    others = sys.unraisablehook

    def never_lost(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            leave_at_once()
        others(unraisable)

    sys.unraisablehook = never_lost
    atexit.register(_keep_exit_code)  # the first to be registered is the last to be called


def _keep_exit_code() -> None:
    """Keep the exit code from here to the end of the process.

    Started with -m, Python ends itself by SIGINT if the KeyboardInterrupt was raised in `exec` of a text, as libraries
    call it to make classes, even where the exception was caught. And a process that has stopped in good order loses its
    handlers before it ends: another signal would kill it then.
    """
    if is_leaving():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code())
    if _received:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)


def leave_at_once() -> NoReturn:
    """End this process with one line, without Python's own clean-up."""
    with suppress(OSError):
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + b"interrupted\n")
    os._exit(exit_code())


def _leave(number: int, frame: FrameType | None) -> None:
    is_first = not _received
    _take(number)
    if not is_first or _is_importing(frame):
        leave_at_once()
    interrupt(number)


def interrupt(number: int) -> NoReturn:
    """Leave the command by KeyboardInterrupt, with the exit code of the signal `number`; for handlers of signals."""
    _leaving.append(number)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


def _take(number: int) -> None:
    _received.append(number)
    if number == signal.SIGHUP:
        _let_go_of_terminal()


def _let_go_of_terminal() -> None:
    """Redirect output of a closed terminal: writing to it is an error, which must not prevent a run's checkpoint."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):  # isatty says no once the terminal is gone
                os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _is_nohup(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
