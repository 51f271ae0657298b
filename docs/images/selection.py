"""Draw docs/images/selection.svg: which of 16 rollouts each rule keeps, for three kinds of reward.

Run: python docs/images/selection.py        (always draws the same picture)
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podsrl.report.figures.svg import save_svg
from podsrl.report.figures.theme import GRID, INK, PAPER, SERIES, new_figure
from podsrl.select import RULES

NUM_KEPT = 4
SHOWN = ("max_variance", "max_reward", "percentile", "random")
REWARDS = {  # ascending, so that a rollout's place on the x axis is its rank
    "binary\n6 of 16 right": [0.0] * 10 + [1.0] * 6,
    "shaped\n1 of 16 right": [0.0, 0.0, 0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.15, 0.15, 0.15, 0.2, 0.2, 0.2, 1.2],
    "continuous\nno two alike": [
        0.02,
        0.05,
        0.11,
        0.18,
        0.21,
        0.30,
        0.34,
        0.41,
        0.47,
        0.50,
        0.58,
        0.66,
        0.71,
        0.83,
        0.90,
        0.97,
    ],
}
KEPT, DROPPED, MEAN = SERIES[0], "#9a9a9a", SERIES[1]  # the colour-blind tell them apart


def main() -> None:
    figure = new_figure(12, 7.2)
    panels = figure.subplots(len(REWARDS), len(SHOWN), sharex=True, sharey="row")
    for row, (kind, rewards) in zip(panels, REWARDS.items(), strict=True):
        row[0].set_ylabel(f"{kind}\n\nreward", color=INK)
        for panel, rule in zip(row, SHOWN, strict=True):
            kept = RULES[rule](torch.tensor(rewards), NUM_KEPT, generator=torch.Generator().manual_seed(4)).tolist()
            _draw(panel, rewards, kept)
    for panel, rule in zip(panels[0], SHOWN, strict=True):
        panel.annotate(rule, (0.5, 1.2), xycoords="axes fraction", ha="center", fontsize=12, color=INK, weight="bold")
    for panel in panels[-1]:
        panel.set_xlabel("rank of the reward", color=INK)
    _legend(figure, panels[0, 0])
    figure.align_ylabels()
    save_svg(figure, Path(__file__).with_suffix(".svg"))


def _draw(panel: Axes, rewards: list[float], kept: list[int]) -> None:
    chosen = [rewards[i] for i in kept]
    mean = sum(chosen) / len(chosen)
    variance = sum((reward - mean) ** 2 for reward in chosen) / len(chosen)
    others = [i for i in range(len(rewards)) if i not in kept]
    panel.axhline(mean, color=MEAN, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1, label="mean of the kept")
    panel.vlines([i + 1 for i in kept], mean, chosen, color=KEPT, linewidth=2, alpha=0.45, zorder=2)
    panel.scatter(
        [i + 1 for i in others],
        [rewards[i] for i in others],
        s=38,
        facecolors=PAPER,
        edgecolors=DROPPED,
        linewidths=1.4,
        zorder=3,
        label="dropped",
    )
    panel.scatter([i + 1 for i in kept], chosen, s=72, color=KEPT, zorder=4, label="kept (4 of 16)")
    panel.set_title(f"variance of the kept {variance:.3f}", fontsize=10, color=INK, pad=6)
    panel.margins(y=0.14)
    panel.set_facecolor("none")
    panel.set_xticks([1, 4, 8, 12, 16])
    panel.set_yticks([0, 0.5, 1])
    panel.tick_params(length=0, labelcolor=INK)
    panel.grid(axis="y", color=GRID)
    panel.set_axisbelow(True)
    for side in panel.spines.values():
        side.set_visible(False)


def _legend(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    order = [labels.index(name) for name in ("kept (4 of 16)", "dropped", "mean of the kept")]
    figure.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=10,
        labelcolor=INK,
    )


if __name__ == "__main__":
    main()
