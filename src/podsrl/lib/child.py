"""Child processes: how each is started, talked to, waited for and ended, with all that it has started itself.

A child leads a session of its own, so that Ctrl-C in the terminal reaches its parent alone. `Process` runs a command;
`Child` runs a function of this package, and both talk over a `Channel`.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from podsrl.errors import one_line
from podsrl.lib.below import adopt_orphans, kill_below
from podsrl.lib.channel import Channel, Frame, Malformed
from podsrl.lib.imports import load
from podsrl.lib.parent import asked_of_child, end_with_parent

_GONE_SECONDS = 5.0
"""How long a killed process may take to be gone."""
_TAIL_BYTES = 1 << 14


class Lost(Exception):
    """A child has ended, or does not answer; the message is one line that says how."""


class Process:
    """A command in a process of its own, which ends when nobody holds this object any more.

    `kill` ends everything below it too. Where it ends by itself, its session ends with it; a `Child` that is not killed
    from outside also takes along what has left its session.

    Args:
        variables: its environment; None: this process's.
        output: where it prints to, as `subprocess.Popen` takes it; None: to where this process does.
        ends_itself: it notices the end of this process, and ends. Otherwise the system kills it together with the
            thread that started it, so that has to be one that stays; the command calls `end_with_parent`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        output: int | IO[bytes] | None = None,
        ends_itself: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._popen = subprocess.Popen(
            command,
            env={**(os.environ if variables is None else variables), **({} if ends_itself else asked_of_child())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=pass_fds,
        )
        self._finalizer = weakref.finalize(self, _kill, self._popen, os.getpid())

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative where a signal ended it; None while it runs."""
        if self._has_ended():
            self.kill()
        return self._popen.returncode

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still by SIGSTOP; False where the system does not say."""
        with suppress(ChildProcessError, AttributeError):  # it has ended; macOS, before Python 3.13
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def wait(self, seconds: float) -> int | None:
        """Wait until it has ended, at most so long; gives `code`."""
        deadline = time.monotonic() + seconds
        while not self._has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.code

    def send_signal(self, number: int) -> None:
        """Send it a signal; without effect where it has ended."""
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and all that it started; without effect in a fork of this process, and after its end."""
        self._finalizer()

    def _has_ended(self) -> bool:
        """It keeps its process id until `kill`, so that nothing else is taken for it."""
        if self._popen.returncode is not None:
            return True
        if not hasattr(os, "waitid"):  # of macOS, before Python 3.13
            return self._popen.poll() is not None
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True


class Child(Process):
    """A process that runs a function of this package, with a `Channel` to here.

    Args:
        function: "module:function", or "/path/of/script.py:function"; it gets the channel and the arguments, and may
            return an exit code. What it raises is printed, and the code is 1.
        arguments: what JSON holds.
    """

    def __init__(
        self,
        function: str,
        *arguments: Any,
        variables: Mapping[str, str] | None = None,
        output: int | IO[bytes] | None = None,
        ends_itself: bool = False,
    ) -> None:
        ours, theirs = socket.socketpair()
        start = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; from podsrl.lib.child import main; main()"
        with theirs:
            super().__init__(
                [sys.executable, "-P", "-c", start, function, str(theirs.fileno()), json.dumps(arguments)],
                variables=variables,
                output=output,
                ends_itself=ends_itself,
                pass_fds=[theirs.fileno()],
            )
        self.channel = Channel(ours)

    def kill(self) -> None:
        super().kill()
        self.channel.close()

    def ask(self, head: Any = None, body: bytes = b"", *, seconds: float) -> Frame:
        """Send a message and wait for the next one that comes.

        After any exception the child has ended: its answer would be taken for that to the next message.

        Raises:
            Lost: it has ended, or does not read or answer within so many seconds.
        """
        frame, why = None, "it closed its connection"
        try:
            self.channel.send(head, body, seconds=seconds)
            frame = self.channel.receive(seconds)
        except TimeoutError:
            why = f"no answer within {seconds:g} s"
        except Malformed as error:
            why = f"it sent {error}"
        except OSError:
            pass  # it is closed
        except BaseException:
            self.kill()
            raise
        if frame is None:
            raise self.lost(why)
        return frame

    def lost(self, reason: str = "it closed its connection") -> Lost:
        """How it was lost: how it ended, or the reason where it has not. Nothing of it runs afterwards."""
        code = self.wait(0.5)  # a closed connection comes just before the end
        self.kill()
        return Lost(reason if code is None else how_it_ended(code))


def how_it_ended(code: int) -> str:
    """An exit code for messages.

    Example:
        >>> how_it_ended(3), how_it_ended(-9)
        ('exit code 3', 'killed by SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    known = {int(number): number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"


def last_line(printed: Path | IO[bytes]) -> str:
    """The last line of what a process printed, which is its error; "" where there is none."""
    try:
        if isinstance(printed, Path):
            with printed.open("rb") as file:
                return last_line(file)
        size = os.fstat(printed.fileno()).st_size
        tail = os.pread(printed.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
    except (OSError, ValueError):  # there is no such file, or it is closed
        return ""
    return one_line(next((line for line in reversed(tail.splitlines()) if line.strip()), ""))


def main() -> None:
    """In the child: run the function that the command line names."""
    end_with_parent()
    name, descriptor, arguments = sys.argv[1:]
    os.set_inheritable(int(descriptor), False)
    adopt_orphans()
    channel, code = Channel(socket.socket(fileno=int(descriptor)), takes_descriptors=True), 1
    try:
        code = _function(name)(channel, *json.loads(arguments)) or 0
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    kill_below(os.getpid())
    os._exit(code)  # without waiting for threads


def _function(name: str) -> Any:
    module, _, function = name.rpartition(":")
    if module.endswith(".py"):
        return runpy.run_path(module)[function]
    load(module)
    return getattr(sys.modules[module], function)


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner or process.returncode is not None:
        return
    kill_below(process.pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_SECONDS)
