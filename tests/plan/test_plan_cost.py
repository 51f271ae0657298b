"""The cost model on a made-up machine: its seconds, how unsure they are, and the constants of `[costs]`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_records import LENGTH, P, measurements, scattered, step, update

from podsrl.plan.cost import CostModel
from podsrl.plan.measured import Measurements
from podsrl.plan.value import Teaching


def taught(m: int, rows: float, tokens: float) -> Teaching:
    found = {"signal": 0.5, "squared_signal": 0.25, "noise": 0.1, "signal_share": 1.0}
    return Teaching(num_kept=m, trained_rows=rows, trained_tokens=tokens, **found)


def test_every_stage_of_an_unmeasured_choice_is_the_sum_of_its_counts() -> None:
    # Shared rows fall with n as 4 / √n, so that forwarded and generated tokens can be told apart.
    model = CostModel(measurements(*(step(n, shared=4 / n**0.5) for n in (16, 64, 128))))
    seconds = model.seconds(32, taught(8, 6.0, 280.0), LENGTH)
    generated = P * 32 * LENGTH
    assert seconds.generate == pytest.approx(0.01 + 2e-6 * generated * 4 / 32**0.5 + 1e-6 * generated, rel=1e-3)
    assert seconds.score == pytest.approx(0.001 + 1e-5 * 32)
    assert seconds.select == pytest.approx(0.001 + 1e-5 * 32 + 2e-5 * 8)
    assert seconds.update == pytest.approx(0.005 + 1e-4 * 8 * 6 + 1e-5 * 8 * 280)
    assert seconds.rest == pytest.approx(0.002)
    assert seconds.total == pytest.approx(sum([seconds.generate, seconds.score, seconds.select, seconds.update, 0.002]))


def test_a_generated_token_gets_cheaper_with_rows_and_then_no_more() -> None:
    model = CostModel(measurements(*(step(n) for n in (4, 16, 64, 256))))
    per_token = [
        model.seconds(n, taught(2, 1.0, 1.0), LENGTH).generate / (P * n * LENGTH) for n in (1, 8, 64, 256, 512)
    ]
    assert per_token == sorted(per_token, reverse=True)
    assert per_token[-1] == pytest.approx(3e-6, rel=0.05)  # the fixed part is spread over all
    assert per_token[0] > 8 * per_token[-1]


def test_a_disturbed_step_does_not_change_the_prediction() -> None:
    quiet = [step(n, shared=s * 4 / n**0.5) for n in (16, 64, 128) for s in (0.95, 1.0, 1.05)]
    loud = [*quiet, step(64, shared=0.5, disturbed=4.0)]
    a, b = (CostModel(measurements(*steps)) for steps in (quiet, loud))
    what = taught(8, 6.0, 280.0)
    assert b.seconds(32, what, LENGTH).generate == pytest.approx(a.seconds(32, what, LENGTH).generate, rel=1e-6)


def test_decode_steps_grow_where_not_all_rollouts_run_at_once() -> None:
    # With room for 64 rollouts of a step, n = 16, 32, 64 take 2, 4 and 8 passes of 100 steps.
    steps = [step(n, decode_steps=100 * n // 8, generate_seconds=1e-2 * n / 8) for n in (16, 32, 64)]
    assert CostModel(measurements(*steps)).seconds(128, taught(2, 1.0, 1.0), LENGTH).generate == pytest.approx(0.16)


@pytest.mark.parametrize("scatter", [0.02, 0.1, 0.4])
def test_the_spread_is_the_scatter_that_was_put_in(scatter: float) -> None:
    """Half the middle 90 % of 1 ± s is 0.9 s, and the fit's own terms widen it a little."""
    assert CostModel(scattered(scatter)).spread == pytest.approx(0.9 * scatter, rel=0.25)


def test_measurements_that_a_fit_runs_through_tell_nothing_of_their_error() -> None:
    assert CostModel(measurements(step(64))).spread is None


def lines(row_seconds: float = 1e-4, rounds: int = 3) -> Measurements:
    """Generation of 13 ms and 0.15125 ms per rollout (`step`); an update of 6 ms and so much per row."""
    own = tuple(
        update(m, rows, 0, update_seconds=0.005 + row_seconds * rows, select_seconds=0.001)
        for m, rows in ((2, 10), (4, 30), (16, 100))
    )
    return measurements(*(step(n, updates=own) for n in (16, 64, 128) * rounds))


def test_the_costs_are_the_lines_that_were_put_in() -> None:
    costs = CostModel(lines()).constants()
    assert costs is not None and costs.model == "builtin:arithmetic"
    # (13 + 6) ms over 8 groups; 1.21 ms per n over 8 groups; 0.1 ms
    found = [costs.group_ms, costs.rollout_ms, costs.row_ms, costs.spread]
    assert found == pytest.approx([2.375, 0.15125, 0.1, 0.0], rel=1e-3, abs=1e-9)


def test_costs_of_a_busy_machine_have_a_spread_and_one_that_does_not_show_has_all_of_it() -> None:
    quiet, busy, flat = (CostModel(each).constants() for each in (scattered(0.03), scattered(0.6), lines(0.0)))
    assert quiet is not None and busy is not None and flat is not None
    assert 0 < quiet.spread < 0.3 < busy.spread
    assert flat.row_ms == 1e-4 and flat.spread == 1.0


def test_one_size_tells_no_costs() -> None:
    one = replace(lines(), steps=(step(64),) * 3)
    alike = replace(lines(), steps=tuple(step(n, updates=(update(16, 9, 90),)) for n in (16, 64)))
    assert CostModel(one).constants() is None and CostModel(alike).constants() is None
