"""A plan as a figure: progress per second for every n and m, relative to the config's own choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from podsrl.report.figures.heatmap import speedup_heatmap


def plan_heatmap(result: Mapping[str, Any]) -> Figure:
    """Draw what `pods plan --json` prints.

    n goes to the right, m upwards; blue teaches more per second than the config's choice, red less.

    Example:
        >>> cell = {"num_rollouts": 8, "num_kept": 4, "relative_progress": 1.0}
        >>> plan_heatmap({"own": cell, "best": cell, "candidates": [cell]}).axes[0].get_title(loc="left")
        'Progress per second, beside 8 → 4 (best: 8 → 4)'
    """
    cells = {(c["num_rollouts"], c["num_kept"]): c["relative_progress"] for c in result["candidates"]}
    sizes, kept = sorted({n for n, _ in cells}), sorted({m for _, m in cells}, reverse=True)
    matrix = [[cells.get((n, m)) or float("nan") for n in sizes] for m in kept]
    own, best = (f"{result[name]['num_rollouts']} → {result[name]['num_kept']}" for name in ("own", "best"))
    return speedup_heatmap(
        matrix,
        [f"m = {m}" for m in kept],
        [f"n = {n}" for n in sizes],
        title=f"Progress per second, beside {own} (best: {best})",
    )
