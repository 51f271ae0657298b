"""Held-out accuracy by sampling, within a run. `evaluation/evaluator.py` evaluates a model without a trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.generate import Sampling
from podsrl.lib.seeds import seed_globals
from podsrl.lib.text import prompt_text
from podsrl.run.step.desk import OnAnswer, new_group
from podsrl.run.step.trainer import Trainer
from podsrl.score import ScoreStats
from podsrl.score.accuracy import Accuracy, accuracy_metrics, accuracy_of
from podsrl.types import Group, Open, Task, Way

NUM_LOOKED_AT = 16
"""Questions that a large evaluation asks first, for a look at their answers."""
NUM_EXAMPLES = 12
"""Questions whose first answer each evaluation records: the same ones every time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation."""

    step: int
    """Steps done before it."""
    result: Accuracy
    examples: tuple[Group, ...] = ()
    """The first held-out questions with their answers."""
    train_elapsed_seconds: float
    """Training seconds before it."""
    seconds: float
    """It took this long; not counted as training."""

    def to_json(self) -> dict[str, Any]:
        """The line in `metrics.jsonl`."""
        return {
            "step": self.step,
            **accuracy_metrics(self.result),
            "eval/examples": [_example(group) for group in self.examples],
            "seconds/train_elapsed": self.train_elapsed_seconds,
            "seconds/eval": self.seconds,
        }


def evaluate(
    trainer: Trainer, on_answer: OnAnswer | None = None, on_look: Callable[[list[Group]], None] | None = None
) -> Evaluation:
    """Sample `eval.num_samples` answers to each held-out question and judge them.

    The random numbers depend on the run's seed and the question alone, so two evaluations differ only by the weights.

    `on_look` is called with the first questions' answers where many more follow, which can take long, and `on_answer`
    after each completion of these.
    """
    trainer.settle()
    start = time.perf_counter()
    seed_globals(trainer.config.seed, trainer.progress.step, "eval")
    opens = eval_groups(dict(enumerate(trainer.tasks.eval)), trainer.config.eval.num_samples)
    sampling = eval_sampling(trainer.config, trainer.stop_token_ids)
    trainer.scorer.stats = ScoreStats()
    groups = list[Group]()
    if on_look is not None and len(opens) > 4 * NUM_LOOKED_AT:
        groups = trainer.desk.answer(opens[:NUM_LOOKED_AT], sampling)
        on_look(groups)
    groups += trainer.desk.answer(opens[len(groups) :], sampling, on_answer=on_answer)
    num_stopped = sum(trainer.processes.gather(trainer.scorer.stats.num_stopped))
    return Evaluation(
        step=trainer.progress.step,
        result=accuracy_of(groups, num_stopped=num_stopped),
        examples=tuple(groups[:NUM_EXAMPLES]),
        train_elapsed_seconds=trainer.progress.train_seconds,
        seconds=time.perf_counter() - start,
    )


def _example(group: Group) -> dict[str, Any]:
    first, task = group.rollouts[0], group.task
    said = {"text": first.text, "is_correct": first.is_correct}
    return {"id": task.id, "prompt": prompt_text(task.prompt), "answer": task.answer, **said}


def eval_groups(tasks: Mapping[int, Task], num_samples: int) -> list[Open]:
    """What an evaluation asks of held-out questions, by their places: the random numbers depend on place and id."""
    ways = (Way(count=num_samples),)
    return [Open(group=new_group(f"eval/{place}/{task.id}", task), ways=ways) for place, task in tasks.items()]


def eval_sampling(config: RunConfig, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How answers are drawn in an evaluation."""
    return Sampling(
        temperature=config.eval.temperature,
        top_p=config.eval.top_p,
        max_new_tokens=config.rollouts.max_new_tokens,
        stop_token_ids=stop_token_ids,
        stop_strings=config.rollouts.stop_strings,
    )
