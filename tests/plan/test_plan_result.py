"""How unsure a plan's seconds are, by made-up timings whose scatter is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from plan_records import from_pass_rate, generation, measurements, updates

from podsrl.config.load import load_config
from podsrl.plan.cost import CostModel
from podsrl.plan.measured import Measurements
from podsrl.plan.probe import Verification
from podsrl.plan.result import doubts, to_json
from podsrl.plan.rewards import Seen
from podsrl.plan.search import NO_REPEATS, make_plan


def scattered(scatter: float, seed: int = 0, rounds: int = 6) -> Measurements:
    """Six rounds of the made-up machine, each second off by a factor that is uniform in 1 ± scatter."""
    random = np.random.default_rng(seed)

    def factor() -> float:
        return float(random.uniform(1 - scatter, 1 + scatter))

    drawn = from_pass_rate(0.2, 5.0, length=50.0).draw(64, 40)
    rows = zip(drawn.rewards, drawn.lengths, drawn.is_correct, strict=True)
    steps = [generation(n, shared=4 / n**0.5, disturbed=factor()) for _ in range(rounds) for n in (16, 64, 128)]
    again = [p for _ in range(rounds) for p in updates()]
    return replace(
        measurements(*steps),
        config=load_config("pods", ["optim.micro_batch_tokens=4096"]),
        updates=tuple(replace(p, update_seconds=p.update_seconds * factor()) for p in again),
        groups=tuple(Seen(rewards=r, lengths=length, is_correct=c) for r, length, c in rows),
        noise_ratio=1.0,
    )


@pytest.mark.parametrize("scatter", [0.02, 0.1, 0.4])
def test_the_spread_is_the_scatter_that_was_put_in(scatter: float) -> None:
    """Half the middle 90 % of 1 ± s is 0.9 s, and the fit's own terms widen it a little."""
    assert CostModel(scattered(scatter)).spread == pytest.approx(0.9 * scatter, rel=0.25)


def test_measurements_that_a_fit_runs_through_tell_nothing_of_their_error() -> None:
    one_round = measurements(generation(16, shared=0.5), generation(64), generation(128))
    lone = replace(one_round, updates=one_round.updates[:1])  # of one micro-batch
    assert CostModel(lone).spread is None


def test_the_spread_and_the_doubts_are_in_the_json() -> None:
    plan = make_plan(scattered(0.5))
    checks = [check_of(1.0, 1.0), check_of(1.0, 2.0)]
    result = json.loads(json.dumps(to_json(plan, checks, "a machine")))
    assert result["spread"] > 0.3 and len(result["doubts"]) == 2
    gain = (plan.best.share / plan.own.share) ** 1.5
    assert result["measured_relative_progress"] == pytest.approx(2 * gain)  # the own choice took twice as long


def test_a_plan_without_repeats_says_that_its_error_is_not_known() -> None:
    few = replace(scattered(0.1), generation=(generation(64),), updates=updates()[-1:])
    result = to_json(make_plan(few), (), "a machine")
    assert NO_REPEATS in result["unknown"] and result["spread"] is None and result["doubts"] == []


def check_of(predicted: float, measured: float) -> Verification:
    return Verification(predicted=predicted, measured=measured, low=measured, high=measured, num_steps=5, stages={})


@pytest.mark.parametrize(
    ("spread", "ratio", "wanted"),
    [
        (0.05, 1.0, []),
        (None, None, []),
        (0.05, 1.24, []),
        (0.6, 1.0, ["±60%"]),
        (0.05, 0.31, ["0.31 times"]),
        (0.05, 1.7, ["1.70 times"]),
        (0.6, 1.7, ["repeats", "predicted"]),
    ],
)
def test_each_doubt_is_named_with_its_number(spread: float | None, ratio: float | None, wanted: list[str]) -> None:
    found = doubts(spread, [] if ratio is None else [check_of(ratio, 1.0)])
    assert len(found) == len(wanted) and all(text in doubt for text, doubt in zip(wanted, found, strict=True))
