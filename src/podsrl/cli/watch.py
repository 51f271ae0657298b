"""`pods watch`: a run, or the runs of a comparison, as they go on in another process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from podsrl.cli.console import output, say
from podsrl.cli.progress import COST, LINE_SECONDS, TICK_SECONDS, waiting
from podsrl.errors import UsageError

if TYPE_CHECKING:
    from podsrl.report.follow import Followed
    from podsrl.report.read import Run

APPEAR_SECONDS = 20.0
"""How long a folder may take to become that of a run."""
BETWEEN_RUNS_SECONDS = 600.0
"""How long the next run of a comparison may take to appear; loading a large model takes minutes."""
NO_RUN = "no run has begun yet"


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
    followed = _found(run, 0.0 if once or json else APPEAR_SECONDS)
    followed.poll()
    if once or json:
        _print_now(followed.runs, json)
    elif plain or not output.is_terminal:
        _follow_in_lines(followed)
    else:
        _follow_in_picture(followed)


def _found(path: Path, patience: float) -> Followed:
    """The runs in a folder, which may take some seconds to become that of a run."""
    from podsrl.report.follow import Followed

    deadline = time.monotonic() + patience
    with waiting(f"waiting {patience:g} s at most for a run in {path}") if patience else nullcontext():
        while True:
            try:
                return Followed(path)
            except UsageError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)


def _is_over(followed: Followed) -> bool:
    """Whether nothing more will come, unless someone resumes."""
    is_whole = not (followed.path / "compare.toml").exists() or (followed.path / "compare.json").exists()
    return is_whole and bool(followed.runs) and all(run.state == "finished" for run in followed.runs)


def _is_left(followed: Followed) -> bool:
    """Whether no process trains, though there is more to do."""
    comparison, states = followed.path / "compare.toml", {run.state for run in followed.runs}
    if comparison.exists() and states <= {"finished"}:  # the next run has no folder yet
        quiet = [run.quiet_seconds for run in followed.runs]
        return min(quiet, default=time.time() - comparison.stat().st_mtime) > BETWEEN_RUNS_SECONDS
    return bool(states) and states <= {"finished", "stopped"}


def _print_now(runs: Sequence[Run], as_json: bool) -> None:
    from podsrl.report.picture import picture
    from podsrl.report.standing import as_json as described

    if as_json:
        output.print_json(data=[described(run) for run in runs])
    elif runs:
        for line in picture(runs, output.width, None):
            output.print(line, soft_wrap=True)
    else:
        say(NO_RUN)


def _follow_in_lines(followed: Followed) -> None:
    from podsrl.report.standing import plain_line

    states: dict[Path, str] = {}
    if not followed.runs:
        say(NO_RUN)
    is_new = True
    while True:
        for run in followed.runs:
            if is_new or run.state != states.get(run.path):
                states[run.path] = run.state
                say(plain_line(run))
        if _is_over(followed) or _is_left(followed):
            return
        time.sleep(LINE_SECONDS)
        is_new = followed.poll()


def _follow_in_picture(followed: Followed) -> None:
    from podsrl.report.picture import picture

    with Live(console=output, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            runs = followed.runs
            lines = picture(runs, output.width, output.height - 1) if runs else [Text(NO_RUN)]
            live.update(Group(*lines), refresh=True)
            if _is_over(followed):
                return
            begun = time.process_time()
            time.sleep(TICK_SECONDS)
            followed.poll()
            time.sleep(COST * (time.process_time() - begun))
