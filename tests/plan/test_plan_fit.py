from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from podsrl.plan.least_squares import _nonnegative, fit_nonnegative, power_law


def test_exact_lines_are_found_exactly() -> None:
    columns = [[1.0, 10.0, 3.0], [1.0, 20.0, 9.0], [1.0, 40.0, 1.0], [1.0, 5.0, 7.0]]
    values = [0.5 + 0.02 * a + 0.1 * b for _, a, b in columns]
    assert fit_nonnegative(columns, values) == pytest.approx([0.5, 0.02, 0.1], rel=1e-9)


def test_no_coefficient_is_negative_where_plain_least_squares_has_one() -> None:
    columns, values = [[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]], [1.0, 2.5, 5.5]  # the line 1.5 x - 0.5
    # By hand: without the constant, minimise the squares of c·1/1 - 1, c·2/2.5 - 1, c·4/5.5 - 1.
    ratios = np.array([1.0, 0.8, 4 / 5.5])
    assert fit_nonnegative(columns, values) == pytest.approx([0.0, ratios.sum() / (ratios**2).sum()])


def test_relative_errors_count_so_short_steps_are_fitted_as_well_as_long_ones() -> None:
    # One column, y = x but for one point 10 % off at 1 and one at 1000: both pull alike.
    low = fit_nonnegative([[1.0], [1000.0]], [1.1, 1000.0])[0]
    high = fit_nonnegative([[1.0], [1000.0]], [1.0, 1100.0])[0]
    assert low == pytest.approx(high)


def test_one_disturbed_measurement_does_not_move_the_fit() -> None:
    columns = [[1.0, float(x)] for x in range(1, 12)]
    values = [2 + 3 * x for _, x in columns]
    values[4] *= 5
    assert fit_nonnegative(columns, values) == pytest.approx([2, 3], rel=1e-9)


def test_an_all_zero_column_gets_no_coefficient() -> None:
    assert fit_nonnegative([[0.0, 1.0], [0.0, 2.0]], [3.0, 6.0]).tolist() == pytest.approx([0.0, 3.0])


def test_of_columns_that_measurements_at_one_size_cannot_tell_apart_the_first_stays() -> None:
    assert fit_nonnegative([[1.0, 8.0], [1.0, 8.0]], [2.0, 2.0]) == pytest.approx([2.0, 0.0])


def test_the_fit_of_steps_is_as_good_as_the_best_subset_of_columns() -> None:
    """Over all subsets of columns whose plain fit has no negative coefficient, of steps as a plan measures them."""
    random = np.random.default_rng(0)
    subsets = [list(subset) for size in (1, 2, 3) for subset in combinations(range(3), size)]
    for _ in range(50):
        sizes, steps = np.array([16, 64, 128] * 3), random.integers(80, 120, 9)
        columns = np.stack([steps, 400 * sizes**0.8 * random.uniform(0.9, 1.1, 9), 400 * sizes], axis=1)
        values = columns @ [1e-3, *random.uniform(0, 2e-6, 2)] * random.uniform(0.8, 1.2, 9)
        relative = columns / values[:, None]

        def error(kept: list[int], coefficients: object, relative: np.ndarray = relative) -> float:
            return float(np.square(relative[:, kept] @ coefficients - 1).sum())

        fits = [(kept, np.linalg.lstsq(relative[:, kept], np.ones(9), rcond=None)[0]) for kept in subsets]
        best = min(error(kept, fit) for kept, fit in fits if (fit >= 0).all())
        assert error([0, 1, 2], _nonnegative(relative)) == pytest.approx(best)


@pytest.mark.parametrize(("columns", "values"), [([], []), ([[1.0]], [0.0]), ([[1.0]], [1, 2])])
def test_what_cannot_be_fitted_is_an_error(columns: list[list[float]], values: list[float]) -> None:
    with pytest.raises(ValueError, match="columns of shape"):
        fit_nonnegative(columns, values)


def test_a_power_law_is_continued_with_its_own_exponent() -> None:
    sizes = [16, 64, 128]
    assert power_law(sizes, [3 * n**0.5 for n in sizes], 512) == pytest.approx(3 * 512**0.5)
    assert power_law(sizes, [3 * n**0.5 for n in sizes], 4) == pytest.approx(6.0)
    assert power_law(sizes, [3 * n**0.5 for n in sizes], 100) == pytest.approx(30.0)


def test_repeated_points_count_by_their_median_and_a_single_size_is_proportional() -> None:
    assert power_law([8, 8, 8], [1.0, 2.0, 90.0], 16) == pytest.approx(4.0)
