"""Run a comparison: `jobs` runs train at any time, and the runs of one seed take turns, a slice of training each.

A shared machine is seldom equally fast for long: arms that trained one after the other would also be compared by what
else it had to do meanwhile. So a run whose slice is over stops between two steps, where no step counts the pause, and
the run of its seed that has trained least goes on.

A run that stops keeps its memory, if there is room for one more. Otherwise, and on a GPU, whose memory each run takes
whole, it saves a checkpoint and ends, and is resumed for its next slice; since loading takes a while, such a slice is
longer.

Every run is a process of its own (`pods train`, or `pods launch` with several processes), so that arms share nothing. A
comparison that was stopped resumes: finished runs stay as they are, and unfinished ones are resumed.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from podsrl.compare.runs import Member
from podsrl.config.load import dump
from podsrl.errors import PodsError, UsageError
from podsrl.lib.child import Process, last_line
from podsrl.lib.logs import write_atomically
from podsrl.lib.machine import available_bytes, host_bytes, resident_bytes
from podsrl.lib.signals import answered_by

STOP_SECONDS = 60.0
"""A run that is asked to stop saves a checkpoint; one that takes longer than this is killed."""
STARTS_IN_SLICE = 10
"""A run ends with its slice only where it has trained so many times as long as its start took, and has as much left."""
ROOM = 1.5
"""Of its own memory: what has to be free for a run to stay in memory."""
_LOOK_SECONDS, _TICK_SECONDS = 0.1, 0.5


class RunFailed(PodsError):
    """A run of the comparison ended with an error."""


class _Run:
    """A process that trains a run, or stands still until its next slice."""

    def __init__(self, member: Member, num_processes: int) -> None:
        self.member = member
        self.has_to_end = False
        """With its slice: it was asked to."""
        self._began, self._is_paused = time.time(), False
        self._since = member.seconds  # that it had trained when its slice began
        self._may_stay = sys.platform == "linux" and num_processes == 1 and member.is_on_cpu
        self.process = _spawn(member, num_processes)

    @property
    def is_resting(self) -> bool:
        return self._is_paused and self.process.is_stopped

    def go_on(self) -> None:
        """Begin another slice."""
        self._since, self._is_paused = self.member.seconds, False
        self.process.send_signal(signal.SIGCONT)

    def give_way(self, seconds: float, runs: Iterable[_Run]) -> None:
        """Stop, or end, where the slice is over: it has trained for so many seconds, and another start is worth it."""
        now = self.member.seconds
        trained, left = now - self._since, self.member.config.stop.seconds - now
        if self._is_paused or self.has_to_end or trained < seconds:
            return
        if self._may_stay and _room(runs) >= ROOM * resident_bytes(self.process.pid):
            self._is_paused = True
            self.process.send_signal(signal.SIGTSTP)
        elif min(trained, left) >= STARTS_IN_SLICE * self._start_seconds():
            self.has_to_end = True
            self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Ask it to save a checkpoint and end, whether it stands still or not."""
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGCONT)

    def _start_seconds(self) -> float:
        """From the start of its process until it could train."""
        return (self.member.path / "starts.jsonl").stat().st_mtime - self._began


def run_all(
    members: Sequence[Member],
    jobs: int,
    on_tick: Callable[[], None],
    num_processes: int = 1,
    slice_seconds: float = 0.0,
) -> bool:
    """Run what is not finished yet; `on_tick` is called a few times per second, to redraw.

    Args:
        members: of `podsrl.compare.runs.plan`, seed by seed.
        jobs: runs that train at the same time.
        num_processes: of each run.
        slice_seconds: training seconds of a slice; 0: each run trains to its end.

    Returns:
        True when all are finished, False after Ctrl-C, SIGTERM or SIGHUP (the runs have saved checkpoints).
    Raises:
        RunFailed: a run ended with an error; the others were stopped with a checkpoint.
    """
    left = [member for member in members if not member.is_finished]
    runs: dict[Member, _Run] = {}
    ticked = 0.0
    try:
        with answered_by(_interrupt):
            while left:
                _take_turns(left, runs, jobs, slice_seconds, num_processes)
                time.sleep(_LOOK_SECONDS)
                if time.monotonic() - ticked >= _TICK_SECONDS:
                    on_tick()
                    ticked = time.monotonic()
                _take_away(left, runs)
    except KeyboardInterrupt:
        return False
    finally:
        _stop(runs.values())
        on_tick()
    return True


def _take_turns(
    left: Sequence[Member], runs: dict[Member, _Run], jobs: int, slice_seconds: float, num_processes: int
) -> None:
    """Let runs give way to others of their seed, and begin slices while fewer than `jobs` train."""
    training = {member for member, run in runs.items() if not run.is_resting}
    waiting = [member for member in left if member not in training]
    seeds = {member.seed for member in waiting}
    if slice_seconds > 0:
        for member in training:
            if member.seed in seeds:
                runs[member].give_way(slice_seconds, runs.values())
    for _ in range(jobs - len(training)):
        if not waiting:
            return
        member = min((one for one in waiting if one.seed == waiting[0].seed), key=lambda one: one.seconds)
        waiting.remove(member)
        if member in runs:
            runs[member].go_on()
        else:
            runs[member] = _Run(member, num_processes)


def _take_away(left: list[Member], runs: dict[Member, _Run]) -> None:
    """Forget what has ended; what is finished is left no more."""
    for member, run in list(runs.items()):
        if (code := run.process.code) is not None:
            del runs[member]
            if not (run.has_to_end and code == 128 + signal.SIGTERM):
                _check(member, code)
            if member.is_finished:
                left.remove(member)


def _room(runs: Iterable[_Run]) -> int:
    """Bytes that are free on the machine, and in the container whose limit the runs share."""
    return min(available_bytes(), host_bytes() - sum(resident_bytes(run.process.pid) for run in runs))


def _interrupt(number: int) -> None:
    """A signal to this process stops its runs too, and they save checkpoints."""
    raise KeyboardInterrupt


def _stop(runs: Iterable[_Run]) -> None:
    """SIGTERM, which a run answers with a checkpoint, then patience, then SIGKILL."""
    ending = list(runs)
    for run in ending:
        run.end()
    for run in ending:
        run.process.wait(STOP_SECONDS)
        run.process.kill()


def _spawn(member: Member, num_processes: int) -> Process:
    """Start a run, or resume it; what it prints goes to its log."""
    verb = ["train"] if num_processes == 1 else ["launch", "--processes", str(num_processes)]
    command = [sys.executable, "-P", "-m", "podsrl.cli", *verb, "--plain"]
    if (member.path / "config.toml").exists():
        command += ["--resume", str(member.path)]
    else:
        file = member.path.with_name(f"{member.path.name}.toml")
        write_atomically(file, dump(member.config))
        command += [str(file), "--out", str(member.path)]
    with member.log.open("ab") as log:
        return Process(command, output=log)


def _check(member: Member, code: int) -> None:
    if code != 0 or not member.is_finished:
        reason = last_line(member.log) or "no output"
        kind = UsageError if code == 2 else RunFailed
        raise kind(f"run {member.path.name} ended with exit code {code}: {reason} (see {member.log})")
