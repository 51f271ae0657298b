"""How unsure a plan's seconds are, by made-up timings whose scatter is known."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from plan_records import from_pass_rate, generation, measurements, update, updates

from podsrl.cli.plan import _price
from podsrl.config.load import load_config
from podsrl.plan.cost import CostModel
from podsrl.plan.measured import Measurements
from podsrl.plan.price import LEAST_MS, machine_costs, machine_price
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
    plan = replace(make_plan(scattered(0.5)), price=machine_price(priced(500, 2000)))
    checks = [check_of(1.0, 1.0), check_of(1.0, 2.0)]
    result = json.loads(json.dumps(to_json(plan, checks, "a machine")))
    assert result["spread"] > 0.3 and len(result["doubts"]) == 2
    assert result["price"]["point"] == pytest.approx(0.2) and result["price"]["spread"] == pytest.approx([0.1075, 0.57])
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


def priced(*trained_tokens: int, epochs: int = 1) -> Measurements:
    """Two steps at n = 64: 1,000 tokens in 2 and 3 ms; updates of 10 ms, and steps of other sizes that do not count."""
    steps = [generation(n, generated=1000, generate_seconds=s) for n, s in ((64, 0.002), (64, 0.003), (16, 9.0))]
    own = [replace(update(16, 1024, 9, tokens), update_seconds=0.01) for tokens in trained_tokens]
    others = [update(4, 1024, 9, 100), replace(update(16, 1024, 9, 1), num_rollouts=128), update(16, 4096, 9, 100)]
    config = load_config("pods", ["optim.micro_batch_tokens=1024", f"optim.num_epochs={epochs}"])
    return replace(measurements(*steps), config=config, updates=(*own, *others))


def test_the_price_is_a_generated_tokens_time_over_a_trained_ones() -> None:
    """2 and 3 µs per generated token; 10 ms over 500, 2,000 and no tokens are 20 and 5 µs per trained one."""
    price = machine_price(priced(500, 2000, 0))
    assert price is not None and price.spread is not None
    assert price.generated_token_seconds == pytest.approx(2.5e-6)
    assert price.trained_token_seconds == pytest.approx(12.5e-6)
    assert price.point == pytest.approx(0.2)
    # The four ratios are 0.1, 0.15, 0.4, 0.6; the 5 % point is 0.15 of the way from the first to the second.
    assert price.spread == pytest.approx((0.1075, 0.57))
    twice = machine_price(priced(500, 2000, epochs=2))
    assert twice is not None and twice.point == pytest.approx(0.4)


def test_a_price_of_one_step_has_no_spread_and_without_trained_tokens_there_is_none() -> None:
    once, none = machine_price(priced(500)), machine_price(priced(0))
    assert once is not None and once.point == pytest.approx(0.125) and once.spread is None
    assert none is None and "not known" in _price(none)


def test_the_price_in_words_names_the_option_that_takes_it() -> None:
    price = machine_price(priced(500, 2000))
    assert price is not None and _price(asdict(price)) == (
        "price: a generated token takes 0.2 times as long as a trained one (0.11 to 0.57 by step; 2.5 µs over "
        "12.5 µs); its column in a comparison: pods compare CONFIG --prices=[0.2]"
    )


def lines(rounds: int = 3, scatter: float = 0.0, row_seconds: float = 1e-4) -> Measurements:
    """Generation of 13 ms and 0.15125 ms per rollout (`generation`); an update of 6 ms and so much per row."""
    random = np.random.default_rng(0)
    of_update = [
        replace(update(m, 4096, rows, 0), update_seconds=0.005 + row_seconds * rows, select_seconds=0.001)
        for m, rows in ((2, 10), (4, 30), (16, 100))
    ]
    steps = [generation(n, disturbed=float(random.uniform(1 - scatter, 1 + scatter))) for n in (16, 64, 128) * rounds]
    return replace(
        measurements(*steps),
        config=load_config("pods", ["optim.micro_batch_tokens=4096"]),
        updates=tuple(of_update * rounds),
    )


def test_the_costs_are_the_lines_that_were_put_in() -> None:
    costs = machine_costs(lines())
    assert costs is not None and costs.model == "builtin:arithmetic"
    # (13 + 6) ms over 8 groups; 1.21 ms per n over 8 groups; 0.1 ms
    found = [costs.group_ms, costs.rollout_ms, costs.row_ms, costs.spread]
    assert found == pytest.approx([2.375, 0.15125, 0.1, 0.0], rel=1e-3, abs=1e-9)


def test_costs_of_a_busy_machine_have_a_spread_and_one_that_does_not_show_has_all_of_it() -> None:
    quiet, busy = machine_costs(lines(6, scatter=0.03)), machine_costs(lines(6, scatter=0.6))
    flat = machine_costs(lines(row_seconds=0.0))
    assert quiet is not None and busy is not None and flat is not None
    assert 0 < quiet.spread < 0.3 < busy.spread
    assert flat.row_ms == LEAST_MS and flat.spread == 1.0


def test_costs_of_a_busy_machine_have_a_spread_without_repeats_too() -> None:
    quiet, busy, few = lines(1, scatter=0.03), lines(1, scatter=0.6), lines(1)
    spreads = [costs.spread for each in (quiet, busy) if (costs := machine_costs(each)) is not None]
    assert 0 < spreads[0] < 0.1 < 0.3 < spreads[1]
    two = machine_costs(replace(few, generation=few.generation[:2]))  # a line of two points has no distance to them
    assert two is not None and two.spread == 1.0


def test_one_size_tells_no_costs() -> None:
    one = replace(lines(), generation=(generation(64),) * 3)
    assert machine_costs(one) is None and machine_costs(replace(lines(), updates=lines().updates[:1])) is None
