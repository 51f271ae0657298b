from __future__ import annotations

from typing import Any

import numpy as np

from podsrl.report.figures.plan import plan_heatmap


def cell(n: int, m: int, relative: float | None) -> dict[str, Any]:
    return {"num_rollouts": n, "num_kept": m, "relative_progress": relative}


def test_n_runs_to_the_right_and_m_upwards_with_a_dash_where_m_exceeds_n() -> None:
    cells = [cell(4, 2, 0.5), cell(8, 2, 2.0), cell(8, 4, 1.0)]
    axes = plan_heatmap({"own": cells[2], "best": cells[1], "candidates": cells}).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["n = 4", "n = 8"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["m = 4", "m = 2"]
    assert [text.get_text() for text in axes.texts] == ["–", "1.00×", "0.50×", "2.00×"]
    assert axes.get_title(loc="left") == "Progress per second, beside 8 → 4 (best: 8 → 2)"


def test_ratios_to_an_own_choice_that_teaches_nothing_are_dashes() -> None:
    cells = [cell(4, 2, None), cell(8, 2, None)]
    axes = plan_heatmap({"own": cells[0], "best": cells[1], "candidates": cells}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["–", "–"]


def test_one_is_white_and_equal_factors_are_equally_far_from_it() -> None:
    def colors(*ratios: float | None) -> np.ndarray:
        cells = [cell(n, 2, ratio) for n, ratio in enumerate(ratios, start=2)]
        axes = plan_heatmap({"own": cells[0], "best": cells[1], "candidates": cells}).axes[0]
        [image] = axes.get_images()
        return image.to_rgba(image.get_array())[0]

    one, twice, half, _, none = colors(1.0, 2.0, 0.5, 4.0, None)
    np.testing.assert_allclose(one[:3], 0.97, atol=0.03)
    assert twice[2] > twice[0] and half[0] > half[2], "blue and red"
    assert none[3] == 0.0
    # 4× is the end of the scale; 2× and 0.5× lie half-way on either side, whichever side holds the end.
    np.testing.assert_allclose(colors(1.0, 2.0, 0.5, 0.25)[1:3], [twice, half])
