"""Rewards that do what they should not, each by the name that stands as the completion. Any other text: its length."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

SLEEP = f"import time; time.sleep(600)  # {os.environ.get('HOSTILE_MARK')}"


class Final(BaseException):
    pass


class Unshowable(Exception):
    def __str__(self) -> str:
        os.abort() if os.getppid() == 0 else sys.exit(0)


class Touchy:
    shape = ()

    def item(self) -> float:
        sys.exit(0)


class BadFloat(float):
    def __float__(self) -> float:
        raise KeyboardInterrupt


class Boom:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["HOSTILE_MARK"],)


def _raise(error: BaseException) -> None:
    raise error


def _recurse() -> None:
    _recurse()


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]


def _write(data: bytes, descriptors: Any) -> float:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.write(descriptor, data)
    return 1.0


def _close(descriptors: Any) -> float:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return 1.0


def _hang() -> None:
    while True:
        time.sleep(60)


def _spin() -> None:
    while True:
        pass


def _deaf() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    _hang()


def _child(*, session: bool = False, env: dict[str, str] | None = None) -> float:
    subprocess.Popen([sys.executable, "-S", "-c", SLEEP], start_new_session=session, env=env)
    return 2.0


def _fork(then: Callable[[], Any]) -> float:
    if os.fork() == 0:
        then()
        os._exit(0)
    return 2.0


def _daemon() -> None:
    os.setsid()
    _fork(_hang)


def _fork_and_return() -> float:
    os.fork()
    return 2.0


def _bomb(depth: int = 5) -> float:
    for _ in range(depth):
        _fork(lambda: None) if os.fork() else os.setsid()
    _hang()
    return 1.0


def _alarm() -> float:
    signal.signal(signal.SIGALRM, lambda *_: _raise(Final("late")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return 2.0


def _handlers() -> float:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return 2.0


def _threads() -> float:
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(600,)).start()
    return 2.0


def _print() -> float:
    with open(os.devnull, "w") as file:
        for _ in range(1 << 12):
            print("x" * 1024, file=file)
        print("some of it is seen")
    return 2.0


def _closed() -> float:
    sys.stdout.close()
    return 2.0


def _limits() -> float:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return 2.0


def _then(do: Callable[[], Any], value: float = 2.0) -> float:
    do()
    return value


ODD: dict[str, Callable[[], Any]] = {
    # raises: invalid
    "raise ValueError": lambda: _raise(ValueError("no")),
    "raise SystemExit": lambda: sys.exit(),
    "raise SystemExit 0": lambda: sys.exit(0),
    "raise SystemExit text": lambda: sys.exit("text"),
    "raise GeneratorExit": lambda: _raise(GeneratorExit()),
    "raise StopIteration": lambda: _raise(StopIteration(5)),
    "raise CancelledError": lambda: _raise(asyncio.CancelledError()),
    "raise Final": lambda: _raise(Final()),
    "raise Unshowable": lambda: _raise(Unshowable()),
    "raise long": lambda: _raise(ValueError("x" * 10_000_000)),
    "raise surrogates": lambda: _raise(ValueError("\ud83d\ude00\ud800\n\0")),
    "raise recursion": _recurse,
    # odd values: invalid
    "return text": lambda: "1.0",
    "return None": lambda: None,
    "return nan": lambda: math.nan,
    "return inf": lambda: math.inf,
    "return huge": lambda: 10**5000,
    "return dict": lambda: {"reward": 1},
    "return complex": lambda: 1j,
    "return Touchy": Touchy,
    "return generator": lambda: (x for x in (1, 2)),
    "return deep": lambda: eval("[" * 50 + "]" * 50),
    # odd deeds with a value: valid
    "do Fraction": lambda: Fraction(2),
    "do child": _child,
    "do child in a session": lambda: _child(session=True),
    "do child without environment": lambda: _child(session=True, env={}),
    "do fork": lambda: _fork(_hang),
    "do daemon": lambda: _fork(_daemon),
    "do fork and return": _fork_and_return,
    "do alarm": _alarm,
    "do handlers": _handlers,
    "do threads": _threads,
    "do print": _print,
    "do limits": _limits,
    "do chdir": lambda: _then(lambda: os.chdir("/")),
    "do environment": lambda: _then(lambda: os.environ.update(PATH="", LD_PRELOAD="")),
    "do close stdout": _closed,
    "do close low": lambda: 1 + _close(range(3, 51)),
    "do write low": lambda: 1 + _write(b"garbage\n" * 9, range(3, 51)),
    # ends or stops the worker: invalid
    "end KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "end BadFloat": lambda: BadFloat(1.0),
    "end exit": lambda: os._exit(0),
    "end exit 7": lambda: os._exit(7),
    "end abort": os.abort,
    "end segmentation": lambda: ctypes.string_at(0),
    "end kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "end group": lambda: os.killpg(0, signal.SIGKILL),
    "end parent": lambda: _then(lambda: os.kill(os.getppid(), signal.SIGKILL)) and _hang(),
    "end parent's group": lambda: _then(lambda: os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)) and _hang(),
    "end stop parent": lambda: _then(lambda: os.kill(os.getppid(), signal.SIGSTOP)) and _hang(),
    "end daemon and exit": lambda: _then(lambda: _fork(_daemon)) and os._exit(0),
    "end hang": _hang,
    "end spin": _spin,
    "end hang in C": lambda: ctypes.CDLL(None).pause(),
    "end stop": lambda: os.kill(os.getpid(), signal.SIGSTOP) or _hang(),
    "end deaf": _deaf,
    "end bomb": _bomb,
    "end close all": lambda: _close(_descriptors()) and _hang(),
    "end write pickle": lambda: _write(pickle.dumps(Boom()), _descriptors()) and _hang(),
    "end write lines": lambda: _write(b'"ready"\n[0,0.0,1.0]\n{"failed":"no"}\n', _descriptors()) and _hang(),
    "end write much": lambda: _write(b"[" * 200_000, _descriptors()) and _hang(),
    "end write deep": lambda: _write(b"[" * 50_000 + b"\n", _descriptors()) and _hang(),
    "end read": lambda: [os.read(descriptor, 1 << 20) for descriptor in _descriptors()] and _hang(),
    "end memory": lambda: float(len([0] * (1 << 29))),
}
VALID = [name for name in ODD if name.startswith("do ")]


def row(task: object, completion: str) -> Any:
    """The row form."""
    return ODD[completion]() if completion in ODD else float(len(completion))


def batch(completions: list[str]) -> Any:
    """TRL's form: the whole list, or what the odd one among them does."""
    return [row(None, text) for text in completions]
