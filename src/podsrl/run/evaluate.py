"""Held-out accuracy by sampling: the mean over questions and over samples a question (pass@1)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from podsrl.generate import Sampling
from podsrl.run.streams import seed_globals
from podsrl.run.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation."""

    step: int
    accuracy: float
    """Share of right answers, 0 .. 1; an invalid rollout counts as wrong."""
    reward: float | None
    """Mean reward of the valid rollouts; None where there is none."""
    num_samples: int
    """Completions judged."""
    num_invalid: int
    """Completions without a usable reward."""
    train_elapsed_seconds: float
    """Training seconds before it."""
    seconds: float
    """It took this long; not counted as training."""

    def to_json(self) -> dict[str, Any]:
        """The line in `metrics.jsonl`."""
        return {
            "step": self.step,
            "eval/accuracy": self.accuracy,
            "eval/reward": self.reward,
            "eval/num_samples": self.num_samples,
            "eval/num_invalid": self.num_invalid,
            "seconds/train_elapsed": self.train_elapsed_seconds,
            "seconds/eval": self.seconds,
        }


def evaluate(trainer: Trainer) -> Evaluation:
    """Sample `eval.num_samples` answers to each held-out question and judge them.

    The random numbers depend on the run's seed and the question alone, so two evaluations differ only by the weights.
    """
    start = time.perf_counter()
    seed_globals(trainer.config.seed, trainer.progress.step, "eval")
    options, tasks = trainer.config.eval, trainer.tasks.eval
    sampling = Sampling(
        temperature=options.temperature,
        top_p=options.top_p,
        max_new_tokens=trainer.config.rollouts.max_new_tokens,
        stop_token_ids=trainer.stop_token_ids,
        stop_strings=trainer.config.rollouts.stop_strings,
    )
    ids = [f"eval/{i}/{task.id}" for i, task in enumerate(tasks)]
    groups = trainer.score(tasks, trainer.complete(ids, tasks, options.num_samples, sampling))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.is_valid]
    return Evaluation(
        step=trainer.progress.step,
        accuracy=sum(rollout.is_correct for rollout in rollouts) / len(rollouts),
        reward=sum(rewards) / len(rewards) if rewards else None,
        num_samples=len(rollouts),
        num_invalid=len(rollouts) - len(rewards),
        train_elapsed_seconds=trainer.progress.train_seconds,
        seconds=time.perf_counter() - start,
    )
