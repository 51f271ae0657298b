"""`pods watch`: a run, or the runs of a comparison, as they go on in another process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podsrl.cli.console import output, say
from podsrl.cli.picture import COST, TICK_SECONDS
from podsrl.cli.progress import LINE_SECONDS, waiting
from podsrl.errors import UsageError

if TYPE_CHECKING:
    from podsrl.report.follow import FollowedRun

APPEAR_SECONDS = 20.0
"""How long a folder may take to become that of a run."""
BETWEEN_RUNS_SECONDS = 600.0
"""How long the next run of a comparison may take to appear; loading a large model takes minutes."""


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of a comparison.")],
    once: Annotated[bool, typer.Option("--once", help="Print what there is now, and end.")] = False,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Print a line every ten seconds instead of a picture, as without a terminal."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what there is now as JSON, and end.")] = False,
) -> None:
    """Watch a run that another process trains: curves, speed, time left, warnings and answers.

    [bold]Examples[/]

      pods watch runs/mine               follow a run, or all runs of a comparison
      pods watch runs/mine --once        print one picture
      pods watch runs/mine --json        print the same numbers for a script

    The command only reads. Ctrl-C ends it and leaves the run alone; otherwise it ends when the run does.
    """
    if sum((once, plain, json)) > 1:
        raise UsageError("pods watch: --once, --plain and --json exclude each other; give one")
    watched = _Watched(run, 0.0 if once or json else APPEAR_SECONDS)
    if once or json:
        watched.poll()
        _print_now(watched.runs, json)
    elif plain or not output.is_terminal:
        _follow_in_lines(watched)
    else:
        _follow_in_picture(watched)


class _Watched:
    """The runs in a folder; those of a comparison appear one after another."""

    def __init__(self, path: Path, patience: float) -> None:
        from podsrl.report.follow import find_runs

        self._path, self._find, self._comparison = path, find_runs, path / "compare.toml"
        self._runs: dict[Path, FollowedRun] = {}
        with waiting(f"waiting {patience:g} s at most for a run in {path}") if patience else nullcontext():
            self._wait(time.monotonic() + patience)

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                self._find(self._path)
                return
            except UsageError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    @property
    def runs(self) -> list[FollowedRun]:
        return list(self._runs.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come, unless someone resumes."""
        is_whole = not self._comparison.exists() or (self._path / "compare.json").exists()
        return is_whole and bool(self._runs) and all(run.state == "finished" for run in self.runs)

    @property
    def is_left(self) -> bool:
        """Whether no process trains any more; a terminal waits for a resume, a script does not."""
        states = {run.state for run in self.runs}
        if self._comparison.exists() and states <= {"finished"}:  # the next run has no folder yet
            quiet = [run.quiet_seconds for run in self.runs]
            return min(quiet, default=time.time() - self._comparison.stat().st_mtime) > BETWEEN_RUNS_SECONDS
        return bool(states) and states <= {"finished", "stopped"}

    def poll(self) -> bool:
        """Read what is new; whether there was something."""
        from podsrl.report.follow import FollowedRun

        found = self._find(self._path)
        for path in found:
            self._runs.setdefault(path, FollowedRun(path))
        num_changed = sum(run.poll() for run in self.runs)
        return num_changed > 0


def _print_now(runs: Sequence[FollowedRun], as_json: bool) -> None:
    from podsrl.report.terminal.picture import picture
    from podsrl.report.terminal.standing import as_json as described

    if as_json:
        output.print_json(data=[described(run) for run in runs])
    elif runs:
        for line in picture(runs, output.width, None):
            output.print(line, soft_wrap=True)
    else:
        say("no run has begun yet")


def _follow_in_lines(watched: _Watched) -> None:
    from podsrl.report.terminal.standing import plain_line

    states: dict[Path, str] = {}
    watched.poll()
    if not watched.runs:
        say("no run has begun yet")
    while True:
        is_new = watched.poll()
        for run in watched.runs:
            if is_new or run.state != states.get(run.path):
                states[run.path] = run.state
                say(plain_line(run))
        if watched.is_over or watched.is_left:
            return
        time.sleep(LINE_SECONDS)


def _follow_in_picture(watched: _Watched) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from podsrl.report.terminal.picture import picture

    with Live(console=output, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            begun = time.process_time()
            watched.poll()
            runs = watched.runs
            lines = picture(runs, output.width, output.height - 1) if runs else [Text("no run has begun yet")]
            live.update(Group(*lines), refresh=True)
            if watched.is_over:
                return
            time.sleep(max(TICK_SECONDS, COST * (time.process_time() - begun)))
