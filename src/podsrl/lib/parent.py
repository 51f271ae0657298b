"""Child processes that end with their parent, however the parent ends.

The parent puts `asked_of_child()` into the child's environment; the command line calls `end_with_parent` first of all.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PARENT = "PODS_PARENT"
"""Environment variable of a child: the process id of its parent."""
_DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG. It watches the thread that started the child, so start children in a thread that stays."""
_POLL_SECONDS = 0.5


def asked_of_child() -> dict[str, str]:
    """Environment variables for a child that must end with this process."""
    return {PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """End with the parent, if it asked for that; children of this process are not asked."""
    parent = os.environ.pop(PARENT, "")
    if parent.isdecimal():
        end_with(int(parent))


def end_with(parent: int) -> None:
    """End this process when its parent is gone.

    Linux kills it even if it hangs in native code. Elsewhere a thread checks twice per second, and also ends the
    process group that this process leads. If the parent has another process id now, it is gone already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="parent-watch").start()
    if os.getppid() != parent:
        _end()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    _end()


def _end() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
