"""What a config names, checked before the weights are read: rule, loss, rewards, tasks, tokenizer, prompts.

In: a `RunConfig`. Out: `Parts`, with the longest prompt and the warnings a person should see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate.schedule.scheduler import Limits, make_scheduler
from podsrl.generate.stop import StopStrings
from podsrl.run.models import load_tokenizer, prompt_ids
from podsrl.score import Scorer
from podsrl.select import SelectionRule, resolve_rule
from podsrl.tasks import TaskSet, load_tasks
from podsrl.update import resolve_loss

SPLIT_SEED = 0
"""Which rows are held out does not depend on a run's seed: all runs are judged on the same questions."""
MAX_CHECKED_PROMPTS = 20_000
"""Of a larger set an even sample of the prompts is checked before training; the rest as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a trainer is made of, besides the model."""

    rule: SelectionRule
    advantage: str
    """A key of `podsrl.update.NORMALIZERS`."""
    loss: Mapping[str, Any]
    """Keyword arguments of `podsrl.update.policy_loss`."""
    scorer: Scorer
    tasks: TaskSet
    tokenizer: Any
    longest_prompt: int
    """Tokens."""
    warnings: tuple[str, ...]


def prepare(config: RunConfig, tokenizer: Any = None) -> Parts:
    """Resolve and check.

    Args:
        config: of a run.
        tokenizer: an already loaded one instead of `config.model`'s.

    Raises:
        UsageError: a name that does not exist, or parts that do not fit together or to the data.
    """
    make_scheduler(config.rollouts.scheduler, Limits(num_slots=1, num_tokens=1))
    rule = resolve_rule(config.select.rule)
    _try_rule(rule, config)
    advantage, loss = _resolve_loss(config)
    scorer, tasks = Scorer(config.task.rewards, config.task.correct), _load_tasks(config)
    warnings = [*scorer.probe(tasks.train[0]), *_filter_warning(config)]
    tokenizer = tokenizer if tokenizer is not None else load_tokenizer(config.model)
    if config.rollouts.stop_strings:
        StopStrings(tokenizer, config.rollouts.stop_strings)
    return Parts(
        rule=rule,
        advantage=advantage,
        loss=loss,
        scorer=scorer,
        tasks=tasks,
        tokenizer=tokenizer,
        longest_prompt=_longest_prompt(config, tasks, tokenizer),
        warnings=tuple(warnings),
    )


def _try_rule(rule: SelectionRule, config: RunConfig) -> None:
    """One call on made-up rewards, so that a rule which refuses n -> m does so now and not after the first rollouts."""
    n, m = config.rollouts.num_rollouts, config.select.num_kept
    kept = rule(torch.linspace(0, 1, n).reshape(1, n), m, generator=torch.Generator().manual_seed(0))
    shape = tuple(getattr(kept, "shape", ()))
    if shape != (1, m):
        raise UsageError(
            f"select.rule = {config.select.rule!r} gave indices of shape {shape} for rewards of shape (1, {n}) and "
            f"num_kept = {m}; wanted (1, {m})"
        )


def _resolve_loss(config: RunConfig) -> tuple[str, Mapping[str, Any]]:
    loss = config.loss
    return resolve_loss(
        loss.name,
        advantage=loss.advantage,
        ratio=loss.ratio,
        clip=loss.clip,
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        aggregate=loss.aggregate,
    )


def _load_tasks(config: RunConfig) -> TaskSet:
    task = config.task
    return load_tasks(
        task.name,
        path=task.path,
        prompt_column=task.prompt_column,
        answer_column=task.answer_column,
        digits=task.digits,
        num_eval=task.num_eval,
        seed=SPLIT_SEED,
    )


def _filter_warning(config: RunConfig) -> list[str]:
    rollouts = config.rollouts
    filters = {"top_p": rollouts.top_p < 1, "top_k": rollouts.top_k > 0, "min_p": rollouts.min_p > 0}
    active = [f"rollouts.{name}" for name, is_on in filters.items() if is_on]
    if not active:
        return []
    return [
        f"{', '.join(active)}: rollouts are sampled from a filtered distribution and trained on the whole one, so "
        "ratios start below 1 and logprob_gap is not 0; clipping may drop tokens from the first step on"
    ]


def _longest_prompt(config: RunConfig, tasks: TaskSet, tokenizer: Any) -> int:
    limit, train = config.rollouts.max_prompt_tokens, tasks.train
    stride = -(-len(train) // MAX_CHECKED_PROMPTS)
    checked = (*(train[i] for i in range(0, len(train), stride)), *tasks.eval)
    return max(len(prompt_ids(tokenizer, task, limit)) for task in checked)
