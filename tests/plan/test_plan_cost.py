from __future__ import annotations

import pytest
from plan_records import LENGTH, P, generation, measurements

from podsrl.plan.cost import CostModel
from podsrl.plan.value import Teaching


def taught(m: int, rows: float, tokens: float) -> Teaching:
    return Teaching(
        num_kept=m,
        signal=0.5,
        squared_signal=0.25,
        noise=0.1,
        signal_share=1.0,
        trained_rows=rows,
        trained_tokens=tokens,
    )


def test_every_stage_of_an_unmeasured_choice_is_the_sum_of_its_counts() -> None:
    # Shared rows fall with n as 4 / √n, so that forwarded and generated tokens can be told apart.
    model = CostModel(measurements(*(generation(n, shared=4 / n**0.5) for n in (16, 64, 128))))
    seconds = model.seconds(32, 4096, taught(8, 6.0, 280.0), LENGTH)
    generated = P * 32 * LENGTH
    assert seconds.generate == pytest.approx(0.01 + 2e-6 * generated * 4 / 32**0.5 + 1e-6 * generated, rel=1e-3)
    assert seconds.score == pytest.approx(0.001 + 1e-5 * 32)
    assert seconds.select == pytest.approx(0.001 + 1e-5 * 64 + 2e-5 * 8, rel=0.3)  # all updates had n = 64
    assert seconds.update == pytest.approx(0.005 + 1e-4 * 8 * 6 + 1e-5 * 8 * 280)
    assert seconds.rest == pytest.approx(0.002)
    assert seconds.total == pytest.approx(sum([seconds.generate, seconds.score, seconds.select, seconds.update, 0.002]))


def test_each_micro_batch_has_its_own_line() -> None:
    model = CostModel(measurements(generation(16), generation(64)))
    assert model.micro_batches == (1024, 4096)
    what = taught(16, 10.0, 1000.0)
    small, large = (model.seconds(64, micro, what, LENGTH).update for micro in model.micro_batches)
    assert small - large == pytest.approx(8 * 1000 * 1e-5)


def test_a_generated_token_gets_cheaper_with_rows_and_then_no_more() -> None:
    model = CostModel(measurements(*(generation(n) for n in (4, 16, 64, 256))))
    per_token = [
        model.seconds(n, 4096, taught(2, 1.0, 1.0), LENGTH).generate / (P * n * LENGTH) for n in (1, 8, 64, 256, 512)
    ]
    assert per_token == sorted(per_token, reverse=True)
    assert per_token[-1] == pytest.approx(3e-6, rel=0.05)  # the fixed part is spread over all
    assert per_token[0] > 8 * per_token[-1]


def test_a_disturbed_step_does_not_change_the_prediction() -> None:
    quiet = [generation(n, shared=s * 4 / n**0.5) for n in (16, 64, 128) for s in (0.95, 1.0, 1.05)]
    loud = [*quiet, generation(64, shared=0.5, disturbed=4.0)]
    a, b = (CostModel(measurements(*probes)) for probes in (quiet, loud))
    what = taught(8, 6.0, 280.0)
    assert b.seconds(32, 4096, what, LENGTH).generate == pytest.approx(
        a.seconds(32, 4096, what, LENGTH).generate, rel=1e-6
    )


def test_decode_steps_grow_where_not_all_rollouts_run_at_once() -> None:
    # With room for 64 rollouts of a step, n = 16, 32, 64 take 2, 4 and 8 passes of 100 steps.
    probes = [generation(n, decode_steps=100 * n // 8, generate_seconds=1e-2 * n / 8) for n in (16, 32, 64)]
    model = CostModel(measurements(*probes))
    assert model.seconds(128, 4096, taught(2, 1.0, 1.0), LENGTH).generate == pytest.approx(0.16)


def test_memory_is_a_line_in_the_micro_batch_and_says_what_fits() -> None:
    model = CostModel(measurements(generation(16), peaks=True))
    assert model.update_bytes(8192) == pytest.approx(10**9 + 1000 * 8192)
    assert model.largest_micro_batch(1.5e9) == pytest.approx(500_000, abs=1)
    assert model.largest_micro_batch(5e8) == 0
    assert CostModel(measurements(generation(16))).update_bytes(8192) is None


def test_key_value_memory_uses_the_least_of_each_n_since_a_pool_is_kept() -> None:
    probes = [generation(16), generation(64), generation(16, kv_bytes=64_000)]
    assert CostModel(measurements(*probes)).kv_bytes(32) == pytest.approx(32_000)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="columns of shape"):
        CostModel(measurements())
