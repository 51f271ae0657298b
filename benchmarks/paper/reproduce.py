"""A setting of the PODS paper, both arms on several seeds, drawn over the paper's own curves.

    python -m benchmarks reproduce a --seeds 3 --out runs/paper-a      resumes after an interruption
    python -m benchmarks reproduce d --processes 8                     on eight GPUs
    python -m benchmarks reproduce a --model.path=my-model --stop.seconds=3600

A value of both arms is set as --section.key=value, a value of one arm as --arms.pods.section.key=value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks import command
from benchmarks.paper.settings import comparison_of, mark
from podsrl.cli.console import counted, errors, new_folder, output, say
from podsrl.errors import UsageError
from podsrl.lib.time_left import time_text


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("reproduce", __doc__)
    parser.add_argument("setting", choices=("a", "b", "c", "d", "e"))
    parser.add_argument("--seeds", type=int, default=3, help="paired runs per arm; the paper has 10 (a, b, c) or 5")
    parser.add_argument("--out", type=Path, help="output folder; if it holds this reproduction, it resumes")
    parser.add_argument("--processes", type=int, default=1, help="per run; the paper has 1 (a, b, c) or 8 (d, e)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options, overrides = parser.parse_known_args(arguments)
    if options.processes < 1:
        raise UsageError(f"--processes {options.processes}: wanted at least 1")
    config = comparison_of(options.setting, num_seeds=options.seeds, overrides=overrides)
    folder = options.out or new_folder(f"paper-{options.setting}")
    seconds = float(config.base["stop"]["seconds"])
    total = time_text(config.num_seeds * len(config.arms) * seconds / config.jobs)
    each = f"{counted(config.num_seeds, 'seed')} × {len(config.arms)} arms × {time_text(seconds)}"
    say(f"{each}: {total} of training, and its evaluations", errors)

    from benchmarks.paper.beside import overlay_figure
    from podsrl.cli.compare import run_comparison
    from podsrl.compare import runs
    from podsrl.report.figures.svg import save_svg
    from podsrl.report.html import write_report

    runs.plan(config, folder)  # before anything is written
    runs.open_folder(config, folder)
    mark(folder, options.setting)
    result = run_comparison(config, folder, options.processes)
    picture = save_svg(overlay_figure(folder), folder / f"paper-{options.setting}.svg")
    report = write_report([folder], folder / "report.html")
    if options.json:
        print(json.dumps(result))
    else:
        output.print(_table(folder))
    say(f"our curves over the paper's: {picture}\nthe report: {report}", errors)


def _table(folder: Path) -> Table:
    from benchmarks.paper.beside import reproduced_setting, rows_beside_paper
    from podsrl.report.numbers import number, percent
    from podsrl.report.read import read_comparison

    setting = reproduced_setting(folder)
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
    return table
