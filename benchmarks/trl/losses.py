"""Our loss and TRL's on the same batch: the same tokens, rewards and (off-policy) old log-probabilities.

TRL's own code computes its advantages, masks and normalisers from these, and ours computes its own; then losses and
gradients are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.models import batch_of
from benchmarks.trl.setup import Scene, grpo_trainer, make_scene, quiet
from podsrl.config.schema import OptimConfig
from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Rollout
from podsrl.update import ALGORITHMS, Updater, group_advantages

DRIFT = 0.9
"""Standard deviation of the noise on the true log-probabilities, large enough that every loss clips some tokens."""

TRL_LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon": 0.2, "epsilon_high": 0.2},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon": 0.2, "epsilon_high": 0.2, "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},  # the bound of the ratio itself, where ours is above 1
}
"""Our name of a loss -> the options of TRL that give the same loss."""


def compare_losses(scene: Scene | None = None, *, temperature: float = 0.9) -> dict[str, dict[str, float]]:
    """Loss and gradient of both sides, for every loss of `TRL_LOSSES`; without a scene on a tiny model.

    The gradient's difference is the largest element's, relative to the largest gradient.
    """
    scene = scene or make_scene(
        "s128", num_prompts=4, num_rollouts=8, prompt_tokens=(5, 12), mean_tokens=20, max_new_tokens=40
    )
    completions = drifted(generate(scene, temperature=temperature))
    rewards = torch.rand(len(scene.prompts), scene.num_rollouts, generator=torch.Generator().manual_seed(0)).tolist()
    return {name: compare_loss(name, scene, completions, rewards, temperature) for name in TRL_LOSSES}


def generate(
    scene: Scene, *, temperature: float = 1.0, seed: int = 0, stops: Sequence[int] | None = None
) -> list[Rollout]:
    """P · n completions of the scene's prompts, group after group; stops None: the tokenizer's end token."""
    ends = (scene.tokenizer.eos_token_id,) if stops is None else tuple(stops)
    sampling = Sampling(temperature=temperature, max_new_tokens=scene.max_new_tokens, stop_token_ids=ends)
    requests = [
        Request(f"{i:04d}", tuple(scene.tokenizer.encode(prompt)), scene.num_rollouts, sampling)
        for i, prompt in enumerate(scene.prompts)
    ]
    return sorted(Engine(scene.model, seed=seed).generate(requests), key=lambda done: (done.group_id, done.index))


def drifted(completions: Sequence[Rollout], seed: int = 0) -> list[Rollout]:
    """The same tokens, as if an older policy had sampled them."""
    source = torch.Generator().manual_seed(seed)
    changes = [DRIFT * torch.randn(len(done.token_ids), generator=source) for done in completions]
    return [
        replace(done, logprobs=tuple((torch.tensor(done.logprobs) + change).tolist()))
        for done, change in zip(completions, changes, strict=True)
    ]


def our_batch(scene: Scene, completions: Sequence[Rollout], rewards: Sequence[Sequence[float]], loss: str) -> Any:
    """Our `Batch` of a step, with the advantages of this loss."""
    prompts = [tuple(scene.tokenizer.encode(prompt)) for prompt in scene.prompts for _ in range(scene.num_rollouts)]
    advantages = group_advantages(torch.tensor(rewards, dtype=torch.float64), ALGORITHMS[loss].advantage).flatten()
    return batch_of(prompts, completions, advantages.tolist(), scene.tokenizer.pad_token_id)


def trl_inputs(trainer: Any, scene: Scene) -> dict[str, Any]:
    """TRL's own inputs of an update, from the given completions and rewards: ids, masks, advantages, token count."""
    trainer.model.train()  # in evaluation mode TRL takes another path
    rows = [{"prompt": prompt} for prompt in scene.prompts for _ in range(scene.num_rollouts)]
    inputs: dict[str, Any] = trainer._generate_and_score_completions(rows)
    return inputs


def compare_loss(
    name: str, scene: Scene, completions: Sequence[Rollout], rewards: Sequence[Sequence[float]], temperature: float
) -> dict[str, float]:
    """Loss and gradient of both sides, for one loss of `TRL_LOSSES`."""
    ours, theirs = copy.deepcopy(scene.model), copy.deepcopy(scene.model)
    updater = Updater(
        ours,
        OptimConfig(lr=1e-6, micro_batch_tokens=100),  # several micro-batches, whose gradients add up
        loss=ALGORITHMS[name].loss,
        temperature=temperature,
        max_length=scene.max_new_tokens,
    )
    stats = updater.forward_backward(our_batch(scene, completions, rewards, name))
    loss = _trl_backward(name, scene, theirs, completions, rewards, temperature)
    return {
        "ours": stats.loss,
        "trl": loss,
        "difference": abs(stats.loss - loss),
        "gradient_difference": _gradient_difference(ours, theirs),
        "clip_fraction": stats.clip_fraction,
    }


def _trl_backward(
    name: str,
    scene: Scene,
    model: Any,
    completions: Sequence[Rollout],
    rewards: Sequence[Sequence[float]],
    temperature: float,
) -> float:
    flat = [reward for group in rewards for reward in group]
    trainer = grpo_trainer(
        replace(scene, model=model),
        rows_at_once=len(completions),
        completions=[done.token_ids for done in completions],
        reward=lambda **columns: flat,
        temperature=temperature,
        **TRL_LOSSES[name],
    )
    with quiet():
        inputs = trl_inputs(trainer, scene)
        trainer.current_gradient_accumulation_steps = 1  # its training loop would set it
        inputs["old_per_token_logps"] = _padded([done.logprobs for done in completions])
        loss: Tensor = trainer._compute_loss(model, inputs)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation
    return loss.item()


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def _gradient_difference(ours: Any, theirs: Any) -> float:
    both = zip(ours.parameters(), theirs.parameters(), strict=True)
    pairs = [(a.grad, b.grad) for a, b in both if a.requires_grad]
    largest = max(float(b.abs().max()) for _, b in pairs)
    return max(float((a - b).abs().max()) for a, b in pairs) / largest
