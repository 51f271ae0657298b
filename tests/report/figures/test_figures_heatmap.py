"""Heat maps: values, intervals and colours of cells."""

from __future__ import annotations

import numpy as np
import pytest

from podsrl.errors import UsageError
from podsrl.report.figures.heatmap import speedup_heatmap

ROWS, COLS = ["m = 16", "m = 8"], ["n = 32", "n = 64"]


def _colors(figure: object) -> np.ndarray:
    return figure.axes[0].get_images()[0].get_array()


def test_an_interval_without_bound_ends_in_infinity() -> None:
    figure = speedup_heatmap([[1.2, 2.0]], ROWS[:1], COLS, [[(0.9, float("inf")), (0.0, 1500.0)]])
    assert {"0.90–∞", "0–∞"} <= {text.get_text() for text in figure.axes[0].texts}


def test_cells_show_value_and_interval_and_a_dash_for_not_reached() -> None:
    figure = speedup_heatmap([[1.2, 2.0], [None, 0.5]], ROWS, COLS, [[(0.9, 1.5), None], [None, (0.4, 0.6)]])
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["1.20×", "0.90–1.50", "2.00×", "–", "0.50×", "0.40–0.60"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == COLS


def test_one_is_white_and_equal_factors_are_equally_far_from_it() -> None:
    colors = _colors(speedup_heatmap([[1.0, 2.0], [0.5, 4.0]], ROWS, COLS))
    np.testing.assert_allclose(colors[0, 0, :3], 0.97, atol=0.03)
    assert colors[0, 1, 2] > colors[0, 1, 0]  # twice as fast: blue
    assert colors[1, 0, 0] > colors[1, 0, 2]  # half as fast: red
    # 4× is the end of the scale; 2× and 0.5× lie half-way on either side.
    wider = _colors(speedup_heatmap([[1.0, 2.0], [0.25, 0.5]], ROWS, COLS))
    np.testing.assert_allclose(wider[0, 1], colors[0, 1])
    np.testing.assert_allclose(wider[1, 1], colors[1, 0])


def test_a_cell_without_a_value_has_no_colour() -> None:
    assert _colors(speedup_heatmap([[1.0, float("nan")]], ROWS[:1], COLS))[0, 1, 3] == 0.0


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"matrix has shape \(1, 2\), the labels want \(2, 2\)"):
        speedup_heatmap([[1.0, 2.0]], ROWS, COLS)
    with pytest.raises(UsageError, match="intervals do not fit"):
        speedup_heatmap([[1.0, 2.0]], ROWS[:1], COLS, [[None]])
    with pytest.raises(UsageError, match="the speed-up 0; give ratios above 0"):
        speedup_heatmap([[1.0, 0.0]], ROWS[:1], COLS)
