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
OF_THE_RUN = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
"""Environment variables of one of the processes that train. A generator's process must not have them: by the last one
a torch.distributed group of its own, such as vLLM makes, would wait for torchrun's store."""
_DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG. It watches the thread that started the child, so start children in a thread that stays."""
_POLL_SECONDS = 0.5


def asked_of_child() -> dict[str, str]:
    """Environment variables for a child that must end with this process."""
    return {PARENT: str(os.getpid())}


def outside_the_run() -> dict[str, str]:
    """This process's environment variables, for a child that is none of the processes that train."""
    return {name: value for name, value in os.environ.items() if name not in OF_THE_RUN}


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
