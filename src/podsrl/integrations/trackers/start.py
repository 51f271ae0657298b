"""The run's side: start the trackers' processes, print what they say, and end them within a bound."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from podsrl.config.schema import RunConfig
from podsrl.errors import one_line
from podsrl.lib.callbacks import Say
from podsrl.lib.child import Child, how_it_ended
from podsrl.lib.parent import outside_the_run

END_SECONDS = 60.0
"""How long trackers may take to finish after the run, all at the same time; then they are killed."""
SAID_WHY = 3
"""Exit code of a tracker's process that has said why it ended."""
PATIENCE_SECONDS = 5.0
"""After this long a line says what the run is waiting for."""
FOLDER = "trackers"
Histogram = tuple[Sequence[int], Sequence[float]]
"""Counts of n bins, and their n + 1 edges."""
TEMPORARY = "PODS_TRACKER_TEMPORARY"
"""Environment variable of a tracker's process: its folder for temporary files, which is removed after it. Tools that
are killed leave such files behind."""


@contextmanager
def tracking(config: RunConfig, folder: Path, say: Say) -> Iterator[None]:
    """Run the trackers of `record.trackers` beside the block, and wait for them to finish after it.

    Args:
        folder: of the run; its config.toml and logs are read while they grow.
        say: gets a line where a tracker is switched off, and one with where its run can be seen. It is called
            from other threads.

    Nothing that happens to a tracker raises an exception here.
    """
    trackers = [_Tracker(name, folder, say) for name in config.record.trackers]
    try:
        for tracker in trackers:
            tracker.start()
        yield
    except Exception:
        _end(trackers)
        raise
    except BaseException:  # Ctrl-C before the run handles it, or the second one
        _kill(trackers)
        raise
    _end(trackers)


def _end(trackers: Sequence[_Tracker]) -> None:
    """Let all finish at the same time, and kill those that do not."""
    started = time.monotonic()
    try:
        for tracker in trackers:
            tracker.ask_to_end()
        for tracker in trackers:
            tracker.wait(started + PATIENCE_SECONDS)
        for tracker in trackers:
            tracker.say_if_running()
        for tracker in trackers:
            tracker.wait(started + END_SECONDS)
    finally:
        _kill(trackers)


def _kill(trackers: Sequence[_Tracker]) -> None:
    for tracker in trackers:
        tracker.kill()


class _Tracker:
    """A tracker's process, and a thread that prints what it says."""

    def __init__(self, name: str, folder: Path, say: Say) -> None:
        self._name, self._say, self._log = name, say, folder / FOLDER / f"{name}.log"
        self._is_killed = False
        self._child: Child | None = None
        self._thread = threading.Thread(target=self._listen, name=f"tracker {name}", daemon=True)
        self._temporary = ""

    def start(self) -> None:
        """Start the process; where that fails, say so."""
        folder = str(self._log.parents[1].absolute())
        try:
            self._temporary = tempfile.mkdtemp(prefix="podsrl-tracker-")
            self._log.parent.mkdir(exist_ok=True)
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
            with open(log, "ab") as printed:
                self._child = Child(
                    "podsrl.integrations.trackers.follow:main",
                    self._name,
                    folder,
                    # Without the run's own rendezvous variables, and without GPU memory for its torch.
                    variables=outside_the_run()
                    | {"CUDA_VISIBLE_DEVICES": "", "TMPDIR": self._temporary, TEMPORARY: self._temporary},
                    output=printed,
                    ends_itself=True,
                )
        except OSError as error:
            self._switched_off(f"its process cannot be started: {error}")
            return
        self._thread.start()

    def ask_to_end(self) -> None:
        """Tell the process that the logs are complete."""
        if self._child is not None:
            with suppress(OSError):
                self._child.channel.put("end")

    def wait(self, until: float) -> None:
        """Wait until the process has ended and what it said is printed, at most to a time of the monotonic clock."""
        if self._child is not None:
            self._thread.join(max(0.0, until - time.monotonic()))

    def say_if_running(self) -> None:
        """Say that the run waits for it."""
        if self._child is not None and self._thread.is_alive():
            self._say(f"waiting for tracker {self._name} to finish, at most {END_SECONDS:g} s")

    def kill(self) -> None:
        """Kill the process and its own children if it still runs, and say so."""
        if self._child is not None and self._child.code is None:
            self._is_killed = True
            self._child.kill()
            self._say(
                f"warning: tracker {self._name} did not finish after the run and was ended; what it lacks it gets by "
                f"pods train --resume {shown(self._log.parents[1])}"
            )
        if self._thread.ident is not None:
            self._thread.join(1.0)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _listen(self) -> None:
        assert self._child is not None
        with suppress(OSError, ValueError):  # closed by `kill`
            while (frame := self._child.channel.receive()) is not None:
                self._say(one_line(str(frame.head)))
        code = self._child.wait(END_SECONDS)
        if code is not None and code not in (0, SAID_WHY) and not self._is_killed:
            self._switched_off(f"its process ended: {how_it_ended(code)}")

    def _switched_off(self, why: str) -> None:
        self._say(f"warning: {switched_off(self._name, why, self._log)}")


def switched_off(name: str, why: str, log: Path) -> str:
    """The line for a tracker that gets nothing more until the run is resumed."""
    where = f" ({shown(log)})" if log.exists() else ""
    return f"tracker {name} is switched off: {one_line(why, 300).rstrip('.')}; the run goes on without it{where}"


def shown(path: Path) -> str:
    """A path as a command takes it: from here where it is below here."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)
