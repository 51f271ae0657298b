from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from plan_records import from_pass_rate

from podsrl.plan.rewards import Seen
from podsrl.plan.value import GradientProbe, Teaching, gradient_probe, noise_range, noise_ratio, teaching
from podsrl.select import max_variance


def probe_of(taught: Teaching, squared_norm: float) -> GradientProbe:
    return GradientProbe(
        num_kept=taught.num_kept, squared_norm=squared_norm, squared_signal=taught.squared_signal, noise=taught.noise
    )


def groups_of(rewards: list[list[float]]) -> Seen:
    values = np.array(rewards)
    return Seen(rewards=values, lengths=np.full(values.shape, 7.0), is_correct=values >= 1)


def test_signal_is_the_standard_deviation_of_the_kept_rewards() -> None:
    # 2 → both kept of (1, 0): mean 0.5, ddof-1 deviation √½, advantages ±0.5 / (√½ + 1e-4).
    a = 0.5 / (0.5**0.5 + 1e-4)
    result = teaching(groups_of([[1, 0, 0, 0]]), 4, 2, rule=max_variance)
    assert result.signal == pytest.approx(a * 0.5)
    assert result.squared_signal == pytest.approx((a * 0.5) ** 2)
    assert result.noise == pytest.approx(2 * a**2 / 4)
    assert (result.trained_rows, result.trained_tokens, result.signal_share) == (2, 14, 1)


def test_a_group_of_equal_rewards_has_neither_signal_nor_noise_nor_rows() -> None:
    result = teaching(groups_of([[1, 1, 1, 1], [1, 0, 1, 0]]), 4, 4, rule=max_variance, advantage="none")
    # The second alone: advantages ±½, signal ¼, noise 4 · ¼ / 16; halved by the first.
    assert result.signal == pytest.approx(0.25 / 2)
    assert result.noise == pytest.approx(0.0625 / 2)
    assert (result.trained_rows, result.signal_share) == (2, 0.5)
    assert teaching(groups_of([[1, 1, 1, 1]]), 4, 2, rule=max_variance).share(1.0) == 0.0


def test_chunks_are_selected_and_normalised_alone() -> None:
    rewards = [[1.0, 0, 0, 0, 1, 1, 1, 1]]
    result = teaching(groups_of(rewards), 8, 4, rule=max_variance, advantage="none", num_chunks=2)
    # First chunk keeps (1, 0): signal 1/4, noise 2 · ¼ / 4; the second is all equal. Means over both chunks, and half
    # the noise again since two independent ones are averaged.
    assert result.signal == pytest.approx(0.125)
    assert result.noise == pytest.approx(0.125 / 2 / 2)
    assert result.trained_rows == 2


def test_value_equals_the_exact_expectation_over_all_outcomes() -> None:
    # n = 4 → 2 at pass rate 0.3: the kept pair is (0, 1) unless all four are equal, which has probability .3⁴ + .7⁴.
    exact = sum(
        0.3 ** sum(o) * 0.7 ** (4 - sum(o)) * (0.5 * 0.5 / (0.5**0.5 + 1e-4))
        for o in product((0, 1), repeat=4)
        if 0 < sum(o) < 4
    )
    drawn = from_pass_rate(0.3, 1000.0).draw(4, 20_000)
    assert teaching(drawn, 4, 2, rule=max_variance).signal == pytest.approx(exact, rel=0.01)


def test_the_share_of_signal_matches_a_simulated_gradient() -> None:
    """Independent twin: scores with a known direction and noise make real gradients; mean over root mean square."""
    generator = np.random.default_rng(0)
    noise, width, draws = 1.5, 40, 6000
    rewards = (generator.random((draws, 16)) < 0.25).astype(np.float64)
    drawn = groups_of(rewards.tolist())
    direction = np.zeros(width)
    direction[0] = 1.0
    # Score of a rollout: d · (r - p) + noise of total variance κ |d|².
    scores = (rewards - 0.25)[..., None] * direction + generator.normal(size=(draws, 16, width)) * (
        noise / width
    ) ** 0.5
    kept = max_variance(torch.tensor(rewards), 4).numpy()
    r = np.take_along_axis(rewards, kept, 1)
    a = (r - r.mean(1, keepdims=True)) / (r.std(1, ddof=1, keepdims=True) + 1e-4)
    gradients = (a[..., None] * np.take_along_axis(scores, kept[..., None], 1)).mean(1)
    twin = gradients.mean(0)[0] / np.sqrt((gradients**2).sum(1).mean())
    assert teaching(drawn, 16, 4, rule=max_variance).share(noise) == pytest.approx(twin, rel=0.02)


def test_the_noise_ratio_is_recovered_from_gradient_norms_at_several_m() -> None:
    drawn = from_pass_rate(0.1, 50.0).draw(64, 400)
    probes = []
    for m in (2, 4, 16, 64):
        taught = teaching(drawn, 64, m, rule=max_variance)
        for scatter in (0.8, 1.2):
            squared = scatter * 0.3 * (taught.squared_signal + 2.5 * taught.noise)
            probes.append(probe_of(taught, squared))
    assert noise_ratio(probes) == pytest.approx(2.5, rel=1e-6)


def test_no_noise_ratio_is_claimed_from_two_sizes_or_without_gradients() -> None:
    probe = GradientProbe(num_kept=2, squared_norm=1.0, squared_signal=0.2, noise=0.1)
    still = GradientProbe(num_kept=2, squared_norm=0.0, squared_signal=0.0, noise=0.0)
    assert noise_ratio([probe, replace(probe, num_kept=4)]) is None
    assert noise_ratio([replace(still, num_kept=m) for m in (2, 4, 8)]) is None


def test_a_gradient_probe_averages_over_groups_and_counts_empty_ones() -> None:
    probe = gradient_probe(
        [[1, 0, 0], []], [[1, 0], []], [torch.tensor([0.5, -0.5]), torch.tensor([])], 3.0, num_kept=2
    )
    # Signal of the first: (½ · (1 - ⅓) - ½ · (0 - ⅓)) / 2 = ¼; noise (¼ + ¼) / 4.
    assert probe.squared_norm == 9.0
    assert probe.squared_signal == pytest.approx(0.25**2 / 2)
    assert probe.noise == pytest.approx(0.125 / 2)
    half = torch.tensor([0.5, -0.5])
    chunked = gradient_probe([[1, 0], [1, 0]], [[1, 0], [1, 0]], [half, half], 3.0, num_kept=4, num_chunks=2)
    assert chunked.squared_signal == pytest.approx(0.25**2)
    assert chunked.noise == pytest.approx(0.125 / 2)


def gradients(*steps: tuple[float, float]) -> list[list[GradientProbe]]:
    """Probes of each step at four m, with a squared norm of α · signal² + γ · noise for its own (α, γ)."""
    drawn = from_pass_rate(0.1, 50.0).draw(64, 400)
    taught = [teaching(drawn, 64, m, rule=max_variance) for m in (2, 4, 16, 64)]
    return [[probe_of(each, a * each.squared_signal + c * each.noise) for each in taught] for a, c in steps]


def test_the_noise_ratio_has_the_range_of_the_steps_that_it_was_measured_on() -> None:
    """Two steps of κ = 0.5 and 8: a quarter of the resamples has the one alone, a quarter the other, half both."""
    assert noise_range(gradients((1.0, 0.5), (1.0, 8.0))) == pytest.approx((0.5, 8.0), rel=1e-6)
    assert noise_range(gradients((1.0, 2.0), (2.0, 4.0))) == pytest.approx((2.0, 2.0), rel=1e-6)


def test_a_noise_ratio_of_one_step_has_no_range_and_one_without_signal_no_upper_end() -> None:
    assert noise_range(gradients((1.0, 0.5))) is None
    assert noise_range(gradients((1.0, 0.5), (0.0, 1.0))) == pytest.approx((0.5, 1000.0), rel=1e-6)
