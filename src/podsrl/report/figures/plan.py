"""A plan as a figure: progress per second for every n and m, as colours around that of the config's own choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from podsrl.report.figures import theme
from podsrl.report.numbers import MISSING

_DARK = 0.6
"""From this share of the scale on, a colour wants white text."""


def plan_heatmap(result: Mapping[str, Any]) -> Figure:
    """Draw what `pods plan --json` prints.

    n goes to the right, m upwards; blue teaches more per second than the config's choice, red less, white as much;
    equal factors get equal distance (log scale). Without a ratio there is a dash without colour.

    Example:
        >>> cell = {"num_rollouts": 8, "num_kept": 4, "relative_progress": 1.0}
        >>> plan_heatmap({"own": cell, "best": cell, "candidates": [cell]}).axes[0].get_title(loc="left")
        'Progress per second, beside 8 → 4 (best: 8 → 4)'
    """
    cells = {(c["num_rollouts"], c["num_kept"]): c["relative_progress"] for c in result["candidates"]}
    sizes, kept = sorted({n for n, _ in cells}), sorted({m for _, m in cells}, reverse=True)
    ratios = np.array([[cells.get((n, m)) or np.nan for n in sizes] for m in kept], dtype=np.float64)
    own, best = (f"{result[name]['num_rollouts']} → {result[name]['num_kept']}" for name in ("own", "best"))
    figure = theme.new_figure(1.8 + 1.15 * len(sizes), 1.2 + 0.72 * len(kept))
    axes = figure.subplots()
    logs = np.log2(ratios)
    reach = max(1.0, float(np.nanmax(np.abs(logs), initial=0.0)))  # near-ones alone do not shout
    axes.imshow(logs, cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    theme.style(axes, f"Progress per second, beside {own} (best: {best})")
    axes.grid(visible=False)
    axes.tick_params(length=0, labelcolor=theme.INK)
    axes.set_yticks(range(len(kept)), [f"m = {m}" for m in kept])
    axes.set_xticks(range(len(sizes)), [f"n = {n}" for n in sizes])
    axes.spines["bottom"].set_visible(False)
    for (row, col), ratio in np.ndenumerate(ratios):
        text, color = f"{ratio:.2f}×", theme.PAPER if abs(logs[row, col]) > _DARK * reach else theme.ON_BAR
        if np.isnan(ratio):
            text, color = MISSING, theme.MUTED
        axes.text(col, row, text, ha="center", va="center", fontsize=11, color=color, weight="bold")
    return figure
