"""The report of runs that go on: the page is written again meanwhile, and a browser that shows it loads it again."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from podsrl.errors import UsageError, one_line
from podsrl.report.comparison import is_comparison
from podsrl.report.follow import fingerprint
from podsrl.report.html import check_folders, render_report
from podsrl.report.page import RELOAD_SECONDS, write_page
from podsrl.report.read import find_runs, state_of

LEAST_SECONDS = 3.0
"""Between two drawings."""
COST = 5
"""The pause after a drawing is at least this many times its processor time: at most a fifth of a core."""


class LivePage:
    """The page of `podsrl.report.html.write_report`, as new as its logs.

    Raises:
        UsageError: no folder, one given twice, one that is neither of a run nor of a comparison; `out` is a folder.
    """

    def __init__(self, folders: Sequence[Path], out: Path) -> None:
        check_folders(folders, out)
        self._folders, self._out = folders, out
        self._runs()
        self._seen: object = None
        self.problem = ""
        """Why the page is not as new as its logs; empty where it is."""

    def write(self) -> float:
        """Write the page if a log has changed; returns the seconds until it is worth looking again."""
        begun, self.problem = time.thread_time(), ""
        try:
            runs = self._runs()
            seen = [(state_of(run), fingerprint(run)) for run in runs], [fingerprint(path) for path in self._folders]
            if seen != self._seen:
                write_page(self._out, self._page(is_live=True))
                self._seen = seen
        except (UsageError, OSError) as error:  # a log may be cut back in this moment
            self.problem = one_line(str(error))
            if self._seen is None:
                write_page(self._out, _waiting_page(self.problem))
        return max(LEAST_SECONDS, COST * (time.thread_time() - begun))

    def end(self) -> None:
        """Write the page once more as one that does not load itself again."""
        with suppress(UsageError, OSError):
            write_page(self._out, self._page(is_live=False))

    def _runs(self) -> list[Path]:
        return [run for folder in self._folders for run in find_runs(folder)]

    def _page(self, *, is_live: bool) -> str:
        """A comparison that is not measured yet is shown as its runs."""
        found = [
            path for folder in self._folders for path in ([folder] if is_comparison(folder) else find_runs(folder))
        ]
        if not found:
            raise UsageError("no run has begun yet")
        return render_report(found, is_live=is_live)


def keep_written(folders: Sequence[Path], out: Path, on_ready: Callable[[], None], say: Callable[[str], None]) -> None:
    """Write the page of some folders, and write it again whenever their logs change, until Ctrl-C.

    Args:
        folders: of runs or comparisons.
        on_ready: called when the page is there.
        say: called with each new reason why the page is not as new as the logs.

    Raises:
        UsageError: as `LivePage`.
        OSError: the file cannot be written.
    """
    page = LivePage(folders, out)
    pause, said = page.write(), ""
    on_ready()
    try:
        while True:
            if page.problem != said:
                said = page.problem
                say(said or "the logs can be read again")
            time.sleep(pause)
            pause = page.write()
    finally:
        page.end()


def _waiting_page(reason: str) -> str:
    """What is shown while there is nothing to draw."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="default-src \'none\'"><meta http-equiv="refresh" content="{RELOAD_SECONDS}"><meta name="viewport" '
        'content="width=device-width"><meta name="color-scheme" content="light dark"><title>podsrl report</title>'
        f"<p>{html.escape(reason)}</p></html>"
    )
