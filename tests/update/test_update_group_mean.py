"""The mean over groups: every group has the same weight, however many rows it has, and however a step is cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny import make_model
from torch import Tensor, nn

import made
from podsrl.config.schema import OptimConfig
from podsrl.errors import UsageError
from podsrl.types import Sample
from podsrl.update import Batch, Updater, group_weights, make_batch, policy_loss, resolve_algorithm

LOSS = resolve_algorithm("grpo", aggregate="group_mean").loss


def samples_of(sizes: dict[str, int], *, is_zero: Callable[[int], bool] = lambda row: False) -> list[Sample]:
    """Rows of 1 to 4 prompt tokens and 1 to 9 completion tokens, the same each time."""
    draw, samples = random.Random(3), list[Sample]()
    for name, size in sizes.items():
        prompt = tuple(draw.randrange(1, 11) for _ in range(draw.randint(1, 4)))
        for _ in range(size):
            tokens = [draw.randrange(1, 11) for _ in range(draw.randint(1, 9))]
            logprobs = tuple(-3.0 * draw.random() for _ in tokens)
            advantage = 0.0 if is_zero(len(samples)) else draw.uniform(-2, 2)
            samples.append(made.sample(prompt, tokens, advantage, group_id=name, logprobs=logprobs))
    return samples


def by_hand(model: nn.Module, samples: list[Sample]) -> Tensor:
    """The definition, group by group, row by row and token by token, in float64; GRPO's bounds."""
    groups: dict[str, list[Tensor]] = {}
    for sample in samples:
        ids = torch.tensor([[*sample.prompt_ids, *sample.rollout.token_ids]])
        table = torch.log_softmax(model(input_ids=ids).logits[0], -1)
        losses = []
        behaviour = torch.tensor(sample.rollout.logprobs, dtype=torch.float32).double()  # a batch holds float32
        advantage = torch.tensor(sample.advantage, dtype=torch.float32).double()
        for place, token in enumerate(sample.rollout.token_ids):
            ratio = (table[len(sample.prompt_ids) - 1 + place, token] - behaviour[place]).exp()
            losses.append(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage))
        groups.setdefault(sample.group_id, []).append(torch.stack(losses).mean())
    return torch.stack([torch.stack(rows).mean() for rows in groups.values()]).mean()


def gradient_of(model: nn.Module, batches: list[Batch], **options: Any) -> tuple[Tensor, float]:
    """Of all batches together, as processes that share a step train it, each with its own."""
    model.zero_grad(set_to_none=True)
    updater = Updater(model, OptimConfig(lr=0.01, **options), loss=LOSS)
    rows, tokens = (sum(getattr(batch, name) for batch in batches) for name in ("num_sequences", "num_tokens"))
    stats = [updater.forward_backward(batch, num_sequences=rows, num_tokens=tokens) for batch in batches]
    flat = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    return flat, sum(each.loss for each in stats)


SIZES = {"a": 1, "b": 9, "c": 2}


@pytest.mark.parametrize("is_zero", [lambda row: False, lambda row: row % 3 == 1], ids=["all", "some_without_signal"])
def test_it_is_the_mean_over_groups_of_the_mean_over_rows_of_the_mean_over_tokens(is_zero: Any) -> None:
    samples, model = samples_of(SIZES, is_zero=is_zero), make_model()
    expected = by_hand(model, samples)
    expected.backward()
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    whole = make_batch(samples, pad_token_id=0)
    # float32 weights of the rows: a third is off by 1e-8.
    for micro_batch_tokens in (1, 20, 10_000):
        found, loss = gradient_of(model, [whole], micro_batch_tokens=micro_batch_tokens)
        torch.testing.assert_close(found, gradient, rtol=1e-6, atol=1e-7)
        assert loss == pytest.approx(expected.item(), abs=1e-6)


def test_a_step_cut_through_a_group_has_the_gradient_of_the_whole() -> None:
    samples, model = samples_of(SIZES), make_model()
    weights, padded = group_weights(samples), {"packing": "off"}  # packed rows round positions to float32
    whole, _ = gradient_of(model, [make_batch(samples, pad_token_id=0)], **padded)
    cut = [
        make_batch(samples[part], pad_token_id=0, row_weights=weights[part]) for part in (slice(0, 4), slice(4, None))
    ]
    found, _ = gradient_of(model, cut, **padded)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)
    own, _ = gradient_of(model, [make_batch(samples[part], pad_token_id=0) for part in (slice(0, 4), slice(4, None))])
    assert not torch.allclose(own, whole, atol=1e-3), "weights of a part are not those of the step"


def test_with_equal_groups_it_is_the_mean_over_sequences_up_to_rounding() -> None:
    samples = samples_of({"a": 4, "b": 4, "c": 4})
    assert group_weights(samples) == [1.0] * 12
    batch = make_batch(samples, pad_token_id=0)
    logprobs = torch.randn(batch.input_ids.shape, generator=torch.Generator().manual_seed(0))
    loss_of = {
        aggregate: policy_loss(
            logprobs,
            batch.behaviour_logprobs,
            batch.advantages,
            batch.target_mask,
            row_weights=batch.row_weights,
            **resolve_algorithm("grpo", aggregate=aggregate).loss.arguments(),
        )[0].item()
        for aggregate in ("sequence_mean", "group_mean")
    }
    assert loss_of["group_mean"] == pytest.approx(loss_of["sequence_mean"], rel=1e-6)
    unequal = group_weights(samples_of(SIZES))
    assert sum(unequal) == pytest.approx(12) and unequal[0] == 12 / (3 * 1) and unequal[1] == 12 / (3 * 9)


def test_a_number_worked_out_by_hand() -> None:
    """Losses of the tokens 1, 3 | 5 and 2: groups of two rows and of one have the means (2 + 5) / 2 and 2."""
    zeros = torch.zeros(3, 2, dtype=torch.float64)
    advantages = -torch.tensor([[1.0, 3.0], [5.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False], [True, False]])
    weights = torch.tensor([3 / 4, 3 / 4, 3 / 2], dtype=torch.float64)
    loss, _ = policy_loss(zeros, zeros, advantages, mask, row_weights=weights, **LOSS.arguments())
    assert loss.item() == pytest.approx((3.5 + 2) / 2, abs=1e-12)


@pytest.mark.parametrize("weights", [None, torch.ones(2), torch.ones(3, 1)])
def test_weights_that_are_missing_or_do_not_fit_are_an_error(weights: Tensor | None) -> None:
    zeros = torch.zeros(3, 2)
    with pytest.raises(UsageError, match=r"row_weights .* aggregate = 'group_mean'; want \[3\]"):
        policy_loss(zeros, zeros, zeros[:, 0], zeros == 0, row_weights=weights, **LOSS.arguments())
