"""`python -m benchmarks when-pods-helps`: its arms, times, bounds, intervals and verdicts by hand-written numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from benchmarks.decided import NUM_DECIDE
from benchmarks.paired import Json, speedup
from benchmarks.runs import MARKS, TUNE_SEEDS, Log, first_at, is_held
from benchmarks.when_pods_helps import (
    ARMS,
    CALM,
    RARE,
    REGIMES,
    SEEDS,
    cell,
    cells,
    help_table,
    limits,
    page,
    summarize,
    tuned,
)
from podsrl.compare.student import student_t


def record(accuracies: list[float], *, step_seconds: float, steps: int = 5000) -> dict[str, Any]:
    """What `train` returns of a run with an evaluation after every step."""
    count = range(len(accuracies))
    points = {
        "step": list(count),
        "seconds": [2 * step_seconds * i for i in count],
        "cpu_seconds": [step_seconds * i for i in count],
        "rollouts": [512 * i for i in count],
        "tokens": [9000 * i for i in count],
        "trained": [3000 * i for i in count],
        "accuracy": accuracies,
    }
    return {
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in MARKS.targets},
        "end": "reached" if is_held(accuracies, 0.9) else "limit",
        "limits": {"accuracy": 0.9, "cpu_seconds": 60.0, "steps": steps},
        "rate": 3e-4,
        "commit": "abc",
        "load": 0.5,
    }


FAST = [0.04, 0.6, 0.85, 0.92, 0.96, 0.97]
SLOW = [0.04, 0.1, 0.3, 0.55, 0.7, 0.82, 0.91, 0.94, 0.95, 0.96]
STUCK = [0.04, 0.5, 0.6, 0.7]


def test_times_by_hand() -> None:
    points = record(SLOW, step_seconds=0.5)["points"]
    assert first_at(points, 0.9) == {
        "step": 6, "seconds": 6.0, "cpu_seconds": 3.0, "rollouts": 3072, "tokens": 54000, "trained": 18000,
        "accuracy": 0.91
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
    steps, own = {3e-4: 20, 1.5e-4: 40}, cell("GRPO 16", "4%", 0.0, 50)
    while (found := tuned(own, log)[1]) is not None:
        run, bounds = found
        made.append((run.rate, run.seed, bounds.steps))
        accuracies = [0.0] * steps[run.rate] + [0.9]
        log.add(run, {**record(accuracies[: bounds.steps + 1], step_seconds=1.0), "limits": {"steps": bounds.steps}})
    first, second = TUNE_SEEDS
    # 3e-4 needs 40 steps in all; 1.5e-4 has needed them for its first seed and is given up.
    assert made == [(3e-4, first, 400), (3e-4, second, 400), (1.5e-4, first, 40)]
    assert tuned(own, log) == (3e-4, None)
    assert tuned(cell("PODS 64 → 16", *RARE, 50, 1.5e-4), Log(None)) == (1.5e-4, None)


def test_every_start_has_every_arm_on_every_seed_and_another_one_is_first() -> None:
    found = cells()
    assert len(found) == len({*found}) == len(SEEDS) * (len(REGIMES) * len(ARMS) + 1) == 252
    assert len(SEEDS) == NUM_DECIDE and not {each.seed for each in found} & {*range(42), *TUNE_SEEDS}
    of_starts = [found[i : i + len(ARMS)] for i in range(0, len(found) - len(SEEDS), len(ARMS))]
    assert all(len({(each.start, each.kl, each.seed) for each in own}) == 1 for own in of_starts)
    firsts = [own[0].arm for own in of_starts if (own[0].start, own[0].kl) == ("4%", 0.0)]
    assert {firsts.count(arm) for arm in firsts} == {3}
    assert [limits(cell("auto", start, 0.0, 50)).cpu_seconds for start in ("0.9%", "4%")] == [150, 40]


def test_the_arms_differ_in_sizes_and_in_what_auto_decides() -> None:
    configs = {name: cell(name, "4%", 0.04, 50).config() for name in ARMS}
    assert {
        name: (own.rollouts.num_rollouts, own.select.num_kept, own.select.rule) for name, own in configs.items()
    } == {
        "PODS 64 → 16": (64, 16, "max_variance"),
        "GRPO 64": (64, 64, "keep_all"),
        "GRPO 16": (16, 16, "keep_all"),
        "auto": (64, 16, "max_signal"),
    }
    assert configs["auto"].systems == ("worth",) and all(own.loss.kl_beta == 0.04 for own in configs.values())


def test_ratios_verdicts_and_medians_by_hand() -> None:
    """GRPO 64 takes twice the steps of PODS and GRPO 16 as many; one run of auto is given up; a start has one seed."""
    made: dict[Any, Json] = {}
    for seed in SEEDS:
        made[cell("PODS 64 → 16", "4%", 0.0, seed)] = record(FAST, step_seconds=0.5)  # 90 % after step 3
        made[cell("GRPO 64", "4%", 0.0, seed)] = record(SLOW, step_seconds=0.5)  # after step 6
        made[cell("GRPO 16", "4%", 0.0, seed)] = record(FAST, step_seconds=0.5)
        made[cell("auto", "4%", 0.0, seed)] = record(STUCK if seed == SEEDS[0] else FAST, step_seconds=1.0)
    made[cell("PODS 64 → 16", *RARE, SEEDS[0])] = record(STUCK, step_seconds=1.0)
    made[cell("PODS 64 → 16", *RARE, SEEDS[0], 1.5e-4)] = record(FAST, step_seconds=1.0)
    made[cell("GRPO 16", *RARE, SEEDS[0])] = record(FAST, step_seconds=4.0)
    result = {"hardware": "an abacus", **json.loads(json.dumps(summarize(made)))}
    rare, plain = result["regimes"]
    assert (rare["start"], plain["start"], result["num_runs"], result["num_wanted"]) == ("0.9%", "4%", 51, 252)
    assert [(line["over"], line["cpu_seconds"]["ratio"]) for line in rare["lines"] if line["arm"] == "GRPO 16"][1] == (
        CALM,
        4.0,
    )
    lines = {(line["arm"], line["over"]): line for line in plain["lines"]}
    twice = lines["GRPO 64", "PODS 64 → 16"]
    assert {clock: twice[clock]["ratio"] for clock in ("cpu_seconds", "step", "tokens", "trained")} == pytest.approx(
        dict.fromkeys(("cpu_seconds", "step", "tokens", "trained"), 2.0)
    )
    assert lines["GRPO 16", "PODS 64 → 16"]["cpu_seconds"]["ratio"] == pytest.approx(1.0)
    assert lines["auto", "PODS 64 → 16"]["cpu_seconds"]["bound"] == "≥" and len(lines) == 5
    verdicts = [
        row.split(" | ")[-1].strip("| ")
        for row in page(result).splitlines()
        if row.startswith("| 4 %") and "PODS 64 → 16 |" in row
    ]
    assert verdicts == ["dearer", "equal to within 1.25×", "dearer"]
    assert "none: 1 of 12 seeds" in page(result)
    assert "| 1.5 s, 3 steps, at 0.0003 | 3.0 s, 6 steps, at 0.0003 |" in page(result)
    assert "3.0 s, 3 steps, at 0.0003 (11 of 12)" in page(result)
    first, second = help_table(result).splitlines()[2:]
    assert first.startswith("| 0.9 % | – | ≤ 4.00×") and second.startswith("| 4 % | **2.00×") and "| 1.00×" in second
