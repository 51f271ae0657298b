"""The 95 % interval of a speed-up: against a slow twin, numbers by hand, and the truth of synthetic comparisons."""

from __future__ import annotations

import json
import math
import statistics
from types import ModuleType

import pytest

from benchmarks import interval_coverage
from podsrl.compare.bootstrap import bootstrap_speedup, bootstrap_speedups
from podsrl.compare.interval import SpeedupInterval, end_text
from podsrl.compare.student import student_t

Runs = list[tuple[list[float], list[float]]]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """`python -m benchmarks interval-coverage`, which draws comparisons whose true speed-up is known."""
    return interval_coverage


def _lowest_plausible_count(num_trials: int, chance: float, risk: float) -> int:
    """The largest count that Binomial(num_trials, chance) falls below with probability of at most `risk`."""
    below = 0.0
    for count in range(num_trials + 1):
        below += math.comb(num_trials, count) * chance**count * (1 - chance) ** (num_trials - count)
        if below > risk:
            return count
    return num_trials


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 10])
@pytest.mark.parametrize(
    "kind", ["S-shaped, to 90 %", "ten evaluations at equal times, to 95 %", "arm ends just above the target, to 99 %"]
)
def test_at_least_95_of_100_intervals_hold_the_true_speed_up(script: ModuleType, kind: str, num_seeds: int) -> None:
    """An interval that covers 95 % falls below this count in one of ten thousand draws of 60 comparisons."""
    curves, num_comparisons = script.KINDS[kind], 60
    found = script.coverage(curves, num_seeds, num_comparisons=num_comparisons, num_resamples=100, seed=5)
    least = _lowest_plausible_count(num_comparisons, 0.95, 1e-4)
    assert least == 49
    assert found["interval"]["coverage"] * num_comparisons >= least
    if num_seeds <= 3:  # percentiles of so few seeds do not: the comparisons are hard enough to tell
        assert found["percentile"]["coverage"] < found["interval"]["coverage"]
    if num_seeds == 2:
        assert found["percentile"]["coverage"] * num_comparisons < least


@pytest.mark.parametrize(("num_seeds", "widest"), [(3, 4.0), (5, 2.5), (10, 2.0)])
def test_an_interval_is_narrow_enough_to_be_of_use(script: ModuleType, num_seeds: int, widest: float) -> None:
    """High end over low end, in the median, where the curves cross the target steeply."""
    curves = script.KINDS["S-shaped, to 90 %"]
    found = script.coverage(curves, num_seeds, num_comparisons=40, num_resamples=100, seed=6)
    assert 1.0 < found["interval"]["median_width"] < widest


def test_an_arm_that_never_arrives_in_truth_has_a_low_end_of_zero(script: ModuleType) -> None:
    curves = script.KINDS["arm ends just below the target, to 99 %"]
    assert script.true_speedup(curves) == 0
    for num_seeds in (3, 5):
        found = script.coverage(curves, num_seeds, num_comparisons=60, num_resamples=100, seed=7)
        assert found["interval"]["coverage"] * 60 >= _lowest_plausible_count(60, 0.95, 1e-4)


def _random_runs(script: ModuleType, seed: int, num_seeds: int) -> tuple[Runs, Runs]:
    import numpy as np

    kind = script.Kind(shape="saturating", scales=(8, 5), plateaus=(0.8, 0.8), fraction=0.95, gaps=(6, 5))
    arms = script.simulate(kind, num_seeds, np.random.default_rng(seed))
    return tuple([(times.tolist(), accuracies.tolist()) for times, accuracies in runs] for runs in arms)


def _mean_of(runs: Runs) -> list[tuple[float, float]]:
    """(time, mean of each run's last accuracy), from when every run has one."""
    times = sorted({t for run in runs for t in run[0] if all(t >= other[0][0] for other in runs)})
    last = [[[a for s, a in zip(*run, strict=True) if s <= t][-1] for run in runs] for t in times]
    return [(t, math.fsum(values) / len(values)) for t, values in zip(times, last, strict=True)]


def _drawn_mean(runs: Runs, draw: list[int], times: list[float]) -> list[tuple[float, float]]:
    last = [[[a for s, a in zip(*runs[i], strict=True) if s <= t][-1] for i in draw] for t in times]
    return [(t, math.fsum(values) / len(values)) for t, values in zip(times, last, strict=True)]


def _times_to_target(base: list[tuple[float, float]], other: list[tuple[float, float]]) -> tuple[float, float, bool]:
    target = 0.95 * max(a for _, a in base)
    reached = [t for t, a in other if a >= target]
    return next(t for t, a in base if a >= target), reached[0] if reached else other[-1][0], bool(reached)


def _gap(runs: Runs, time: float) -> float:
    gaps = []
    for times, _ in runs:
        ends = [i for i, t in enumerate(times) if t >= time] or [len(times) - 1]
        gaps.append(times[ends[0]] - ([0.0, *times][ends[0]]))
    return statistics.fmean(gaps)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_interval_equals_a_slow_twin_that_loops_over_resamples(script: ModuleType, seed: int) -> None:
    import numpy as np

    base, other = _random_runs(script, seed, 4)
    fast = bootstrap_speedup(base, other, fraction=0.95, num_resamples=200, seed=7)
    base_mean, other_mean = _mean_of(base), _mean_of(other)
    base_time, other_time, is_reached = _times_to_target(base_mean, other_mean)
    logs, num_missed = [], 0
    for draw in np.random.default_rng(7).integers(0, 4, size=(200, 4)).tolist():
        slow, quick, reached = _times_to_target(
            _drawn_mean(base, draw, [t for t, _ in base_mean]), _drawn_mean(other, draw, [t for t, _ in other_mean])
        )
        logs.append(math.log(slow / quick))
        num_missed += not reached
    parts = [
        statistics.pvariance(logs) * 4 / 3,
        (_gap(base, base_time) / base_time) ** 2 / 12,
        (_gap(other, other_time) / other_time) ** 2 / 12,
    ]
    factor = math.exp(3.18245 * math.sqrt(sum(parts)))
    assert is_reached and fast.point == pytest.approx(base_time / other_time)
    assert fast.high == pytest.approx(fast.point * factor, rel=1e-4)
    assert fast.low in (0, pytest.approx(fast.point / factor, rel=1e-4))
    assert fast.share_unreached == pytest.approx(num_missed / 200)


def test_every_evaluation_of_a_quick_arm_counts() -> None:
    """The slow arm is first evaluated at 9 s, when the quick one has long been there: 27 s over 3 s."""
    base = ([0, 9, 18, 27], [0.1, 0.3, 0.5, 0.8])
    quick = ([0, 1, 2, 3, 9, 18], [0.1, 0.3, 0.6, 0.8, 0.8, 0.8])
    assert bootstrap_speedup([base] * 3, [quick] * 3).point == 9.0
    assert bootstrap_speedups({"slow": [base] * 3, "quick": [quick] * 3}, "slow", 0.99)["quick"].point == 9.0


def test_the_untrained_model_is_no_checkpoint_of_either_arm() -> None:
    base, other = ([0, 9, 18], [0.9, 0.3, 0.5]), ([0, 2, 18], [0.9, 0.4, 0.6])
    assert bootstrap_speedup([base], [other]).point == 1.0


def test_seeds_are_paired_so_a_shared_lucky_seed_leaves_the_ratio_alone() -> None:
    slow, quick = ([0, 10, 20], [0.1, 0.2, 0.4]), ([0, 10, 20], [0.1, 0.4, 0.5])
    lucky_slow, lucky_quick = ([0, 10, 20], [0.1, 0.4, 0.8]), ([0, 10, 20], [0.1, 0.8, 0.9])
    found = bootstrap_speedup([slow, lucky_slow] * 2, [quick, lucky_quick] * 2)
    # Every draw gives 2; what is left is the gap of 10 s in 20 s and in 10 s, by Student's t for 3 degrees.
    factor = math.exp(3.18245 * math.sqrt((0.5**2 + 1) / 12))
    assert (found.point, found.share_unreached) == (2.0, 0.0)
    assert (found.low, found.high) == (pytest.approx(2 / factor, rel=1e-4), pytest.approx(2 * factor, rel=1e-4))


def test_draws_that_never_arrive_are_counted_and_leave_no_low_end() -> None:
    base = ([0, 10, 20], [0.1, 0.4, 0.8])
    good, bad = ([0, 10, 20], [0.1, 0.9, 0.9]), ([0, 10, 20], [0.1, 0.1, 0.1])
    found = bootstrap_speedup([base, base], [good, bad], num_resamples=4000)
    # Only (good, good) reaches 0.792; one of four draws has it, and the mean curve over both seeds stays at 0.5.
    assert found.point is None and found.low == 0
    assert found.high > 2.0  # what the good seed alone gives
    assert found.share_unreached == pytest.approx(0.75, abs=0.03)


def test_an_arm_that_no_seed_brings_to_the_target_is_at_most_as_quick_as_its_last_evaluation_says() -> None:
    base, never = ([0, 10, 20], [0.1, 0.4, 0.8]), ([0, 10, 20, 80], [0.1, 0.1, 0.1, 0.1])
    found = bootstrap_speedup([base] * 5, [never] * 5)
    # 20 s over more than 80 s; gaps 10 in 20 and 60 in 80; Student's t for 4 degrees.
    assert (found.point, found.low, found.share_unreached) == (None, 0.0, 1.0)
    assert found.high == pytest.approx(0.25 * math.exp(2.77645 * math.sqrt((0.5**2 + 0.75**2) / 12)), rel=1e-4)
    assert found.text == "not reached"


def test_one_seed_leaves_both_ends_open() -> None:
    found = bootstrap_speedup([([10, 20], [0.4, 0.8])], [([10, 20], [0.8, 0.9])])
    assert (found.point, found.low, found.high) == (2.0, 0.0, math.inf)
    assert found.text == "2.00× (0–∞)"


def test_a_baseline_that_is_never_right_sets_no_target_and_no_bound() -> None:
    zero, some = ([10, 20], [0.0, 0.0]), ([10, 20], [0.1, 0.2])
    found = bootstrap_speedup([zero] * 3, [some] * 3)
    assert (found.point, found.low, found.high, found.share_unreached) == (None, 0.0, math.inf, 1.0)


def test_the_baseline_beside_itself_is_exactly_one() -> None:
    runs = [([10, 20], [0.4, 0.8]), ([10, 20], [0.5, 0.7])]
    assert bootstrap_speedups({"a": runs}, "a", 0.99)["a"].text == "1.00× (1.00–1.00)"


def test_the_same_seed_draws_the_same_interval(script: ModuleType) -> None:
    base, other = _random_runs(script, 4, 5)
    first = bootstrap_speedup(base, other, fraction=0.9, seed=1)
    assert first == bootstrap_speedup(base, other, fraction=0.9, seed=1)
    assert 0 < first.low < first.high
    assert first != bootstrap_speedup(base, other, fraction=0.9, seed=2)


def test_an_interval_goes_through_json_and_reads_well() -> None:
    open_ended = SpeedupInterval(point=2.1, low=0.9, high=math.inf, share_unreached=0.0)
    assert open_ended.text == "2.10× (0.90–∞)"
    text = json.dumps(open_ended.to_json(), allow_nan=False)
    assert '"high": null' in text and SpeedupInterval.from_json(json.loads(text)) == open_ended
    bounded = SpeedupInterval(point=1.833, low=1.6, high=2.05, share_unreached=0.0)
    assert bounded.text == "1.83× (1.60–2.05)" and SpeedupInterval.from_json(bounded.to_json()) == bounded
    assert [end_text(end) for end in (0.0, 99.994, 312.4, 1000.0)] == ["0", "99.99", "312", "∞"]


def test_students_t_is_that_of_printed_tables() -> None:
    for degrees, two_sided, one_sided in ((1, 12.706, 6.314), (2, 4.303, 2.920), (9, 2.262, 1.833), (30, 2.042, 1.697)):
        assert student_t(degrees) == pytest.approx(two_sided, abs=6e-4)
        assert student_t(degrees, 0.95) == pytest.approx(one_sided, abs=6e-4)


def test_several_seeds_that_settle_nothing_are_shown_with_both_ends_open() -> None:
    zero, good = ([10, 20], [0.0, 0.0]), ([10, 20], [0.4, 0.8])
    found = bootstrap_speedup([zero, zero, good], [good] * 3)
    assert (found.low, found.high) == (0.0, math.inf) and found.text.endswith("× (0–∞)")


@pytest.mark.parametrize(
    ("low", "point", "high", "needed"),
    [(0.5, 0.8, 1.25, (0.8, 1.25, 2.0)), (0.0, None, 0.25, (4.0, None, math.inf)), (2, 4, math.inf, (0.0, 0.25, 0.5))],
)
def test_what_is_needed_is_the_inverse_of_what_is_saved(
    low: float, point: float | None, high: float, needed: tuple[float, float | None, float]
) -> None:
    found = SpeedupInterval(point=point, low=low, high=high, share_unreached=0.5).inverse
    assert (found.low, found.point, found.high) == needed and found.share_unreached == 0.5
