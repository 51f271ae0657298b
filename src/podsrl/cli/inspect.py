"""`pods report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from podsrl.cli.console import errors, output, say
from podsrl.cli.progress import waiting
from podsrl.errors import UsageError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or of one comparison; or one file of completions (pods eval --out)."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The HTML file; default: report.html in the first folder, or FILE.html."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Write the page again while runs go on; a browser loads it again by itself.")
    ] = False,
) -> None:
    """Write a page about runs, as one HTML file: curves, time by stage, tokens and recorded rollouts.

    [bold]Examples[/]

      pods report runs/mine
      pods report runs/a runs/b --out both.html    two runs, side by side
      pods report runs/mine --live                 while the run goes on
      pods report answers.jsonl                    the answers of pods eval

    For a file of completions, the page shows each question with its completions, correct or wrong.

    With --live, the command writes the page again and again while runs go on, until you press Ctrl-C.
    """
    if live:
        _follow(runs, out or runs[0] / "report.html")
        return
    if any(run.is_file() for run in runs):
        from podsrl.report.completions import write_completions_report

        if len(runs) > 1:
            raise UsageError(f"pods report {' '.join(map(str, runs))}: wanted folders of runs, or one file alone")
        with waiting("reading the completions and drawing the page"):
            page = write_completions_report(runs[0], out or runs[0].with_suffix(".html"))
        output.print(str(page), markup=False, soft_wrap=True)
        return
    from podsrl.report.html import write_report

    page = write_report(runs, out or runs[0] / "report.html")
    output.print(str(page), markup=False, soft_wrap=True)


def _follow(runs: list[Path], out: Path) -> None:
    if files := [run for run in runs if run.is_file()]:
        raise UsageError(f"{files[0]}: --live wants folders of runs; for a file of completions leave --live out")
    from podsrl.report.live import keep_written

    os.nice(10)  # drawing yields to a run that trains on the same cores
    keep_written(runs, out, lambda: say(f"{out}   (Ctrl-C ends it; the runs go on)"), lambda text: say(text, errors))
