"""A comparison as one figure: accuracy against time, beside the time and tokens of a step."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill

from matplotlib.figure import Figure

from podsrl.compare.interval import UNCLEAR, quickest
from podsrl.report.comparison import Comparison
from podsrl.report.figures import theme
from podsrl.report.figures.accuracy import draw_accuracy
from podsrl.report.figures.bars import draw_stages, draw_tokens, mean_stages, tokens_per_step

MANY_ARMS = 6
"""More arms have a panel each (`costs.cost_figure`): in one panel nobody tells them apart."""


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw accuracy against time beside a step's time and tokens, under the result in one sentence.

    Of more than `MANY_ARMS` arms, time and tokens alone.

    Raises:
        UsageError: a run without the evaluations that the grid asks for.
    """
    if (num_arms := len(comparison.runs)) > MANY_ARMS and comparison.costs:
        figure = theme.new_figure(12.5, 1.9 + 0.32 * num_arms)
        axes = figure.subplot_mosaic([["stages", "tokens"]])
    else:
        figure = theme.new_figure(12.5, 5.4)
        axes = figure.subplot_mosaic([["accuracy", "stages"], ["accuracy", "tokens"]], width_ratios=[1.5, 1.0])
        draw_accuracy(axes["accuracy"], comparison)
    draw_stages(axes["stages"], {arm: mean_stages(runs) for arm, runs in comparison.runs.items()}, key_columns=3)
    draw_tokens(axes["tokens"], {arm: tokens_per_step(runs) for arm, runs in comparison.runs.items()}, key_columns=4)
    said = headline(comparison)
    weight, size = ("bold", 15) if said.is_clear else ("normal", 13)
    figure.suptitle(
        theme.plain(fill(said.text, 100)), x=0.012, ha="left", fontsize=size, weight=weight, color=theme.INK
    )
    figure.supxlabel(theme.plain(fill(comparison.hardware, 180)), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


@dataclass(frozen=True, slots=True)
class Headline:
    """A comparison's result in one sentence."""

    text: str
    is_clear: bool
    """The interval does not hold 1: the sentence may stand in bold."""


def headline(comparison: Comparison) -> Headline:
    """Say a comparison's result for the arm that reaches the target first."""
    if comparison.not_learned:
        return Headline(comparison.not_learned, False)
    goal = f"{comparison.fraction * 100:g} % of {comparison.baseline}'s best accuracy"
    arm = quickest(comparison.speedups, comparison.baseline)
    if arm is None:
        return Headline(f"No other arm reaches {goal}", False)
    found = comparison.speedups[arm]
    by = " by processor seconds" if comparison.unequal_pace else ""
    text = f"{arm} reaches {goal} {found.point:.2f}× as fast{by}"
    return Headline(text, True) if found.is_clear else Headline(f"{text} ({found.range_text}); {UNCLEAR}", False)
