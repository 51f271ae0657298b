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
from podsrl.config.schema import OptimConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.update import ALGORITHMS, Batch, Correction, Updater, make_batch, policy_loss
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
    batch = batch_of(behaviour, mask, start)
    proximal = correction.proximal_of(now, batch)
    weights, _ = correction.weights_of(proximal, batch)
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
    loss, _ = corrected(Correction(proximal="step_start", weight="full"), now, start, behaviour, advantages, mask)
    # openai/ppo-ewma: max(-A exp(new - b), -A exp(clip(new - prox, log(1 - ε), log(1 + ε)) + prox - b))
    bounded = (now - start).clamp(math.log(LOW), math.log(HIGH)) + start - behaviour
    rows = advantages[:, None]
    losses = torch.maximum(-rows * (now - behaviour).exp(), -rows * bounded.exp())
    close(loss, losses[mask].sum() / mask.sum(), now)


@each("seed", range(50))
def test_the_whole_ratio_as_weight_is_the_clipping_of_dots(seed: int) -> None:
    now, start, behaviour, advantages, mask = drawn(seed)
    loss, stats = corrected(Correction(proximal="step_start", weight="full"), now, start, behaviour, advantages, mask)
    ratio, center = (now - behaviour).exp(), (start - behaviour).exp()
    bounded = torch.minimum(torch.maximum(ratio, center * LOW), center * HIGH)
    losses = -torch.minimum(ratio * advantages[:, None], bounded * advantages[:, None])
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
    weights, num_capped = correction.weights_of(correction.proximal_of(now, batch), batch)
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
        weights, num_capped = correction.weights_of(correction.proximal_of(behaviour, batch), batch)
        assert weights is not None and weights[0, 0] == pytest.approx(wanted) and int(num_capped) == (weight != "full")


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
    if num_steps > 1 and correction.proximal == "step_start":
        batch = updater.with_start(batch)
    for _ in range(num_steps):
        stats = updater.forward_backward(batch)
        updater.optim_step()
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
    ],
)
def test_what_nothing_would_read_is_refused(overrides: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named) as error:
        load_config("pods", overrides)
    assert "\n" not in str(error.value)


def test_a_config_that_was_written_out_loads_again() -> None:
    for overrides in ([], ["correct.proximal=step_start"], ["correct.proximal=step_start", "correct.weight=mask"]):
        config = load_config("pods", overrides)
        assert RunConfig.model_validate(config.model_dump(mode="json")) == config
