"""`pods reproduce`: a setting of the paper, both arms, drawn over the paper's own curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from podsrl.cli.compare import run_comparison
from podsrl.cli.console import counted, errors, new_folder, output, split_words
from podsrl.cli.dry_run import print_preview
from podsrl.cli.progress import waiting
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError
from podsrl.lib.time_left import time_text


def reproduce(
    context: typer.Context,
    setting: Annotated[str, typer.Argument(help="a, b, c, d or e: a setting of the paper.")],
    seeds: Annotated[int, typer.Option(help="Paired runs per arm; the paper has 10 (a, b, c) or 5 (d, e).")] = 3,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder. If it already holds this reproduction, it resumes."),
    ] = None,
    processes: Annotated[int, typer.Option(help="Processes per run; the paper has 1 (a, b, c) or 8 (d, e).")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print both plans, and train nothing.")] = False,
    json: Annotated[bool, typer.Option(help="Print the result, or both plans, as JSON on stdout.")] = False,
) -> None:
    """Run both arms of a setting of the PODS paper, and draw them over the paper's own curves.

    A value of both arms is set as --section.key=value, a value of one arm as --arms.pods.section.key=value.

    [bold]Examples[/]

      pods reproduce a --dry-run                     what would run
      pods reproduce a --seeds 3 --out runs/paper-a  resumes after an interruption
      pods reproduce d --processes 8                 on eight GPUs
      pods reproduce a --model.path=my-model --stop.seconds=3600
    """
    from podsrl.compare.paper import comparison_of

    name, overrides = split_words(setting, context.args)
    if name is None:
        raise UsageError("pods reproduce wants a setting of the paper, e.g. `pods reproduce a`")
    if processes < 1:
        raise UsageError(f"--processes {processes}: wanted at least 1")
    config = comparison_of(name, num_seeds=seeds, overrides=overrides)
    _say_length(config, processes)
    if dry_run:
        _show_plans(config, processes, json)
    else:
        _run(name, config, out or new_folder(f"paper-{name}"), processes, json)


def _say_length(config: CompareConfig, processes: int) -> None:
    from podsrl.compare.paper import arm_configs

    seconds = next(iter(arm_configs(config).values())).stop.seconds
    each = f"{counted(config.num_seeds, 'seed')} × {len(config.arms)} arms × {time_text(seconds)}"
    total = time_text(config.num_seeds * len(config.arms) * seconds / config.jobs)
    on = f", each by {processes} processes" if processes > 1 else ""
    errors.print(f"{each}{on}: {total} of training, and its evaluations", highlight=False, soft_wrap=True)


def _show_plans(config: CompareConfig, processes: int, as_json: bool) -> None:
    from podsrl.compare.paper import arm_configs
    from podsrl.plan.preview import preview_run

    plans = {arm: preview_run(arm_config, processes) for arm, arm_config in arm_configs(config).items()}
    if as_json:
        output.print_json(data={arm: plan.to_json() for arm, plan in plans.items()})
        return
    for arm, plan in plans.items():
        output.rule(f"{arm}")
        print_preview(plan)


def _run(name: str, config: CompareConfig, folder: Path, processes: int, as_json: bool) -> None:
    from podsrl.compare import runs as comparison
    from podsrl.compare.paper import mark

    comparison.plan(config, folder)  # before anything is written
    comparison.open_folder(config, folder)
    mark(folder, name)
    result = run_comparison(config, folder, processes)

    from podsrl.report.figures.theme import save_png
    from podsrl.report.html import write_report
    from podsrl.report.paper import overlay_figure

    with waiting("drawing the report"):
        picture = save_png(overlay_figure(folder), folder / f"paper-{name}.png")
        report = write_report([folder], folder / "report.html")
    if as_json:
        output.print_json(data=result)
    else:
        _print_table(folder)
    errors.print(f"our curves over the paper's: {picture}\nthe report: {report}", markup=False, soft_wrap=True)


def _print_table(folder: Path) -> None:
    from podsrl.report.numbers import number, percent
    from podsrl.report.paper import reproduced_setting, rows_beside_paper
    from podsrl.report.read import read_comparison

    setting = reproduced_setting(folder)
    if setting is None:
        return
    table = Table(title=f"setting ({setting.name}): {setting.model} on {setting.dataset}")
    for column in ("arm", "", "n → m", "accuracy at the end", "seconds per step", "speed-up at 99 %"):
        table.add_column(column, justify="left" if column in ("arm", "") else "right")
    for row in rows_beside_paper(read_comparison(folder), setting):
        for side, who in enumerate(("ours", "the paper's")):
            table.add_row(
                row.arm if side == 0 else "",
                who,
                f"{row.num_rollouts[side]} → {row.num_kept[side]}",
                percent(row.accuracy[side]),
                number(row.seconds_per_step[side]),
                row.speedup[0].text if side == 0 else f"{row.speedup[1]:.2f}×",
            )
    output.print(table)
