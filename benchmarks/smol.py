"""The recipe `smol-arms`: a real pretrained model learns sums by GRPO, PODS and `auto`, with five paired seeds.

    python -m benchmarks smol                  after `pods models smollm2-135m`; hours on one core
    python -m benchmarks smol --quick          one seed of a few seconds, of the package's own small model
    python -m benchmarks smol --out FOLDER     goes on in a folder, or measures what is finished there

Its report is FOLDER/report.html; `--save` also draws docs/images/smol.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import command
from benchmarks.demo import compared
from benchmarks.timing import Say
from podsrl.compare.curves import curves_on_grid
from podsrl.report.figures import theme
from podsrl.report.figures.accuracy import draw_arm
from podsrl.report.figures.svg import save_svg

Json = dict[str, Any]
PICTURE = command.ROOT / "docs" / "images" / "smol.svg"
TARGETS = (0.2, 0.4)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("smol", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of a few seconds, of a small model")
    parser.add_argument("--seeds", type=int, default=5, help="default: 5")
    parser.add_argument("--out", type=Path, help="folder of the comparison; default: runs/smol-DATE-TIME")
    command.measure(parser, arguments, run, publish=publish, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> Json:
    """Run the comparison, or what is left of it."""
    from podsrl.cli.compare import QUICK
    from podsrl.cli.console import new_folder

    changes = (
        (*QUICK, "base.extends=pods", "base.rollouts.num_rollouts=16", "base.select.num_kept=4")
        if options.quick
        else (f"num_seeds={options.seeds}",)
    )
    return {**compared("smol-arms", changes, options.out or new_folder("smol"), TARGETS), "quick": options.quick}


def publish(result: Json) -> None:
    """Draw the picture."""
    save_svg(draw(result), PICTURE)


def draw(result: Json) -> Figure:
    """Mean held-out accuracy of each arm by time, with the 95 % interval of the mean over its seeds."""
    colors = theme.arm_colors(list(result["curves"]), result["baseline"])
    figure = theme.new_figure(8.0, 4.4)
    axes = figure.subplots()
    clock = "processor seconds" if result["clock"] == "cpu" else "seconds"
    title = f"Held-out accuracy of a real model, {len(result['arms']['pods']['seeds'])} seeds"
    theme.style(axes, title, x_label=f"training {clock}, evaluation excluded", key_rows=1)
    theme.write_key(axes, colors, len(colors))
    for arm, runs in result["curves"].items():
        grid = np.linspace(0.0, min(points[-1][0] for points in runs), 200)
        draw_arm(axes, curves_on_grid([tuple(np.array(points).T) for points in runs], grid), grid, colors[arm])
    axes.set_ylim(0, None)
    theme.percent_axis(axes)
    figure.supxlabel(theme.plain(result["hardware"]), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure
