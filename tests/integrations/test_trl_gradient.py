"""PODSTrainer's gradient on the kept rollouts is that of our own update on the same rollouts."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("trl")

from benchmarks.models import batch_of
from benchmarks.trl.losses import TRL_LOSSES, drifted, generate
from benchmarks.trl.setup import Scene, grpo_trainer, make_scene, quiet
from podsrl.config.schema import OptimConfig
from podsrl.select import max_variance
from podsrl.types import Rollout
from podsrl.update import ALGORITHMS, Updater, group_advantages

P, NUM_ROLLOUTS, NUM_KEPT, TEMPERATURE = 3, 8, 4, 0.9
REWARDS = torch.rand(P, NUM_ROLLOUTS, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return make_scene(
        "s128", num_prompts=P, num_rollouts=NUM_ROLLOUTS, prompt_tokens=(5, 12), mean_tokens=20, max_new_tokens=40
    )


@pytest.fixture(scope="module")
def completions(scene: Scene) -> list[Rollout]:
    """Off-policy ones, so that the losses clip."""
    return drifted(generate(scene, temperature=TEMPERATURE))


def gradient(model: Any) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_the_gradient_is_that_of_our_own_update(loss: str, scene: Scene, completions: list[Rollout]) -> None:
    kept = max_variance(REWARDS, NUM_KEPT)
    rows = (kept + NUM_ROLLOUTS * torch.arange(P).unsqueeze(1)).flatten().tolist()
    of_kept = [completions[row] for row in rows]
    advantages = group_advantages(REWARDS.gather(1, kept).double(), ALGORITHMS[loss].advantage).flatten().tolist()
    prompts = [tuple(scene.tokenizer.encode(scene.prompts[row // NUM_ROLLOUTS])) for row in rows]
    ours, theirs = copy.deepcopy(scene.model), copy.deepcopy(scene.model)

    optim = OptimConfig(lr=1e-6, micro_batch_tokens=100)
    updater = Updater(ours, optim, loss=ALGORITHMS[loss].loss, temperature=TEMPERATURE, max_length=scene.max_new_tokens)
    updater.forward_backward(batch_of(prompts, of_kept, advantages, scene.tokenizer.pad_token_id))

    trainer = grpo_trainer(
        replace(scene, model=theirs),
        rows_at_once=len(completions),
        completions=[done.token_ids for done in completions],
        reward=lambda **columns: REWARDS.flatten().tolist(),
        num_kept=NUM_KEPT,
        temperature=TEMPERATURE,
        **TRL_LOSSES[loss],
    )
    with quiet():
        trainer.model.train()
        inputs = trainer._generate_and_score_completions([{"prompt": text} for text in scene.prompts for _ in range(8)])
        trainer.current_gradient_accumulation_steps = 1  # its training loop would set it
        old = [torch.tensor(done.logprobs) for done in of_kept]
        inputs["old_per_token_logps"] = torch.nn.utils.rnn.pad_sequence(old, batch_first=True)
        trainer._compute_loss(theirs, inputs).backward()

    trained = zip(inputs["completion_ids"], inputs["completion_mask"].bool(), strict=True)
    assert [tuple(row[mask].tolist()) for row, mask in trained] == [done.token_ids for done in of_kept]
    difference = (gradient(ours) - gradient(theirs)).abs().max() / gradient(theirs).abs().max()
    assert gradient(theirs).abs().max() > 1e-4
    assert float(difference) < 1e-5
