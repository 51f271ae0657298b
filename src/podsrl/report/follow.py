"""Runs that go on in another process: `find_runs` gives their folders, `FollowedRun` reads what is new in one.

Reading never touches a run: no lock is taken, no file is written.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from podsrl.errors import UsageError, one_line
from podsrl.lib.logs import LogTail, last_line
from podsrl.report.read import Line, Run, add_lines, is_comparison, read_config
from podsrl.report.unknown import unknown_notes
from podsrl.run.group_log import RecordedGroup, parse_group
from podsrl.run.saving.folder import RunFolder, wanted_run

State = Literal["starting", "training", "stopped", "finished"]
"""Before its first line; a process trains in it; none does, and it could go on; it has reached its end."""

MAX_STEPS = 10_000
"""Newest steps that are kept in memory."""
_READ_BYTES = 4 << 20


def find_runs(path: Path) -> list[Path]:
    """The folder of a run, or those of the runs of a comparison that have begun, perhaps none yet.

    Raises:
        UsageError: `path` is neither.
    """
    if (path / "config.toml").is_file():
        return [path]
    if is_comparison(path) or (path / "compare.toml").is_file():
        return sorted(found.parent for found in path.glob("runs/*/config.toml"))
    problem = "has no config.toml" if path.is_dir() else "is no folder"
    raise UsageError(f"{path} {problem}; {wanted_run(path)}")


def state_of(folder: Path) -> State:
    """What goes on in a run's folder."""
    run = RunFolder(folder)
    is_locked = run.is_locked()
    if run.finished.exists() and not is_locked:
        return "finished"
    if is_locked is False or (is_locked is None and quiet_seconds(folder) > 600):
        return "stopped"
    return "training" if (folder / "metrics.jsonl").exists() else "starting"


def quiet_seconds(folder: Path) -> float:
    """Seconds since a run wrote its newest line, or since it began."""
    log = folder / "metrics.jsonl"
    return max(0.0, time.time() - (log if log.exists() else folder / "config.toml").stat().st_mtime)


class FollowedRun:
    """A run whose log is read as it grows; of many steps the newest are kept."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, one_line(path.name)
        self.state: State = "starting"
        self.quiet_seconds = 0.0
        """Since the newest line."""
        self.run = Run(path=path, config={}, steps=(), evaluations=(), groups=(), notes=(), num_damaged_lines=0)
        """What was read so far; of the recorded groups the newest alone."""
        self._steps: list[Line] = []
        self._evaluations: list[Line] = []
        self._tail = LogTail(path / "metrics.jsonl")
        self._seen: tuple[object, ...] = ()

    def poll(self) -> bool:
        """Read what is new; whether there was something.

        Raises:
            UsageError: a line of the log is whole but no JSON object.
        """
        self.state, self.quiet_seconds = state_of(self.path), quiet_seconds(self.path)
        seen = fingerprint(self.path, "config.toml", "metrics.jsonl", "groups.jsonl")
        if seen == self._seen:
            return False
        self._seen = seen
        if self._tail.is_cut():
            self._steps, self._evaluations, self._tail = [], [], LogTail(self.path / "metrics.jsonl")
        while new := self._tail.new_lines(_READ_BYTES):
            add_lines(new, self._steps, self._evaluations)
            del self._steps[:-MAX_STEPS]
        group, config = self._newest_group(), read_config(self.path)
        self.run = replace(
            self.run,
            config=config,
            notes=unknown_notes(config),
            steps=tuple(self._steps),
            evaluations=tuple(self._evaluations),
            groups=() if group is None else (group,),
        )
        return True

    def _newest_group(self) -> RecordedGroup | None:
        try:
            line = last_line(self.path / "groups.jsonl")
            return None if line is None else parse_group(line)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # of another version
            return None


def fingerprint(folder: Path, *names: str) -> tuple[object, ...]:
    """What changes whenever one of a folder's files does: which file it is, its size and its time."""
    found: list[object] = []
    for name in names:
        try:
            file = (folder / name).stat()
            found.append((file.st_ino, file.st_size, file.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return tuple(found)
