"""Runs that go on in another process, or in this one: their logs are read again whenever they have changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from podsrl.report.read import Run, find_runs, quiet_seconds, read_run, state_of

_FILES = ("config.toml", "metrics.jsonl", "groups.jsonl", "finished.json", "compare.json")


class Followed:
    """The run of a folder, or the runs of a comparison, which begin one after another.

    Raises:
        UsageError: the folder is neither.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: dict[Path, Run] = {}
        self._seen: dict[Path, object] = {}
        find_runs(path)

    @property
    def runs(self) -> list[Run]:
        """As they were at the last call of `poll`; of the recorded groups each has the newest alone."""
        return list(self._runs.values())

    def poll(self) -> bool:
        """Read what is new; whether there was something.

        Raises:
            UsageError: the folder is gone, or a line of a log is whole but no JSON object.
        """
        is_new = False
        for path in find_runs(self.path):
            state, quiet, seen = state_of(path), quiet_seconds(path), fingerprint(path)
            if seen == self._seen.get(path):
                self._runs[path] = replace(self._runs[path], state=state, quiet_seconds=quiet)
            else:
                self._runs[path], self._seen[path] = read_run(path, only_newest_group=True), seen
                is_new = True
        return is_new


def fingerprint(folder: Path) -> tuple[object, ...]:
    """What changes whenever a log of a run or comparison does: which files there are, their sizes and their times."""
    found: list[object] = []
    for name in _FILES:
        try:
            file = (folder / name).stat()
            found.append((file.st_ino, file.st_size, file.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return tuple(found)
