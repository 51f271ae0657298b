"""`pods report` and `pods doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from podsrl.cli.console import errors, output, print_paragraph, say
from podsrl.cli.progress import waiting
from podsrl.config.bounds import TRACKERS
from podsrl.config.files import recipe_names
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


def doctor(
    all_of_it: Annotated[
        bool, typer.Option("--all", help="Also the rule of matrix products, recipes, task sets and rewards.")
    ] = False,
) -> None:
    """Show what this machine offers, and what podsrl would use.

    [bold]Examples[/]

      pods doctor           versions, devices and memory
      pods doctor --all     also the recipes, task sets and rewards by name

    If you report a fault, add what this command prints.
    """
    from importlib.metadata import version

    import torch

    from podsrl.lib.machine import configure_threads, hardware_line
    from podsrl.lib.matmul import choose
    from podsrl.run.before.checks import is_installed
    from podsrl.run.before.matmul import describe_matmul
    from podsrl.score import REWARDS
    from podsrl.tasks import TASKS

    small = configure_threads(0, 0)
    on = "on a GPU" if torch.cuda.is_available() else "small models, since there is no GPU"
    print_paragraph(f"podsrl {version('podsrl')} can train here: {on}.", style="bold")
    say(f"machine     {hardware_line()}")

    def offered(name: str, extra: str) -> str:
        return name if is_installed(name) else f"{name} (pip install 'podsrl[{extra}]')"

    say(f"generators  engine, vLLM servers, {', '.join(offered(name, name) for name in ('vllm', 'ray'))}")
    say(f"trackers    {', '.join(offered(name, 'trackers') for name in TRACKERS)}")
    if not all_of_it:
        say("threads, matrix products, recipes, task sets and rewards: --all")
        return
    say(f"threads     a small model trains on {small}; transformers {version('transformers')}")
    say(f"products    of float32 matrices: {describe_matmul('auto', choose())}")
    say(f"recipes     {', '.join(recipe_names())}")
    say(f"task sets   {', '.join(TASKS)}")
    say(f"rewards     {', '.join(REWARDS)}")
