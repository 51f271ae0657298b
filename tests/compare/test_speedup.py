"""Time to accuracy, the paper's speed-up and mean curves, against numbers by hand."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from podsrl.compare.bootstrap import bootstrap_speedup
from podsrl.compare.curves import common_grid, curves_on_grid, mean_curve
from podsrl.compare.speedups import speedup, time_to_accuracy
from podsrl.errors import UsageError

HALF_HOURS = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0]
GRPO_16 = [0.7911, 0.7945, 0.7978, 0.8065, 0.8072, 0.8127, 0.8119, 0.8164, 0.8144, 0.8132, 0.8128, 0.8076]
PODS_64_16 = [0.791, 0.8057, 0.8098, 0.8127, 0.8172, 0.8175, 0.8246, 0.8246, 0.8244, 0.8245, 0.8263, 0.826]
PODS_64_2 = [0.7644, 0.7751, 0.791, 0.8004, 0.8039, 0.8049, 0.8074, 0.8023, 0.811, 0.8116, 0.8162, 0.813]
RANDOM_64_16 = [0.7538, 0.7853, 0.788, 0.7997, 0.8005, 0.8066, 0.8082, 0.8108, 0.812, 0.8149, 0.8099, 0.8162]
MAX_REWARD_64_16 = [0.5956, 0.6278, 0.6439, 0.6565, 0.6567, 0.6615, 0.6516, 0.6717, 0.6499, 0.6453, 0.6632, 0.6728]
MATH_GRPO_8 = [0.4157, 0.4393, 0.4606, 0.4663, 0.4677, 0.4753, 0.471, 0.4791, 0.483, 0.4864, 0.4815, 0.489]
MATH_PODS_32_8 = [0.429, 0.4456, 0.4621, 0.4777, 0.4892, 0.4916, 0.4938, 0.4966, 0.4973, 0.4985, 0.5035, 0.5017]


@pytest.mark.parametrize(
    ("times", "accuracies", "target", "found"),
    [
        ([10, 20, 30, 40], [0.1, 0.5, 0.4, 0.9], 0.5, 20.0),  # the first one counts, though accuracy falls again
        ([0, 100], [0.0, 1.0], 0.01, 100.0),  # nothing is interpolated
        ([10, 20], [0.1, 0.2], 0.3, None),
    ],
)
def test_the_first_evaluation_at_the_target_counts(
    times: list[float], accuracies: list[float], target: float, found: float | None
) -> None:
    assert time_to_accuracy(times, accuracies, target) == found


@pytest.mark.parametrize(
    ("base", "other", "fraction", "found"),
    [
        (([1, 2, 3], [0.5, 0.98, 1.0]), ([1, 2, 3], [0.995, 0.995, 1.0]), 0.99, 3.0),
        (([1, 2, 3], [0.5, 0.98, 1.0]), ([1, 2, 3], [0.995, 0.995, 1.0]), 1.0, 1.0),
        (([10, 20, 30], [0.1, 0.2, 0.8]), ([7, 9, 50], [0.3, 0.79, 0.79]), 0.9, 30 / 9),  # checkpoints of its own
        (([0, 10, 20], [0.9, 0.5, 0.6]), ([0, 10, 20], [0.9, 0.6, 0.6]), 0.99, 2.0),  # the untrained model is none
        (([1, 2], [0.0, 0.0]), ([1, 2], [0.4, 0.5]), 0.99, None),  # a baseline that is never right sets no target
    ],
)
def test_a_speedup_is_the_time_of_the_baseline_over_that_of_the_arm(
    base: tuple[list[float], list[float]], other: tuple[list[float], list[float]], fraction: float, found: float | None
) -> None:
    assert speedup(*base, *other, fraction=fraction) == found


@pytest.mark.parametrize(
    ("base", "other", "expected"),
    [
        (GRPO_16, PODS_64_16, 3.0 / 1.5),
        (GRPO_16, PODS_64_2, 3.0 / 4.5),
        (GRPO_16, RANDOM_64_16, 3.0 / 4.0),
        (GRPO_16, MAX_REWARD_64_16, None),
        (MATH_GRPO_8, MATH_PODS_32_8, 5.0 / 2.5),
        (GRPO_16, GRPO_16, 1.0),
    ],
)
def test_speedup_is_the_published_one_on_published_curves(
    base: list[float], other: list[float], expected: float | None
) -> None:
    assert speedup(HALF_HOURS, base, HALF_HOURS, other) == expected


def test_every_published_row_of_the_single_gpu_settings_is_reproduced() -> None:
    data = os.environ.get("PODS_DATA")
    if data is None:
        pytest.skip("PODS_DATA is not set; the paper's curves lie beside that folder, in paper/curves.json")
    rows = json.loads((Path(data).parent / "paper" / "curves.json").read_text())["rows"]
    rows = [row for row in rows if row["setting"] in ("a", "b", "c")]
    baselines = {row["setting"]: row for row in rows if row["arm"] == "GRPO"}
    assert len(rows) == 14
    for row in rows:
        base = baselines[row["setting"]]
        ratio = speedup(base["hours"], base["accuracy"], row["hours"], row["accuracy"])
        published = row["speedup_99"]
        assert (ratio is None) == (published is None)
        if ratio is not None:
            # The published ratio has three decimals, and the hours of setting c (ten-minute checkpoints) too.
            assert math.isclose(ratio, published, abs_tol=2e-3)


def test_a_mean_curve_gives_no_credit_before_an_accuracy_was_measured() -> None:
    early, late = ([0, 10, 20], [0.0, 0.6, 0.8]), ([0, 15], [0.2, 0.4])
    grid = [0, 9.9, 10, 14, 15, 20, 99]
    assert curves_on_grid([early, late], grid).tolist() == [
        [0.0, 0.0, 0.6, 0.6, 0.6, 0.8, 0.8],
        [0.2, 0.2, 0.2, 0.2, 0.4, 0.4, 0.4],
    ]
    np.testing.assert_allclose(mean_curve([early, late], grid), [0.1, 0.1, 0.4, 0.4, 0.5, 0.6, 0.6], atol=1e-15)


def test_a_run_not_yet_evaluated_at_the_first_grid_time_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"curves\[1\] was first evaluated at 5"):
        mean_curve([([0], [0.1]), ([5], [0.1])], [0, 5])


@pytest.mark.parametrize(
    ("times", "accuracies", "message"),
    [
        ([], [], r"times has shape \(0,\)"),
        ([1, 2], [0.1], r"times has 2 values and .*accuracies has 1"),
        ([1, 1], [0.1, 0.2], "times must increase strictly, but value 1 is 1 after 1"),
        ([2, 1], [0.1, 0.2], "times must increase strictly"),
        ([1, 2], [0.1, float("nan")], "accuracies must be finite and at least 0, but value 1 is nan"),
        ([1, float("inf")], [0.1, 0.2], "times must be finite"),
        ([-1, 2], [0.1, 0.2], "times must be finite and at least 0"),
        ([[1, 2]], [[0.1, 0.2]], "flat list"),
        (["one"], [0.1], "times is not a list of numbers"),
    ],
)
def test_a_malformed_curve_is_refused_with_its_place(times: list[float], accuracies: list[float], message: str) -> None:
    good = ([1, 2], [0.1, 0.2])
    for call in (
        lambda: time_to_accuracy(times, accuracies, 0.5),
        lambda: speedup(times, accuracies, *good),
        lambda: speedup(*good, times, accuracies),
        lambda: mean_curve([(times, accuracies)], [1, 2]),
        lambda: bootstrap_speedup([good], [(times, accuracies)]),
        lambda: common_grid([good, (times, accuracies)]),
    ):
        with pytest.raises(UsageError, match=message):
            call()


def test_numbers_out_of_range_are_refused_with_the_cure() -> None:
    good = ([1, 2], [0.1, 0.2])
    with pytest.raises(UsageError, match=r"fraction = 1\.5"):
        speedup(*good, *good, fraction=1.5)
    with pytest.raises(UsageError, match="fraction = 0"):
        bootstrap_speedup([good], [good], fraction=0)
    with pytest.raises(UsageError, match="num_resamples = 0"):
        bootstrap_speedup([good], [good], num_resamples=0)
    with pytest.raises(UsageError, match="base_curves has 1 runs and curves has 2"):
        bootstrap_speedup([good], [good, good])
    with pytest.raises(UsageError, match="base_curves is empty"):
        bootstrap_speedup([], [])
    with pytest.raises(UsageError, match="target is nan"):
        time_to_accuracy(*good, float("nan"))
    with pytest.raises(UsageError, match="only evaluation is at time 0"):
        speedup([0], [0.5], *good)
    with pytest.raises(UsageError, match="only evaluation is at time 0"):
        bootstrap_speedup([good], [([0], [0.5])])


def test_an_arms_times_start_when_all_its_runs_have_been_evaluated_after_training_began() -> None:
    assert common_grid([([0, 2, 4], [0, 0, 0]), ([3, 5], [0, 0])]).tolist() == [3.0, 4.0, 5.0]
    with pytest.raises(UsageError, match="only evaluation is at time 0"):
        common_grid([([0, 2], [0, 0]), ([0], [0])])


def test_inputs_are_left_as_they_were() -> None:
    times, accuracies = np.array([0.0, 1.0, 2.0]), np.array([0.1, 0.2, 0.3])
    speedup(times, accuracies, times, accuracies)
    mean_curve([(times, accuracies)], times)
    assert times.tolist() == [0.0, 1.0, 2.0]
    assert accuracies.tolist() == [0.1, 0.2, 0.3]
