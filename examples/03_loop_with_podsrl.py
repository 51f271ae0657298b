"""The loop of `02_loop_from_scratch.py`, made of podsrl's parts: the same tokens, the same numbers.

Each stage that 02 writes out is one call here, and each call also takes other task sets, models, rewards, rules and
losses. `pods train pods` runs a whole trainer around this loop, with evaluation, checkpoints and logs.

    python examples/03_loop_with_podsrl.py
    python examples/03_loop_with_podsrl.py --steps 2 --num-rollouts 8 --num-kept 4     a few seconds

Expected output: that of 02.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from podsrl import Group, Rollout, Selection, Task
from podsrl.config.schema import ModelConfig, OptimConfig
from podsrl.generate import Engine, Request, Sampling
from podsrl.policy import load_model, load_tokenizer
from podsrl.score import Scorer
from podsrl.select import max_variance
from podsrl.select.groups import select_groups
from podsrl.sync import sync_weights
from podsrl.tasks import load_tasks, task_indices
from podsrl.update import ADVANTAGES, ALGORITHMS, Updater, make_batch, step_advantages, to_samples

NUM_EPOCHS = 2


def train(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train, and yield after each step what it did."""
    source = ModelConfig(path=options.model, device="cpu")
    tokenizer, model = load_tokenizer(source), load_model(source)
    tasks = load_tasks("arithmetic", digits=2).train
    engine = Engine(model, seed=options.seed, tokenizer=tokenizer)
    sampling = Sampling(max_new_tokens=48)  # or up to the end token
    scorer = Scorer({"correct": 1.0, "format": 0.1}, correct="correct")
    updater = Updater(model, OptimConfig(lr=options.lr), loss=ALGORITHMS["grpo"].loss)
    for step in range(options.steps):
        start = step * options.num_prompts
        places = task_indices(len(tasks), seed=options.seed, start=start, count=options.num_prompts)
        questions = [tasks[i] for i in places]
        requests = [
            Request(f"s{step}/{task.id}", tokenizer.encode(task.prompt), options.num_rollouts, sampling)
            for task in questions
        ]
        groups = sample(engine, scorer, tokenizer, questions, requests)
        selections = select_groups(groups, max_variance, options.num_kept)
        advantages = step_advantages(groups, selections, ADVANTAGES["std"])
        batch = make_batch(to_samples(groups, selections, advantages), pad_token_id=tokenizer.pad_token_id)
        for _ in range(NUM_EPOCHS):
            stats, grad_norm = updater.forward_backward(batch), updater.optim_step()
        sync_weights(model, engine, version=NUM_EPOCHS * (step + 1))
        yield describe(step + 1, groups, selections) | {"loss": stats.loss, "grad_norm": grad_norm}


def sample(
    engine: Engine, scorer: Scorer, tokenizer: Any, tasks: Sequence[Task], requests: Sequence[Request]
) -> list[Group]:
    """Generate a group of answers for each task and score them."""
    completions: dict[str, list[Rollout]] = {request.id: [] for request in requests}
    for completion in sorted(engine.generate(requests), key=lambda completion: completion.index):
        completions[completion.group_id].append(completion)
    texts = [
        tokenizer.batch_decode([completion.token_ids for completion in group], skip_special_tokens=True)
        for group in completions.values()
    ]
    scored = scorer.score(tasks, list(completions.values()), texts)
    return [
        Group(id=request.id, task=task, prompt_ids=request.prompt_ids, rollouts=tuple(rollouts))
        for request, task, rollouts in zip(requests, tasks, scored, strict=True)
    ]


def describe(step: int, groups: Sequence[Group], selections: Sequence[Selection]) -> dict[str, Any]:
    """What was generated and kept."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return {
        "step": step,
        "reward": sum(rollout.reward for rollout in rollouts) / len(rollouts),
        "accuracy": sum(rollout.is_correct for rollout in rollouts) / len(rollouts),
        "answers": [list(rollout.token_ids) for rollout in rollouts],
        "kept": [list(chosen.kept) for chosen in selections],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="PODS on two-digit addition, with podsrl.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--num-prompts", type=int, default=8, help="questions per step (P)")
    parser.add_argument("--num-rollouts", type=int, default=64, help="answers generated per question (n)")
    parser.add_argument("--num-kept", type=int, default=16, help="answers trained on per question (m)")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="builtin:arithmetic", help="folder, hub name or builtin:NAME")
    torch.set_num_threads(1)  # such a small model is no faster on more
    options = parser.parse_args()
    if not 2 <= options.num_kept <= options.num_rollouts:
        parser.error(f"--num-kept {options.num_kept}: wanted 2 .. --num-rollouts {options.num_rollouts}")
    for done in train(options):
        print(
            f"step {done['step']:3}  loss {done['loss']:+.6f}  grad_norm {done['grad_norm']:.4f}  "
            f"reward {done['reward']:.3f}  accuracy {done['accuracy']:.1%}"
        )


if __name__ == "__main__":
    main()
