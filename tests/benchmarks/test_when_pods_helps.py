"""`python -m benchmarks when-pods-helps`: times, censoring, intervals and limits by hand-written numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.paired import speedup
from benchmarks.runs import MARKS, TUNE_SEEDS, Log, first_at, is_held
from benchmarks.when_pods_helps import grid
from benchmarks.when_pods_helps.cells import Cell
from benchmarks.when_pods_helps.grid import Block, limits, plan_of, tuning_runs, wanted
from benchmarks.when_pods_helps.summary import summarize
from podsrl.compare.student import student_t

PODS = Cell(start="4%", num_rollouts=64, num_kept=16, rate=3e-4, seed=0)
GRPO = Cell(start="4%", num_rollouts=16, num_kept=16, rate=3e-4, seed=0)


def record(
    accuracies: list[float], *, step_seconds: float, cpu_limit: float = 60.0, steps: int = 5000
) -> dict[str, Any]:
    """What `train` returns of a run with an evaluation after every step."""
    count = range(len(accuracies))
    points = {
        "step": list(count),
        "seconds": [2 * step_seconds * i for i in count],
        "cpu_seconds": [step_seconds * i for i in count],
        "rollouts": [512 * i for i in count],
        "tokens": [9000 * i for i in count],
        "accuracy": accuracies,
    }
    return {
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in MARKS.targets},
        "end": "reached" if is_held(accuracies, 0.9) else "limit",
        "limits": {"accuracy": 0.9, "cpu_seconds": cpu_limit, "steps": steps},
        "commit": "abc",
        "load": 0.5,
    }


FAST = [0.04, 0.6, 0.85, 0.92, 0.96, 0.97]
SLOW = [0.04, 0.1, 0.3, 0.55, 0.7, 0.82, 0.91, 0.94, 0.95, 0.96]
STUCK = [0.04, 0.5, 0.6, 0.7]


def tuning_log(*cells: Cell, best: float = 3e-4) -> Log:
    """A log in which one rate is the best of all arms."""
    log = Log(None)
    for cell in cells:
        while (found := tuning_runs(cell, log)[1]) is not None:
            run, bounds = found
            steps = 3 if run.rate == best else 9
            log.add(
                run,
                {
                    **record([0.0] * steps + [0.9], step_seconds=1.0, steps=bounds.steps),
                    "limits": {"steps": bounds.steps},
                },
            )
    return log


def test_times_by_hand() -> None:
    points = record(SLOW, step_seconds=0.5)["points"]
    assert first_at(points, 0.9) == {
        "step": 6, "seconds": 6.0, "cpu_seconds": 3.0, "rollouts": 3072, "tokens": 54000, "accuracy": 0.91
    }  # fmt: skip
    assert first_at(record(STUCK, step_seconds=0.5)["points"], 0.9) is None
    assert [is_held(accuracies, 0.95) for accuracies in (FAST, SLOW, STUCK)] == [True, True, False]


def test_a_speed_up_and_its_interval_by_hand() -> None:
    found = speedup([(8.0, True), (6.0, True)], [(4.0, True), (2.0, True)], 1.08)
    assert found["ratio"] == pytest.approx(math.sqrt(6)) and found["ratios"] == [2.0, 3.0] and found["bound"] == ""
    one = speedup([(8.0, True)], [(4.0, True)], 1.08)  # one seed says nothing about others
    assert one["ratio"] == 2.0 and (one["interval"]["low"], one["interval"]["high"]) == (0.0, None)
    gap = math.log(1.08) / math.sqrt(12)
    error = math.sqrt((math.log(3) - math.log(2)) ** 2 / 4 + 2 * gap**2)  # two values: the variance is d² / 2
    factor = math.exp(student_t(1) * error)
    assert found["interval"]["low"] == pytest.approx(math.sqrt(6) / factor)
    assert found["interval"]["high"] == pytest.approx(math.sqrt(6) * factor)


def test_a_run_that_was_given_up_makes_a_bound() -> None:
    reached, given_up = [(4.0, True)] * 3, [(12.0, True), (12.0, False), (12.0, True)]
    found = speedup(given_up, reached, 1.08)
    assert found["bound"] == "≥" and found["ratio"] == pytest.approx(3.0)
    assert found["interval"]["high"] is None and 2.5 < found["interval"]["low"] < 3.0
    found = speedup(reached, given_up, 1.08)
    assert found["bound"] == "≤" and found["interval"]["low"] == 0.0 and found["interval"]["high"] > 1 / 3
    found = speedup(given_up, given_up, 1.08)
    assert found["bound"] == "?" and found["ratio"] is None
    assert (found["interval"]["low"], found["interval"]["high"]) == (0.0, None)


def test_tuning_gives_a_rate_up_where_it_needs_as_many_steps_as_another() -> None:
    log, made = Log(None), []
    steps = {3e-4: 20, 6e-4: 12, 1.5e-4: 40}
    while (found := tuning_runs(GRPO, log)[1]) is not None:
        run, bounds = found
        made.append((run.rate, run.seed, bounds.steps))
        accuracies = [0.0] * steps[run.rate] + [0.9]
        log.add(run, {**record(accuracies[: bounds.steps + 1], step_seconds=1.0), "limits": {"steps": bounds.steps}})
    first, second = TUNE_SEEDS
    # 3e-4 needs 40 steps in all, 6e-4 then 24; 1.5e-4 has 24 for its first seed and is given up.
    assert made == [(3e-4, first, 400), (3e-4, second, 400), (6e-4, first, 40), (6e-4, second, 28), (1.5e-4, first, 24)]
    assert tuning_runs(GRPO, log) == (6e-4, None)


def test_a_run_is_given_up_at_three_times_the_seconds_of_the_reference_of_its_seed() -> None:
    tuning, log = tuning_log(PODS, GRPO), Log(None)
    assert limits(PODS, log, tuning).cpu_seconds == limits(GRPO, log, tuning).cpu_seconds == grid.MOST_SECONDS
    log.add(PODS, record(FAST, step_seconds=4.0))  # 90 % at 12 s
    assert limits(GRPO, log, tuning).cpu_seconds == 36.0
    log.add(PODS, record(FAST, step_seconds=0.1))
    assert limits(GRPO, log, tuning).cpu_seconds == grid.LEAST_SECONDS
    log.add(PODS, record(STUCK, step_seconds=0.1))
    assert limits(GRPO, log, tuning).cpu_seconds == grid.MOST_SECONDS


def full_result() -> dict[str, Any]:
    """Two arms and two seeds, without a penalty only; one run of GRPO is given up."""
    tuning, log = tuning_log(PODS, GRPO), Log(None)
    cells = wanted((Block(starts=("4%",), sizes=((64, 16), (16, 16)), seeds=(0, 1)),))
    for cell in cells:
        if cell.kl == 0:
            accuracies = FAST if cell.num_rollouts == 64 else SLOW if cell.seed == 0 else STUCK
            log.add(cell, record(accuracies, step_seconds=0.5))
    return summarize(cells, plan_of(cells).records(log, tuning), tuning)


def test_a_summary_holds_what_was_run_and_nothing_else() -> None:
    result = full_result()
    (row,) = result["rows"]  # nothing was run with a penalty
    assert (result["num_runs"], result["num_wanted"], row["kl"], row["start_accuracy"]) == (4, 8, 0.0, 0.04)
    pods, grpo = row["arms"]
    assert pods["to"]["0.9"]["cpu_seconds"] == [1.5, 1.5]
    assert grpo["to"]["0.9"]["cpu_seconds"] == [3.0, None] and grpo["trained"]["cpu_seconds"] == [4.5, 1.5]
    over = pods["over_grpo"]["0.9"]
    assert over["cpu_seconds"]["ratios"] == [2.0, 1.0] and over["cpu_seconds"]["bound"] == "≥"
    assert over["step"]["num_seeds"] == 2 and pods["over_grpo_ga"] is None and grpo["over_grpo"] is None
