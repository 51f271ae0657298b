"""The process between the main process and one reward worker: starts workers, and leaves nothing of theirs running.

It loads what the known rewards need and then forks, so that a worker that was killed is replaced within milliseconds.
What a worker leaves behind when its own parent ends becomes the keeper's child. When the worker ends, or the main
process does, even by SIGKILL, the keeper kills all that is left below it.

Goes in, over a socket: a byte with the descriptor of a new worker's own socket. Comes out: the exit code of each
worker, negative where a signal ended it, as a line. The keeper ends with the socket.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from podsrl.lib.parent import end_with
from podsrl.score.process_tree import adopt_orphans, kill_below
from podsrl.score.worker import Setup, load_known, serve

_LOOK_SECONDS = 1.0
"""Between two looks at whether the parent still lives; its children may hold the socket open."""


def main() -> None:
    """Run a keeper; its arguments are the socket's descriptor, the parent's process id, and the setup as JSON."""
    control, parent, setup = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), json.loads(sys.argv[3])
    sys.stdout = sys.stderr  # what a reward prints must not mix with what a command prints as its result
    keeper = Keeper(control, parent, Setup(**setup | {"names": tuple(setup["names"])}))
    try:
        keeper.run()
    finally:
        kill_below(os.getpid())
        os._exit(0)


class Keeper:
    """See the module."""

    def __init__(self, control: socket.socket, parent: int, setup: Setup) -> None:
        self._control, self._parent, self._setup = control, parent, setup
        self._worker: int | None = None
        self._bell, self._rope = os.pipe()
        for end in (self._bell, self._rope):
            os.set_blocking(end, False)

    def run(self) -> None:
        """Serve until the main process has closed the socket, or has ended."""
        adopt_orphans()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)
        with suppress(Exception):  # a worker meets it again, and says so
            load_known(self._setup.names)
        while os.getppid() == self._parent:
            ready, _, _ = select.select([self._control.fileno(), self._bell], [], [], _LOOK_SECONDS)
            if self._bell in ready:
                os.read(self._bell, 1 << 12)
            self._reap()
            if self._control.fileno() in ready:
                order, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                if not order:
                    return
                self._start(descriptors[0])

    def _start(self, descriptor: int) -> None:
        keeper = os.getpid()
        self._worker = os.fork()
        if self._worker:
            os.close(descriptor)
            return
        code = 1
        try:
            end_with(keeper)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)  # what a function sends to its own process group does not reach the keeper
            self._control.close()
            for end in (self._bell, self._rope):
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
                    self._control.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
