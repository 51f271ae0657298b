"""The process between the main process and one reward worker: starts workers, and kills all that they leave running.

It loads what the known rewards need and then forks, so that a worker that was killed is replaced within milliseconds.
It adopts the orphans of its workers. When a worker ends, or the main process does, even by SIGKILL, the supervisor
kills every process below itself.

For each worker the main process sends a message with the descriptor of the worker's own socket; the answer is the
worker's exit code, negative where a signal ended it. The supervisor ends when its channel is closed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from podsrl.lib.below import kill_below
from podsrl.lib.channel import Channel
from podsrl.lib.parent import end_with
from podsrl.score.sandbox.process import FOLDER
from podsrl.score.workers.worker import Setup, load_known, serve

_PARENT_CHECK_SECONDS = 1.0
"""Between two checks that the parent still lives: its children may hold the socket open."""


def main(control: Channel, parent: int, setup: dict[str, Any]) -> None:
    """Run a supervisor for the main process of that process id."""
    sys.stdout = sys.stderr  # what a reward prints must not mix with what a command prints as its result
    Supervisor(control, parent, Setup(**setup)).run()


class Supervisor:
    """Described in the module's docstring; `control` is the channel to the main process, `parent` that one's id."""

    def __init__(self, control: Channel, parent: int, setup: Setup) -> None:
        self._control, self._parent, self._setup = control, parent, setup
        self._worker: int | None = None
        self._folder = os.environ[FOLDER]
        self._wake_receiver, self._wake_sender = os.pipe()  # SIGCHLD writes into it, so that `select` returns
        for end in (self._wake_receiver, self._wake_sender):
            os.set_blocking(end, False)

    def run(self) -> None:
        """Serve until the main process has closed the channel, or has ended."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_sender, warn_on_full_buffer=False)
        with suppress(Exception):  # a worker meets the same error, and reports it
            load_known(self._setup.names)
        with suppress(EOFError, ConnectionError):
            while os.getppid() == self._parent:
                ends = self._control.fileno(), self._wake_receiver
                ready, _, _ = select.select(ends, [], [], _PARENT_CHECK_SECONDS)
                if self._wake_receiver in ready:
                    os.read(self._wake_receiver, 1 << 12)
                self._reap()
                if self._control.fileno() in ready:
                    for frame in self._control.read():
                        assert frame.descriptor is not None
                        self._start(frame.descriptor)
        kill_below(os.getpid())
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, descriptor: int) -> None:
        supervisor = os.getpid()
        self._worker = os.fork()
        if self._worker:
            os.close(descriptor)
            return
        code = 1
        try:
            end_with(supervisor)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)  # what a function sends to its own process group does not reach the supervisor
            self._control.close()
            for end in (self._wake_receiver, self._wake_sender):
                os.close(end)
            serve(descriptor, self._setup)
            code = 0
        finally:
            os._exit(code)  # without waiting for a function's threads

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._worker:
                    self._worker = None
                    kill_below(os.getpid())
                    for path in Path(self._folder).glob("*") if self._folder else ():
                        shutil.rmtree(path, ignore_errors=True)
                    self._control.send(os.waitstatus_to_exitcode(status))
