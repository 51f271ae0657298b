"""The picture of `pods watch` in the terminal of the process that trains, or compares."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from podsrl.errors import UsageError

if TYPE_CHECKING:
    from podsrl.report.follow import FollowedRun

LEAST_HEIGHT = 30
"""Lines of a terminal from which on it has room for the picture."""
TICK_SECONDS = 1.0
COST = 100
"""The pause between two looks is at least this many times the processor time of a look: about 1 % of a core."""


class Picture:
    """A `Display` (cli/progress.py) that draws a folder's runs from their logs, and below them what goes on now."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder, self._console, self._note = folder, console, ""
        self._runs: dict[Path, FollowedRun] = {}
        self._lines: list[Text] = []
        self._due = 0.0
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=1, vertical_overflow="crop")

    def __enter__(self) -> Picture:
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._due, self._note = 0.0, ""
        self._live.stop()

    def update(self, done: float, total: float | None, text: str = "") -> None:
        """Report what goes on; how far the run is, its own log says."""
        self._note = text

    def say(self, text: str) -> None:
        """Print a line above the picture."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> Group:
        if time.monotonic() >= self._due:
            begun = time.thread_time()
            with suppress(OSError, UsageError):  # there is no folder yet, or none any more: the trainer's to say
                self._look()
            self._due = time.monotonic() + max(TICK_SECONDS, COST * (time.thread_time() - begun))
        return Group(*self._lines, Text(self._note, "dim", no_wrap=True, overflow="ellipsis"))

    def _look(self) -> None:
        from podsrl.report.follow import FollowedRun, find_runs
        from podsrl.report.terminal.picture import picture

        for path in find_runs(self._folder):
            self._runs.setdefault(path, FollowedRun(path)).poll()
        runs, console = [*self._runs.values()], self._console
        self._lines = picture(runs, console.width, console.height - 2) if runs else []
