"""Stacked bars: where a step's time goes, and what became of the generated tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podsrl.errors import cut
from podsrl.lib.stages import FATES, UNACCOUNTED
from podsrl.report.figures import theme
from podsrl.report.numbers import compact
from podsrl.report.read import Run

_SMALLEST_LABELLED = 0.09
"""A piece's amount is written into it where it is at least this share of the longest bar."""


def stage_figure(stage_seconds: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw where a step's time goes, one bar per arm: arm -> stage -> mean seconds per step."""
    figure = theme.new_figure(4.2, 1.3 + 0.5 * len(stage_seconds))
    axes = figure.subplots()
    draw_stages(axes, stage_seconds, key_columns=3)
    _write_names_above(axes, list(stage_seconds))
    return figure


def token_figure(ledgers: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw what became of a step's generated tokens, one bar per label: label -> fate -> mean tokens per step."""
    figure = theme.new_figure(4.2, 1.3 + 0.5 * len(ledgers))
    axes = figure.subplots()
    draw_tokens(axes, ledgers, key_columns=3)
    _write_names_above(axes, list(ledgers))
    return figure


def draw_stages(axes: Axes, stage_seconds: Mapping[str, Mapping[str, float]], *, key_columns: int) -> None:
    """Draw the bars of `stage_figure` into axes, with the stages' names in so many columns above."""
    _draw_bars(axes, stage_seconds, theme.STAGE_COLORS, unit="s")
    _finish(axes, "Seconds per step, by stage", theme.STAGE_COLORS, key_columns=key_columns)


def draw_tokens(axes: Axes, ledgers: Mapping[str, Mapping[str, float]], *, key_columns: int) -> None:
    """Draw the bars of `token_figure` into axes, with the fates' names in so many columns above."""
    used = {fate: theme.TOKEN_COLORS[fate] for fate in shown_fates(ledgers)}
    _draw_bars(axes, ledgers, used, unit="")
    _finish(axes, "Generated tokens per step, by fate", used, key_columns=key_columns)


def mean_stages(runs: Sequence[Run]) -> dict[str, float]:
    """Average the mean seconds per step of several runs, by stage."""
    each = [run.stage_seconds() for run in runs]
    return {stage: sum(seconds[stage] for seconds in each) / len(each) for stage in each[0]}


def token_ledger(runs: Sequence[Run]) -> dict[str, int]:
    """Sum the token ledgers of runs; `UNACCOUNTED` is what was generated and appears under no fate."""
    each = [run.tokens() for run in runs]
    totals = {name: sum(tokens[name] for tokens in each) for name in each[0]}
    return totals | {UNACCOUNTED: max(totals["generated"] - sum(totals[fate] for fate in FATES), 0)}


def shown_fates(ledgers: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The fates that some tokens of these ledgers had."""
    return [fate for fate in (*FATES, UNACCOUNTED) if any(ledger.get(fate) for ledger in ledgers.values())]


def tokens_per_step(runs: Sequence[Run]) -> dict[str, float]:
    """Divide the token ledger of runs by their steps."""
    num_steps = max(sum(len(run.steps) for run in runs), 1)
    return {name: count / num_steps for name, count in token_ledger(runs).items()}


def _draw_bars(axes: Axes, rows: Mapping[str, Mapping[str, float]], colors: Mapping[str, str], *, unit: str) -> None:
    lefts = np.zeros(len(rows))
    longest = max(sum(row.get(part, 0) for part in colors) for row in rows.values()) or 1.0
    for part, color in colors.items():
        widths = np.array([row.get(part, 0) for row in rows.values()])
        bars = axes.barh(range(len(rows)), widths, left=lefts, height=0.56, color=color, label=part)
        texts = [compact(width) if width >= _SMALLEST_LABELLED * longest else "" for width in widths]
        axes.bar_label(bars, texts, label_type="center", fontsize=8.5, color=theme.ON_BAR)
        lefts += widths
    for row, total in enumerate(lefts):
        text = f"{compact(total)} {unit}".rstrip()
        axes.annotate(text, (total, row), (6, 0), textcoords="offset points", va="center", fontsize=9, color=theme.INK)
    axes.set_yticks(range(len(rows)), [theme.plain(cut(row, theme.LONGEST_NAME)) for row in rows])
    axes.set_xlim(0, longest * 1.2)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _write_names_above(axes: Axes, names: Sequence[str]) -> None:
    """Each bar's name over it instead of beside it, where the figure is narrow."""
    axes.set_yticks([])
    axes.set_ylim(len(names) - 0.6, -0.8)
    for row, name in enumerate(names):
        text = theme.plain(cut(name, 40))
        axes.annotate(text, (0, row - 0.34), (0, 1), textcoords="offset points", fontsize=9, color=theme.INK)


def _finish(axes: Axes, title: str, colors: Mapping[str, str], *, key_columns: int) -> None:
    """Title, then the parts' names with their colours, then the bars; a scale would only repeat the written totals."""
    theme.style(axes, title, key_rows=-(-len(colors) // key_columns))
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0, labelcolor=theme.INK, labelsize=10)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    theme.write_key(axes, colors, key_columns)
