"""Corrections for tokens of other weights: published formulas written out, in float64, and whole updates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import make_model
from torch import Tensor

from loops import each
from made import sample
from podsrl.config.load import load_config
from podsrl.config.schema import OptimConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.scale.update import combine_stats
from podsrl.update import ALGORITHMS, Batch, Correction, Updater, UpdateStats, make_batch, policy_loss
from podsrl.update.average import Average
from podsrl.update.correct import least_variance, rate_of
from podsrl.update.loss import MAX_LOG_RATIO

BOUNDS = {"clip_low": 0.2, "clip_high": 0.28}
LOW, HIGH = 0.8, 1.28


def drawn(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-probs of the policy, at the update's start and of the behaviour [5, 7], advantages [5], mask."""
    rng = torch.Generator().manual_seed(seed)
    now, start, behaviour = (-3 * torch.rand(5, 7, generator=rng, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(5, 7, generator=rng) < 0.8
    return now.requires_grad_(), start, behaviour, torch.randn(5, generator=rng, dtype=torch.float64), mask


def batch_of(behaviour: Tensor, mask: Tensor, start: Tensor | None = None) -> Batch:
    """What a correction reads of a batch."""
    [rows, width] = mask.shape
    made = make_batch([sample([1], range(1, width))] * rows, pad_token_id=0)
    return replace(made, behaviour_logprobs=behaviour, target_mask=mask, start_logprobs=start)


def corrected(correction: Correction, *inputs: Tensor) -> tuple[Tensor, Any]:
    now, start, behaviour, advantages, mask = inputs
    batch = replace(batch_of(behaviour, mask, start), advantages=advantages)
    proximal = correction.proximal_of(now, batch)
    weights = correction.weights_of(now, proximal, batch).weights
    return policy_loss(
        now, behaviour, advantages, mask, proximal_logprobs=proximal, token_weights=weights, aggregate="token_mean",
        **BOUNDS,
    )  # fmt: skip


def close(one: Tensor, other: Tensor, now: Tensor) -> None:
    """Two losses and their gradients."""
    assert abs(one.item() - other.item()) < 1e-12
    grads = [torch.autograd.grad(loss, now, retain_graph=True)[0] for loss in (one, other)]
    assert (grads[0] - grads[1]).abs().max() < 1e-12


@each("seed", range(50))
def test_decoupled_ppo_is_the_objective_of_ppo_ewma_around_the_same_policy(seed: int) -> None:
    now, start, behaviour, advantages, mask = drawn(seed)
    loss, stats = corrected(Correction(proximal="step_start", weight="full"), now, start, behaviour, advantages, mask)
    # openai/ppo-ewma: max(-A exp(new - b), -A exp(clip(new - prox, log(1 - ε), log(1 + ε)) + prox - b))
    bounded = (now - start).clamp(math.log(LOW), math.log(HIGH)) + start - behaviour
    rows = advantages[:, None]
    losses = torch.maximum(-rows * (now - behaviour).exp(), -rows * bounded.exp())
    close(loss, losses[mask].sum() / mask.sum(), now)
    # DOTS: the whole ratio, clipped around that of the step's start
    ratio, center = (now - behaviour).exp(), (start - behaviour).exp()
    losses = -torch.minimum(ratio * rows, torch.minimum(torch.maximum(ratio, center * LOW), center * HIGH) * rows)
    close(loss, losses[mask].sum() / mask.sum(), now)
    assert abs(float(stats["logprob_gap"]) - float((now - behaviour).abs()[mask].sum())) < 1e-12


@each("seed", range(50))
def test_weights_above_the_cap_are_masked_or_lowered_and_still_count(seed: int) -> None:
    now, start, behaviour, advantages, mask = drawn(seed)
    inputs = (now, start, behaviour, advantages, mask)
    cap = 1.5
    for weight in ("mask", "truncate"):
        loss, _ = corrected(Correction(proximal="step_start", weight=weight, cap=cap), *inputs)  # type: ignore[arg-type]
        total = torch.zeros((), dtype=torch.float64)
        for row, column in mask.nonzero().tolist():
            w = math.exp(start[row, column] - behaviour[row, column])
            w = w if w <= cap else 0.0 if weight == "mask" else cap
            ratio, a = (now[row, column] - start[row, column]).exp(), advantages[row]
            total = total + w * torch.maximum(-a * ratio, -a * ratio.clamp(LOW, HIGH))
        close(loss, total / mask.sum(), now)


@each("seed", range(50))
def test_a_row_s_weight_is_the_product_of_its_tokens_and_not_above_the_cap(seed: int) -> None:
    now, start, behaviour, _, mask = drawn(seed)
    batch, correction = batch_of(behaviour, mask, start), Correction(proximal="step_start", weight="sequence", cap=2.0)
    found = correction.weights_of(now, correction.proximal_of(now, batch), batch)
    weights, num_capped = found.weights, found.is_capped.sum()
    assert weights is not None
    products = [math.exp((start[row] - behaviour[row])[mask[row]].sum()) for row in range(5)]
    for row, product in enumerate(products):
        assert torch.allclose(weights[row], torch.tensor(min(product, 2.0), dtype=torch.float64), rtol=1e-12)
    assert int(num_capped) == sum(int(mask[row].sum()) for row, product in enumerate(products) if product > 2)


@each("seed", range(50))
def test_an_interpolated_policy_widens_the_bound_of_the_whole_ratio(seed: int) -> None:
    now, start, behaviour, advantages, mask = drawn(seed)
    share = 0.25
    correction = Correction(proximal="interpolated", share=share)
    _, stats = corrected(correction, now, start, behaviour, advantages, mask)
    whole, rows = (now - behaviour).exp(), advantages[:, None].expand(5, 7)
    is_clipped = (whole > HIGH ** (1 / share)) & (rows > 0) | (whole < LOW ** (1 / share)) & (rows < 0)
    assert int(stats["clipped"]) == int((is_clipped & mask).sum())


@each("seed", range(20))
def test_around_the_behaviour_policy_all_is_as_without(seed: int) -> None:
    now, _, behaviour, advantages, mask = drawn(seed)
    plain, stats = policy_loss(now, behaviour, advantages, mask, aggregate="token_mean", **BOUNDS)
    same = {
        Correction(): behaviour,
        Correction(proximal="step_start", weight="mask"): behaviour,  # the weights have not changed since the draw
        Correction(proximal="interpolated", weight="truncate", share=1.0): behaviour,
    }
    for correction, start in same.items():
        loss, others = corrected(correction, now, start, behaviour, advantages, mask)
        assert torch.equal(loss, plain) and all(torch.equal(others[name], stats[name]) for name in stats)  # type: ignore[literal-required]


def test_an_infinite_difference_gives_a_finite_weight() -> None:
    behaviour, mask = torch.tensor([[-200.0, 0.0]]), torch.tensor([[True, False]])
    batch = batch_of(behaviour, mask, torch.tensor([[0.0, math.nan]]))
    for weight, wanted in (("full", math.exp(MAX_LOG_RATIO)), ("mask", 0.0), ("sequence", 5.0)):
        correction = Correction(proximal="step_start", weight=weight)  # type: ignore[arg-type]
        found = correction.weights_of(behaviour, correction.proximal_of(behaviour, batch), batch)
        assert found.weights is not None and found.weights[0, 0] == pytest.approx(wanted)
        assert int(found.is_capped.sum()) == (weight != "full")


# --- whole updates ---


def trained(correction: Correction, num_steps: int, *, lr: float = 1e-2, micro: int = 8192) -> tuple[Any, ...]:
    """Weights and stats after so many steps on one batch, of which every token was drawn by other weights."""
    model = make_model()
    optim = OptimConfig(lr=lr, micro_batch_tokens=micro)
    updater = Updater(model, optim, loss=ALGORITHMS["grpo"].loss, correction=correction)
    rows = [
        sample([1, 2], [3 + i, 4, 5 + i][: 1 + i % 3], i - 2.0, logprobs=(-0.5 - i,) * (1 + i % 3)) for i in range(6)
    ]
    batch = make_batch(rows, pad_token_id=0)
    if correction.reads_start(num_steps):
        batch = updater.with_start(batch)
    for _ in range(num_steps):
        stats = updater.forward_backward(batch)
        updater.optim_step(stats)
    return [weight.detach().clone() for weight in model.parameters()], stats, batch


def test_the_start_of_one_step_is_the_forward_itself_and_of_several_is_kept() -> None:
    correction = Correction(proximal="step_start", weight="truncate", cap=2.0)
    _, stats, _ = trained(correction, 1)
    assert stats.ratio_max == 1.0 and 0 < stats.capped_fraction < 1
    _, later, batch = trained(correction, 3)
    assert later.ratio_max != 1.0 and later.capped_fraction == stats.capped_fraction  # the weights stand still
    assert batch.start_logprobs is not None
    skipped = ~batch.has_advantage()  # its row does not run
    assert skipped.any() and not batch.start_logprobs[skipped].any()
    assert (batch.start_logprobs[batch.target_mask & ~skipped[:, None]] < 0).all()


def test_micro_batches_change_no_start() -> None:
    correction = Correction(proximal="step_start", weight="mask")
    (one, _, whole), (other, _, cut) = (trained(correction, 3, micro=micro) for micro in (8192, 4))
    assert torch.allclose(whole.start_logprobs, cut.start_logprobs, atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, other, strict=True))


# --- averages of weights ---


class Two(torch.nn.Module):
    """A trained weight and a frozen one."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
        self.frozen = torch.nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)

    def set(self, value: Tensor) -> None:
        with torch.no_grad():
            self.a.copy_(value)


def averaged(average: Average, model: Two) -> Tensor:
    with average.applied():
        return model.a.detach().clone()


@each("seed, window", [(seed, window) for seed in range(10) for window in (0.0, 0.5, 2.0, 8.0)])
def test_an_average_is_the_weighted_sum_over_all_versions_since_the_reset(seed: int, window: float) -> None:
    rng, model, decay = torch.Generator().manual_seed(seed), Two(), window / (window + 2)
    average, versions = Average(model, window), [model.a.detach().clone()]
    for number in range(12):
        model.set(torch.randn(3, generator=rng, dtype=torch.float64))
        newest = model.a.detach().clone()
        if number == 7:
            average.reset()
            versions = [newest]
            assert torch.equal(averaged(average, model), newest)
        else:
            average.add()
            versions.append(newest)
        weights = [decay ** (len(versions) - 1 - k) for k in range(len(versions))]
        wanted = sum(w * version for w, version in zip(weights, versions, strict=True)) / sum(weights)
        assert torch.allclose(averaged(average, model), wanted, rtol=0, atol=1e-12)
        assert torch.equal(model.a, newest), "the weights are back"
        assert window or torch.equal(averaged(average, model), newest)


def test_the_mean_age_of_an_average_comes_near_the_middle_of_its_window() -> None:
    decay = 8 / 10
    ages = sum(decay**age * age for age in range(400)) / sum(decay**age for age in range(400))
    model = Two()
    average = Average(model, 8.0)
    for version in range(1, 401):
        model.set(torch.full((3,), float(version), dtype=torch.float64))
        average.add()
    assert 400 - averaged(average, model)[0].item() == pytest.approx(ages) == pytest.approx(4.0)


def test_constant_weights_are_their_average_bit_for_bit() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        model = Two(dtype)
        model.set(torch.tensor([0.1, 1 / 3, 1e-9]))
        average = Average(model, 3.0)
        for _ in range(50):
            average.add()
        assert torch.equal(averaged(average, model), model.a)


def test_an_average_goes_on_from_its_state_and_refuses_that_of_another_model() -> None:
    model = Two()
    average = Average(model, 2.0)
    model.set(torch.tensor([1.0, 2.0, 3.0]))
    average.add()
    tensors, numbers = average.state_dict()
    again = Average(model, 2.0)
    again.load_state_dict({name: value.clone() for name, value in tensors.items()}, numbers)
    for each_average in (average, again):
        model.set(torch.tensor([5.0, -2.0, 0.3]))
        each_average.add()
    assert torch.equal(averaged(average, model), averaged(again, model)) and set(tensors) == {"average/a"}
    for other in ({}, {"average/b": torch.zeros(3)}, {"average/a": torch.zeros(2)}):
        with pytest.raises(CheckpointError, match="lacks the average of the weights"):
            again.load_state_dict(other, numbers)


def test_an_average_of_the_newest_version_is_the_step_s_start_bit_for_bit() -> None:
    newest, start = (
        trained(Correction(proximal=proximal, weight="full", window=0.0, reset=0.0), 3)  # type: ignore[arg-type]
        for proximal in ("average", "step_start")
    )
    assert all(torch.equal(one, other) for one, other in zip(newest[0], start[0], strict=True))


def test_a_batch_without_log_probs_under_the_average_is_refused() -> None:
    now, _, behaviour, _, mask = drawn(0)
    with pytest.raises(UsageError, match="log-probs under averaged weights, and the batch has none"):
        Correction(proximal="average").proximal_of(now, batch_of(behaviour, mask))


def test_too_few_tokens_with_a_gradient_begin_the_average_again() -> None:
    updater = Updater(
        make_model(), OptimConfig(lr=1e-2), loss=ALGORITHMS["grpo"].loss, correction=Correction(proximal="average")
    )
    assert updater.average is not None
    for limited, count in ((0.09, 3), (0.11, 1)):
        updater.average.count = 3
        updater.end_update(UpdateStats(limited_fraction=limited, num_trained_tokens=10))
        assert updater.average.count == count
    updater.average.count = 3
    updater.end_update(UpdateStats(limited_fraction=1.0))  # no token was trained on
    assert updater.average.count == 3


@each("weight, micro", [(weight, micro) for weight in ("truncate", "mask") for micro in (8192, 4)])
def test_a_token_that_is_bounded_and_capped_is_limited_once(weight: Any, micro: int) -> None:
    """Drawn at log-probs of -9, all tokens are capped; those with a positive advantage are bounded, too."""
    updater = Updater(
        make_model(),
        OptimConfig(lr=1e-2, micro_batch_tokens=micro),
        loss=ALGORITHMS["grpo"].loss,
        correction=Correction(proximal="interpolated", weight=weight, cap=1.5),
    )
    rows = [sample([1, 2], [3 + i, 4], 1.0 if i % 2 else -1.0, logprobs=(-9.0, -9.0)) for i in range(4)]
    stats = updater.forward_backward(make_batch(rows, pad_token_id=0))
    assert (stats.clip_fraction, stats.capped_fraction, stats.limited_fraction) == (0.5, 1.0, 1.0)
    parts = [stats, UpdateStats(capped_fraction=0.0, limited_fraction=0.5, num_trained_tokens=8)]
    assert combine_stats(parts).limited_fraction == 0.75


# --- what is dropped, and the rate ---


@each("seed", range(30))
def test_tokens_of_bad_answers_that_have_become_unlikely_lose_their_gradient_and_count(seed: int) -> None:
    now, start, behaviour, advantages, mask = drawn(seed)
    loss, _ = corrected(Correction(drop="far_negative", max_kl=1.5), now, start, behaviour, advantages, mask)
    total = torch.zeros((), dtype=torch.float64)
    num_dropped = 0
    for row in range(5):
        far = sum(float(behaviour[row, c] - now[row, c]) for c in range(7) if mask[row, c]) > 1.5
        is_dropped = far and advantages[row] < 0
        num_dropped += is_dropped * int(mask[row].sum())
        for column in range(7):
            if mask[row, column] and not is_dropped:
                ratio, a = (now[row, column] - behaviour[row, column]).exp(), advantages[row]
                total = total + torch.maximum(-a * ratio, -a * ratio.clamp(LOW, HIGH))
    close(loss, total / mask.sum(), now)
    batch = replace(batch_of(behaviour, mask), advantages=advantages)
    found = Correction(drop="far_negative", max_kl=1.5).weights_of(now, None, batch)
    assert int(found.num_dropped) == num_dropped


def test_the_rate_is_the_root_of_the_effective_share_of_the_rows() -> None:
    """Rows with the ratios 1, 1, 1 and 3: (1 + 1 + 1 + 3)² / (4 · (1 + 1 + 1 + 9)) = 3 / 4."""
    behaviour = torch.zeros(4, 2, dtype=torch.float64)
    now = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 7.0], [0.0, math.log(3)]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
    batch = batch_of(behaviour, mask)
    whole = Correction(rate="effective").row_sums(now, batch)
    assert rate_of(*map(float, whole), 4) == pytest.approx(math.sqrt(3 / 4))
    far = Correction(rate="effective").row_sums(now - 1000.0, batch_of(behaviour - 0.5, mask))
    assert rate_of(*map(float, far), 4) < 1.0, "no overflow, no underflow"
    alike = Correction(rate="effective").row_sums(behaviour, batch_of(behaviour, mask))
    assert rate_of(*map(float, alike), 4) == 1.0


def test_the_rate_of_processes_and_micro_batches_is_that_of_the_whole() -> None:
    correction = Correction(rate="effective")
    (one, whole, _), (other, cut, _) = (trained(correction, 2, micro=micro) for micro in (8192, 4))
    assert whole.log_weights == pytest.approx(cut.log_weights) and whole.log_squares == pytest.approx(cut.log_squares)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, other, strict=True))
    parts = [
        UpdateStats(log_weights=math.log(2), log_squares=math.log(2), num_trained_rows=2),
        UpdateStats(log_weights=math.log(4), log_squares=math.log(10), num_trained_rows=2),
    ]
    both = combine_stats([*parts, UpdateStats()])  # a process without rows
    assert both.log_weights == pytest.approx(math.log(6)) and both.log_squares == pytest.approx(math.log(12))
    assert both.num_trained_rows == 4


def test_a_lower_rate_makes_a_shorter_step() -> None:
    """AdamW's first step is lr times the sign of the gradient, whatever its length; decay apart."""
    before = [weight.detach().clone() for weight in make_model().parameters()]
    (plain, _, _), (slower, stats, _) = (trained(Correction(rate=rate), 1) for rate in ("constant", "effective"))  # type: ignore[arg-type]
    rate = rate_of(stats.log_weights, stats.log_squares, stats.num_trained_rows)
    assert 0.1 < rate < 0.95
    for a, b, c in zip(before, plain, slower, strict=True):
        assert torch.allclose(c - a, rate * (b - a), atol=1e-5)
    updater = Updater(
        make_model(), OptimConfig(), loss=ALGORITHMS["grpo"].loss, correction=Correction(rate="effective")
    )
    with pytest.raises(UsageError, match=r"correct\.rate = 'effective': wanted optim_step\(stats\)"):
        updater.optim_step()


# --- options ---


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["correct.weight=mask"], "correct.proximal"),
        (["correct.proximal=step_start", "correct.cap=3"], "correct.cap"),
        (["correct.proximal=step_start", "correct.weight=full", "correct.cap=3"], "correct.cap"),
        (["correct.share=0.25"], "correct.share"),
        (["correct.proximal=interpolated", "correct.share=0"], "correct.share"),
        (["correct.proximal=step_start", "correct.weight=mask", "correct.cap=0"], "correct.cap"),
        (["correct.proximal=stepstart"], "correct.proximal"),
        (["correct.window=3"], "correct.window"),
        (["correct.proximal=step_start", "correct.reset=0.5"], "correct.reset"),
        (["correct.max_kl=3"], "correct.max_kl"),
        (["correct.drop=far_negative", "correct.max_kl=0"], "correct.max_kl"),
    ],
)
def test_what_nothing_would_read_is_refused(overrides: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named) as error:
        load_config("pods", overrides)
    assert "\n" not in str(error.value)


# --- the baseline of least variance ---

OFF_POLICY = Correction(proximal="step_start", weight="sequence", cap=2.0, rate="effective", baseline="off_policy")
UNBOUNDED = replace(ALGORITHMS["grpo"].loss, clip="none", clip_low=None, clip_high=None)


def grouped(seed: int) -> tuple[Any, Batch]:
    """A model, and rows of three prompts; all of the last one have the advantage 0."""
    rng, model = torch.Generator().manual_seed(seed), make_model()
    lengths = torch.randint(1, 7, (10,), generator=rng).tolist()
    prompts = [[1, 2], [1, 2], [1, 2], [3], [3], [3], [3], [4, 5], [4, 5], [4, 5]]
    rows = []
    for place, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        tokens = torch.randint(1, 11, (length,), generator=rng).tolist()
        logprobs = (-3 * torch.rand(length, generator=rng)).tolist()
        advantage = 0.0 if place >= 7 else float(torch.randn((), generator=rng))
        rows.append(sample(prompt, tokens, advantage, logprobs=tuple(logprobs)))
    batch = make_batch(rows, pad_token_id=0)
    return model, replace(batch, advantages=batch.advantages.double())


def gradients_of(model: Any, batch: Batch, correction: Correction) -> list[Tensor]:
    updater = Updater(model, OptimConfig(lr=1e-3), loss=UNBOUNDED, correction=correction)
    updater.forward_backward(updater.with_baseline(batch))
    found = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


@each("seed", range(4))
def test_two_buffers_of_gradients_are_advantages_less_the_baseline(seed: int) -> None:
    """VCPO's own form: per prompt the gradients of the rows with their rewards, less b times those with reward 1."""
    model, batch = grouped(seed)
    plain = replace(OFF_POLICY, baseline="none")
    one_by_one = []
    for row in range(10):
        only_this = torch.zeros(10, dtype=torch.float64)
        only_this[row] = 1.0
        one_by_one.append(gradients_of(model, replace(batch, advantages=only_this), plain))
    wanted = [torch.zeros_like(weight) for weight in model.parameters()]
    for rows in (range(3), range(3, 7), range(7, 10)):
        squares = [sum(float((grad**2).sum()) for grad in one_by_one[row]) for row in rows]
        rewards = [float(batch.advantages[row]) for row in rows]
        b = sum(s * r for s, r in zip(squares, rewards, strict=True)) / sum(squares)
        for place, total in enumerate(wanted):
            with_rewards = sum(r * one_by_one[row][place] for r, row in zip(rewards, rows, strict=True))
            with_ones = sum(one_by_one[row][place] for row in rows)
            total += with_rewards - b * with_ones
    found = gradients_of(model, batch, OFF_POLICY)  # the model's norms round to float32 on the way
    assert max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)) < 1e-6
    away = replace(batch, advantages=batch.advantages + torch.tensor([5.0] * 3 + [-2.0] * 4 + [7.0] * 3))
    moved = gradients_of(model, away, OFF_POLICY)
    assert max(float((a - b).abs().max()) for a, b in zip(moved, found, strict=True)) < 1e-5


@each("seed", range(20))
def test_that_holds_to_the_last_bits_of_float64(seed: int) -> None:
    """The same where log-probs are a function of five weights, without a model."""
    rng = torch.Generator().manual_seed(seed)
    _, start, behaviour, rewards, mask = drawn(seed)
    features, theta = torch.randn(5, 7, 5, generator=rng, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    theta.requires_grad_()
    group, correction = torch.tensor([0, 0, 0, 1, 1]), replace(OFF_POLICY, rate="constant")

    def gradient(advantages: Tensor) -> Tensor:
        now = -torch.nn.functional.softplus(features @ theta + start)
        batch = replace(batch_of(behaviour, mask), advantages=advantages)
        proximal = correction.proximal_of(now, batch)
        loss, _ = policy_loss(
            now, behaviour, advantages, mask, proximal_logprobs=proximal, aggregate="sequence_mean", clip="none",
            token_weights=correction.weights_of(now, proximal, batch).weights,
        )  # fmt: skip
        return torch.autograd.grad(loss, theta)[0]

    of_rows = torch.stack([gradient(torch.eye(5, dtype=torch.float64)[row]) for row in range(5)])
    norms, wanted = of_rows.norm(dim=1), torch.zeros(5, dtype=torch.float64)
    for rows in (slice(0, 3), slice(3, 5)):
        of_rewards, of_ones = (rewards[rows, None] * of_rows[rows]).sum(0), of_rows[rows].sum(0)
        b = (norms[rows] ** 2 * rewards[rows]).sum() / (norms[rows] ** 2).sum()
        wanted += of_rewards - b * of_ones
    assert (gradient(least_variance(rewards, norms, group)) - wanted).abs().max() < 1e-12


@each("seed", range(20))
def test_no_other_baseline_has_less_variance(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    norms, advantages = torch.rand(6, generator=rng).double(), torch.randn(6, generator=rng).double()
    group = torch.tensor([0, 0, 0, 0, 5, 5])

    def spread(values: Tensor) -> Tensor:
        return (norms**2 * values**2).sum()

    found = least_variance(advantages, norms, group)
    assert spread(found) <= spread(advantages) + 1e-12
    for shift in (-0.1, 0.01, 0.3):
        for name in (0, 5):
            assert spread(found) < spread(found + shift * (group == name))


def test_gradients_and_rows_without_an_advantage_stay_as_they_are() -> None:
    model, batch = grouped(0)
    updater = Updater(model, OptimConfig(lr=1e-3), loss=UNBOUNDED, correction=OFF_POLICY)
    before = [torch.full_like(weight, 0.5) for weight in model.parameters()]
    for weight, grad in zip(model.parameters(), before, strict=True):
        weight.grad = grad
    found = updater.with_baseline(batch)
    assert all(weight.grad is grad for weight, grad in zip(model.parameters(), before, strict=True))
    assert found.advantages[7:].tolist() == [0.0] * 3 and (found.advantages[:7] != batch.advantages[:7]).all()
    plain = Updater(model, OptimConfig(lr=1e-3), loss=UNBOUNDED)
    assert plain.with_baseline(batch) is batch


def test_a_baseline_wants_gradients_that_are_a_multiple_of_the_advantage() -> None:
    model, batch = grouped(0)
    with pytest.raises(UsageError, match=r"correct\.baseline = 'off_policy' with loss\.clip = 'ppo'"):
        Updater(model, OptimConfig(), loss=ALGORITHMS["grpo"].loss, correction=OFF_POLICY)
    with pytest.raises(UsageError, match=r"loss\.kl_beta = 0\.1"):
        Updater(model, OptimConfig(), loss=UNBOUNDED, correction=OFF_POLICY, kl_beta=0.1)
    updater = Updater(model, OptimConfig(), loss=UNBOUNDED, correction=OFF_POLICY)
    with pytest.raises(UsageError, match="these are per token"):
        updater.with_baseline(replace(batch, advantages=batch.target_mask.double()))
