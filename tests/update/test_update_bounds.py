"""Bounds of single rows: the loss against one row at a time, the way from a part to the batch, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from made import group_of, selection
from podsrl.errors import UsageError
from podsrl.lib.parts import Call
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.systems.echo import TOLD
from podsrl.types import Group, Selection
from podsrl.update import make_batch, policy_loss, to_samples
from podsrl.update.bounds import bounds_of
from runs import assert_same_weights, config_of
from tests.systems.whole_steps import check_refused, lines, steps


@each("seed, clip", [(seed, clip) for seed in range(20) for clip in ("ppo", "cispo")])
def test_each_row_has_its_own_bound_or_that_of_the_loss(seed: int, clip: Any) -> None:
    rng = torch.Generator().manual_seed(seed)
    now, behaviour = (-3 * torch.rand(4, 5, generator=rng, dtype=torch.float64) for _ in range(2))
    mask, advantages = torch.rand(4, 5, generator=rng) < 0.8, torch.randn(4, generator=rng, dtype=torch.float64)
    bounds, own = torch.tensor([0.125, math.nan, 0.0, 0.5]), {"clip_low": 0.2, "clip_high": 0.3, "clip": clip}
    now.requires_grad_()
    rest: dict[str, Any] = {"aggregate": "constant", "max_length": 9}
    loss, stats = policy_loss(now, behaviour, advantages, mask, row_bounds=bounds, **own, **rest)
    total, num_clipped = torch.zeros((), dtype=torch.float64), 0
    for row, bound in enumerate((0.125, None, 0.0, 0.5)):
        widths = own if bound is None else {"clip_low": bound, "clip_high": bound, "clip": clip}
        part = slice(row, row + 1)
        alone, found = policy_loss(now[part], behaviour[part], advantages[part], mask[part], **widths, **rest)
        total, num_clipped = total + alone / 4, num_clipped + int(found["clipped"])
    assert abs(loss.item() - total.item()) < 1e-12 and int(stats["clipped"]) == num_clipped
    gradients = [torch.autograd.grad(each_loss, now, retain_graph=True)[0] for each_loss in (loss, total)]
    assert (gradients[0] - gradients[1]).abs().max() < 1e-12


def test_bounds_reach_the_rows_of_a_batch_and_of_its_pieces() -> None:
    groups = [group_of("a", 0.0, 1.0, 1.0), group_of("b", 0.0, 1.0)]
    chosen = [selection(groups[0], [0, 2]), selection(groups[1], [0, 1])]
    advantages = [torch.tensor([-1.0, 1.0])] * 2
    samples = to_samples(groups, chosen, advantages, [torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])])
    batch = make_batch(samples, pad_token_id=0)
    assert batch.bounds is not None and batch.bounds.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    piece = batch.rows(torch.tensor([3, 1])).bounds
    assert piece is not None and piece.tolist() == pytest.approx([0.4, 0.2])
    assert make_batch(to_samples(groups, chosen, advantages), pad_token_id=0).bounds is None


class Half:
    def bound(self, groups: Sequence[Group], selections: Sequence[Selection]) -> list[list[float]]:
        return [[0.5] * len(one.kept) for one in selections]


class AsTheLoss:
    def bound(self, groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
        return [torch.full((len(one.kept),), 0.2) for one in selections]


def returned(answer: Any) -> list[Tensor] | None:
    def function(groups: Sequence[Group], selections: Sequence[Selection]) -> Any:
        return answer

    group = group_of("a", 0.0, 1.0)
    return bounds_of([group], [selection(group, [0, 1])], Call("bound of systems = 'mine:Own'", function))


@pytest.mark.parametrize("answer", [[], [[0.1]], [[0.1, -0.1]], [[0.1, math.nan]], [[0.1, math.inf]], [[[0.1], [0.1]]]])
def test_what_is_no_bound_per_kept_rollout_is_an_error(answer: Any) -> None:
    with pytest.raises(UsageError, match=r"^bound of systems = 'mine:Own' returned (a bound|bounds of the shapes)"):
        returned(answer)
    assert returned(None) is None and bounds_of([], [], None) is None


STEPS = ("rollouts.num_prompts=6", "rollouts.max_new_tokens=24", "select.num_kept=8", "optim.num_minibatches=3")
STEPS = (*STEPS, "optim.lr=3e-3")


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*STEPS, *overrides, recipe="mixed"))


def test_bounds_as_those_of_the_loss_change_no_bit_and_others_do() -> None:
    plain, same, other = (
        trainer_of(*own) for own in ((), (f"systems={__name__}:AsTheLoss",), (f"systems={__name__}:Half",))
    )
    wanted, found, wider = lines(steps(plain, 2)), lines(steps(same, 2)), lines(steps(other, 2))
    assert found == wanted and any(line["clip_fraction"] for line in wanted)
    assert_same_weights(same, plain)
    assert wider != wanted


def test_a_bound_where_nothing_is_bounded_is_refused() -> None:
    message = r"bound of systems = .*Half' bounds ratios, and loss\.clip = 'none'"
    check_refused(message, f"systems={__name__}:Half", "loss.clip=none")


def test_ratios_of_unsure_rollouts_have_more_room() -> None:
    result = training_step(trainer_of("systems=echo", "options.echo.widest=1", "options.echo.top=1"))
    told = [(sample.bound, sample.rollout.notes[TOLD][-16:, 1].tolist()) for sample in result.samples]
    for bound, confidences in told:
        mean = sum(confidences) / len(confidences)
        assert bound == pytest.approx(0.05 + 0.15 / (1 + math.exp(-4 * (1 - mean))), abs=1e-5)
    assert len({round(bound or 0, 4) for bound, _ in told}) > 1
