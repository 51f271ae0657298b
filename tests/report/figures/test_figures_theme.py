"""How numbers, names and labels are written."""

from __future__ import annotations

import io
import itertools
import random

import pytest

from podsrl.lib.stages import FATES, OTHER, SHOWN_STAGES, STAGES
from podsrl.plan.cost import PREDICTED_STAGES
from podsrl.report.figures.theme import (
    BASELINE,
    SERIES,
    STAGE_COLORS,
    TOKEN_COLORS,
    EndLabel,
    arm_colors,
    label_ends,
    new_figure,
    plain,
    spread,
)
from podsrl.report.numbers import duration


def test_every_shown_stage_and_fate_has_a_colour_of_its_own() -> None:
    assert list(STAGE_COLORS) == [*SHOWN_STAGES, OTHER]
    assert len(set(STAGE_COLORS.values())) == len(STAGE_COLORS)
    assert set(PREDICTED_STAGES) <= set(STAGES)
    assert len(set(TOKEN_COLORS.values())) == len(TOKEN_COLORS) == len(FATES) + 1


def test_durations_of_one_axis_share_a_unit() -> None:
    assert duration(60, longest=21600) == "0.0167 h"
    assert duration(1800, longest=21600) == "0.5 h"


def test_spread_leaves_a_gap_and_keeps_the_order_and_the_centre() -> None:
    rng = random.Random(0)
    for _ in range(300):
        heights = sorted(rng.random() for _ in range(rng.randint(1, 6)))
        moved = spread(heights, 0.13)
        assert all(b - a >= 0.13 - 1e-6 for a, b in itertools.pairwise(moved))
        assert sum(moved) == pytest.approx(sum(heights))


def test_heights_far_enough_apart_stay() -> None:
    assert spread([0.1, 0.5, 0.9], 0.2) == [0.1, 0.5, 0.9]


def test_the_baseline_is_grey_and_the_others_keep_their_order() -> None:
    assert arm_colors(["pods", "grpo", "random"], "grpo") == {"pods": SERIES[0], "grpo": BASELINE, "random": SERIES[1]}
    assert list(arm_colors(["grpo", "pods"]).values()) == [SERIES[0], SERIES[1]]


def test_a_dollar_sign_starts_no_formula() -> None:
    figure = new_figure(2, 2)
    axes = figure.subplots()
    axes.plot([0, 1])
    label_ends(axes, [EndLabel(y=0.5, text=r"$\frac{$", color=SERIES[0])], gap=0.1)
    figure.savefig(io.BytesIO())  # matplotlib would refuse the broken formula
    assert axes.texts[0].get_text() == plain(r"$\frac{$")
