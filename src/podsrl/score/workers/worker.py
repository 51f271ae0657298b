"""The worker process: it loads functions, then calls them for the jobs that the main process sends, one by one.

It receives jobs over a `Channel`. It sends "ready" once all functions and `Setup.modules` are loaded, then
`[number, seconds, answer]` for each job as soon as it is judged; conversations.py does several jobs at once. It loads
no torch, unless a user's function does.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from podsrl.lib.channel import Channel
from podsrl.score.base import TIME_LIMIT
from podsrl.score.forms import judge_of
from podsrl.score.rewards import ALGEBRA, find_reward
from podsrl.score.workers.jobs import answer_rows
from podsrl.score.workers.tools import find_replies
from podsrl.score.workers.turns import answer_turns
from podsrl.types import Task

_FIRST_TEXTS = (r"\boxed{1+x}", r"\boxed{y \sqrt{2}}", r"\boxed{[1, 2)}")
"""An equal and two unequal answers go through most of the algebra, parts of which load when first used."""
_HIGH_DESCRIPTOR = 500
"""The socket's descriptor is at least this: some functions close, or write to, all the low ones."""
_OOM_SCORE_ADJUSTMENT = "500"
"""Where memory runs out, Linux kills a worker without a limit of its own before it kills the run."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker loads, and its limits."""

    names: tuple[str, ...]
    """Of the functions, as `find_reward` knows them."""
    memory_bytes: int | None
    """Data that the worker may hold; what wants more raises MemoryError. None: no limit of memory or threads, since its
    functions may hold models."""
    modules: tuple[str, ...] = ()
    """What the functions import while they judge: it is imported before, outside of their time limit."""
    cuda_device: int = 0
    """The main process's own GPU, where it has one."""
    what: str = "reward"
    """What the functions are: "reward", "environment" or "tool"."""
    holds: bool = False
    """Whether it is one environment that starts conversations: the worker holds them, and does several jobs at once."""


def load_known(names: tuple[str, ...]) -> None:
    """Load sympy and the grammar before the first completion's time limit begins to run."""
    for name in ALGEBRA.intersection(names):
        function: Any = find_reward(name, option="task.rewards")
        for text in _FIRST_TEXTS:
            function(Task(id="", prompt="", answer="x+1"), text)


def serve(descriptor: int, setup: Setup) -> None:
    """Load what `setup` names and judge until the socket is closed; a high descriptor takes its place."""
    channel, owner = Channel(socket.socket(fileno=_hide(descriptor))), os.getpid()

    def send(value: Any) -> None:
        if os.getpid() != owner:  # a function has forked, and its child returned here too
            os._exit(0)
        channel.send(value)

    _limit_memory(setup)
    try:
        functions = _load(setup)
    except Exception as error:
        send({"failed": f"{type(error).__name__}: {error}"[:2000]})
        return
    send("ready")
    if setup.holds:
        import asyncio

        from podsrl.score.workers.conversations import Talks, serve_talks

        [(name, start)] = functions.items()
        with suppress(ConnectionError):
            asyncio.run(serve_talks(channel, Talks(name, start, send)))
        return
    answer: Callable[..., Any] = answer_rows if setup.what == "reward" else answer_turns
    folder = os.getcwd()
    with suppress(ConnectionError):
        while (frame := channel.receive()) is not None:
            TIME_LIMIT.set(frame.head[1])
            for number, content in enumerate(pickle.loads(frame.body), frame.head[0]):
                start = time.perf_counter()
                body = answer(functions, *content)
                send([number, time.perf_counter() - start, body])
                signal.setitimer(signal.ITIMER_REAL, 0)  # what a function left behind must not reach the next
                os.chdir(folder)


def _load(setup: Setup) -> Mapping[str, Any]:
    if setup.cuda_device:
        import torch

        torch.cuda.set_device(setup.cuda_device)
    for module in setup.modules:
        with suppress(ImportError):  # of another task set of this process; a function that misses one says so
            import_module(module)
    if setup.what != "reward":
        return find_replies(setup.what, setup.names)
    return {name: judge_of(name, find_reward(name, option="task.rewards")) for name in setup.names}


def _hide(descriptor: int) -> int:
    """Move the socket to a high descriptor, which the processes that a function starts do not inherit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = min(_HIGH_DESCRIPTOR, soft // 2) if soft > 0 else _HIGH_DESCRIPTOR
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(descriptor)
    return moved


def _limit_memory(setup: Setup) -> None:
    if setup.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (setup.memory_bytes, setup.memory_bytes))
    elif sys.platform == "linux":
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE_ADJUSTMENT)
