import copy
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import make_model, make_rows
from torch import Tensor, nn

from made import ended, sample
from podsrl.config.schema import OptimConfig
from podsrl.errors import UsageError
from podsrl.update import ALGORITHMS, NAMED_LOSSES, Batch, LossSpec, Updater, head_path, make_batch, policy_loss


def updater(model: nn.Module, name: str = "grpo", **options: Any) -> Updater:
    optim = {key: options.pop(key) for key in tuple(options) if key in OptimConfig.model_fields}
    loss = {"loss": ALGORITHMS[name].loss, "max_length": 9}
    return Updater(model, OptimConfig(**{"lr": 0.01, **optim}), **(loss | options))


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-12) -> None:
    assert set(a) == set(b) and a
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}")


def plain_loss(model: nn.Module, batch: Batch, temperature: float, **options: Any) -> Tensor:
    """The loss of the whole batch at once, from all logits."""
    table = torch.log_softmax(model(input_ids=batch.input_ids).logits[:, :-1] / temperature, -1)
    logprobs = table.gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1)
    tensors = (batch.behaviour_logprobs[:, 1:], batch.advantages, batch.target_mask[:, 1:])
    return policy_loss(logprobs, *tensors, max_length=9, **options)[0]


@pytest.mark.parametrize("name", sorted(NAMED_LOSSES))
def test_gradients_equal_those_of_the_whole_batch_for_any_cut(name: str) -> None:
    model, batch = make_model(), make_rows()
    loss = plain_loss(model, batch, 0.8, **NAMED_LOSSES[name])
    loss.backward()
    expected = gradients(model)
    counts = set()
    for micro_batch_tokens, chunk_tokens in [(1, 3), (20, 1000), (47, 5), (10_000, 10_000)]:
        model.zero_grad(set_to_none=True)
        trainer = updater(
            model, name, temperature=0.8, micro_batch_tokens=micro_batch_tokens, logprob_chunk_tokens=chunk_tokens
        )
        stats = trainer.forward_backward(batch)
        assert_same(gradients(model), expected)
        assert stats.loss == pytest.approx(loss.item(), abs=1e-12)
        counts.add(stats.num_micro_batches)
    assert len(counts) == 4 and {1, 12} <= counts


def test_statistics_are_means_over_tokens_whatever_the_cut() -> None:
    model, batch = make_model(), make_rows()
    whole = updater(model, micro_batch_tokens=10_000).forward_backward(batch)
    cut = updater(model, micro_batch_tokens=15).forward_backward(batch)
    for field in ("entropy", "clip_fraction", "logprob_gap", "ratio_max", "loss"):
        assert getattr(cut, field) == pytest.approx(getattr(whole, field), abs=1e-12), field
    table = torch.log_softmax(model(input_ids=batch.input_ids).logits[:, :-1], -1)
    logprobs, mask = table.gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1), batch.target_mask[:, 1:]
    gap = (logprobs - batch.behaviour_logprobs[:, 1:])[mask]
    assert whole.logprob_gap == pytest.approx(gap.abs().mean().item(), abs=1e-12)
    assert whole.ratio_max == pytest.approx(gap.exp().max().item(), rel=1e-12)
    assert whole.entropy == pytest.approx(-(table.exp() * table).sum(-1)[mask].mean().item(), abs=1e-12)
    assert 0 < whole.clip_fraction < 1 and whole.kl is None
    assert (whole.num_sequences, whole.num_tokens) == (12, int(mask.sum()))


def test_a_step_spread_over_two_calls_has_the_gradient_of_one() -> None:
    model, batch = make_model(), make_rows()
    trainer = updater(model, "dapo")
    whole = trainer.forward_backward(batch)
    expected = gradients(model)
    model.zero_grad(set_to_none=True)
    halves = [
        trainer.forward_backward(batch.rows(rows), num_sequences=12, num_tokens=batch.num_tokens)
        for rows in (torch.arange(5), torch.arange(5, 12))
    ]
    assert_same(gradients(model), expected)
    assert sum(half.loss for half in halves) == pytest.approx(whole.loss, abs=1e-12)


ZEROS = [1.0, 0.0, -1.0, 0.0, 0.0, 0.5, 0.0, 0.0, -0.5, 0.0, 2.0, 0.0]


def all_of(batch: Batch) -> torch.Tensor:
    """In place of `Batch.has_advantage`: no row is left out."""
    return torch.ones(batch.num_sequences, dtype=torch.bool)


@pytest.mark.parametrize("name", sorted(NAMED_LOSSES))
def test_leaving_out_zero_advantages_gives_the_same_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, results = make_rows(12, ZEROS), []
    for skips in (True, False):
        if not skips:
            monkeypatch.setattr(Batch, "has_advantage", all_of)
        model = make_model()
        trainer = updater(model, name)
        stats = trainer.forward_backward(batch)
        trainer.optim_step()
        results.append((dict(model.named_parameters()), stats))
    (skipped, few), (full, all_rows) = results
    assert_same(skipped, full, 1e-11)
    assert few.loss == pytest.approx(all_rows.loss, abs=1e-12)
    trained = batch.target_mask[batch.advantages != 0].sum().item()
    assert (few.num_trained_rows, few.num_trained_tokens, few.num_tokens) == (5, trained, batch.num_tokens)
    assert (all_rows.num_trained_rows, all_rows.num_trained_tokens) == (12, batch.num_tokens)
    assert few.num_sequences == all_rows.num_sequences == 12


def test_a_step_without_any_signal_changes_nothing() -> None:
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    trainer = updater(model, weight_decay=0.1)
    stats = trainer.forward_backward(make_rows(3, [0.0, 0.0, 0.0]))
    assert (stats.num_trained_rows, stats.num_sequences, stats.loss, stats.num_micro_batches) == (0, 3, 0.0, 0)
    assert trainer.optim_step() == 0.0
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert trainer.optimizer.state_dict() == ({}, {"num_steps": 0, "num_skipped_steps": 0})


def test_rows_without_completion_tokens_count_as_rows_and_are_never_run() -> None:
    losses = []
    for rows in ([(3, 4)], [(3, 4), ()]):
        batch = make_batch([sample((1, 2), tokens, **ended("open")) for tokens in rows], pad_token_id=0)
        stats = updater(make_model(), micro_batch_tokens=4).forward_backward(batch)
        assert stats.num_trained_rows == 1
        losses.append(stats.loss)
    assert losses[1] == pytest.approx(losses[0] / 2)


def test_a_row_whose_token_advantages_are_all_zero_never_runs_and_changes_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = make_rows()
    per_token = torch.where(batch.target_mask, batch.advantages[:, None], 0.0)
    per_token[3] = per_token[8] = 0.0
    per_token[5, int(batch.target_mask[5].nonzero()[0])] = 0.0  # one token of a row that runs
    batch = replace(batch, advantages=per_token)
    model, found = make_model(), []
    for skips in (True, False):
        if not skips:
            monkeypatch.setattr(Batch, "has_advantage", all_of)
        model.zero_grad(set_to_none=True)
        stats = updater(model, micro_batch_tokens=20).forward_backward(batch)
        found.append((gradients(model), stats))
    assert (found[0][1].num_trained_rows, found[1][1].num_trained_rows) == (10, 12)
    assert_same(found[0][0], found[1][0])
    assert found[0][1].loss == pytest.approx(found[1][1].loss, abs=1e-12)


def test_an_empty_batch_is_a_step_without_signal() -> None:
    trainer = updater(make_model())
    stats = trainer.forward_backward(make_batch([], pad_token_id=0))
    assert (stats.num_sequences, stats.num_trained_rows, trainer.optim_step()) == (0, 0, 0.0)


def test_the_kl_penalty_pulls_towards_a_reference_that_stays_as_it_was() -> None:
    model, batch = make_model(), make_rows()
    trainer = updater(model, kl_beta=0.5)
    first = trainer.forward_backward(batch)
    assert first.kl == pytest.approx(0.0, abs=1e-15)
    trainer.optim_step()
    second = trainer.forward_backward(batch)
    assert second.kl is not None and second.kl > 1e-6
    reference = make_model()  # the same weights as at the start
    with torch.no_grad():
        table = torch.log_softmax(reference(input_ids=batch.input_ids).logits[:, :-1], -1)
        frozen = table.gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1)
    ours = gradients(model)
    model.zero_grad(set_to_none=True)
    plain_loss(model, batch, 1.0, **NAMED_LOSSES["grpo"], kl_beta=0.5, reference_logprobs=frozen).backward()
    assert_same(ours, gradients(model))


def test_a_given_reference_is_used_and_zero_advantages_still_feel_the_penalty() -> None:
    model, reference = make_model(), make_model()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(1.1)
    stats = updater(model, kl_beta=0.5, reference=reference).forward_backward(make_rows(3, [0.0, 0.0, 0.0]))
    assert stats.num_trained_rows == 3 and stats.kl is not None and stats.kl > 0
    assert all(weight.grad is None for weight in reference.parameters())
    assert max(float(g.abs().max()) for g in gradients(model).values()) > 0


def test_dropout_acts_in_training_only() -> None:
    model, batch = make_model(dropout=0.5), make_rows()
    trainer = updater(model)
    gaps = [trainer.forward_backward(batch).logprob_gap for _ in range(2)]
    assert gaps[0] != gaps[1]
    assert not model.training and not any(module.training for module in model.modules())


@pytest.mark.filterwarnings("ignore:.*all logits")
def test_a_soft_capped_model_trains_through_its_own_forward() -> None:
    model, batch = make_model("gemma2"), make_rows()
    plain_loss(model, batch, 1.0, **NAMED_LOSSES["grpo"]).backward()
    expected = gradients(model)
    model.zero_grad(set_to_none=True)
    trainer = updater(model, micro_batch_tokens=30)
    trainer.forward_backward(batch)
    assert_same(gradients(model), expected)
    assert head_path(model).name == "full"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": LossSpec(ratio="token", clip="ppo", aggregate="token_mean")}, "clip_low = None"),
        ({"loss": ALGORITHMS["dr_grpo"].loss, "max_length": None}, "max_length = None"),
        ({"kl_beta": -1.0}, "kl_beta = -1.0"),
    ],
)
def test_a_loss_that_could_not_work_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        updater(make_model(), **options)


def test_a_reference_without_a_penalty_or_the_model_itself_is_refused() -> None:
    model = make_model()
    with pytest.raises(UsageError, match="no effect with kl_beta = 0"):
        updater(model, reference=make_model())
    with pytest.raises(UsageError, match="trained model itself"):
        updater(model, reference=model, kl_beta=0.1)
    with pytest.raises(UsageError, match="reference and reference_context are both given"):
        updater(model, reference=make_model(), reference_context=lambda: nullcontext(model), kl_beta=0.1)


def test_many_micro_batches_of_a_bfloat16_model_add_up_without_loss() -> None:
    model, row = make_model(dtype=torch.bfloat16), make_rows(1, [1.0])
    alike = row.rows(torch.zeros(50, dtype=torch.int64))  # each in a piece of its own, with the same gradient
    trainer = updater(model, micro_batch_tokens=1, packing="off")
    trainer.forward_backward(row, num_sequences=50)
    share = gradients(model)
    model.zero_grad(set_to_none=True)
    assert trainer.forward_backward(alike).num_micro_batches == 50
    for name, gradient in gradients(model).items():
        # Float32 sums err by 50 roundings of 2^-24 and bfloat16 rounds once, by 2^-9; sums in bfloat16 lose percents.
        assert gradient.dtype == torch.bfloat16
        torch.testing.assert_close(gradient.double(), 50 * share[name].double(), rtol=2**-8, atol=0.0)


def test_gradients_from_before_and_later_calls_count_in_full() -> None:
    model, batch = make_model(dtype=torch.bfloat16), make_rows()
    trainer = updater(model, micro_batch_tokens=20)
    trainer.forward_backward(batch)
    once = gradients(model)
    trainer.forward_backward(batch)
    assert_same(gradients(model), {name: 2 * gradient for name, gradient in once.items()}, 0.0)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_model_in_float16_is_refused(is_frozen: bool) -> None:
    model = make_model(dtype=torch.float32)
    model.get_input_embeddings().to(torch.float16).requires_grad_(not is_frozen)  # type: ignore[operator]
    with pytest.raises(UsageError, match=r"embed_tokens.weight is float16.*load the model in bfloat16 or float32"):
        updater(model)
