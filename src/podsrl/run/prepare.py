"""What a config names, checked before the weights are read: rule, loss, rewards, tasks, tokenizer, prompts.

In: a `RunConfig`. Out: `Parts`, with the questions whose prompts fit and the warnings a person should see.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate.schedule.scheduler import Limits, make_scheduler
from podsrl.generate.stop import StopStrings
from podsrl.policy import check_model_options, device_notes, load_tokenizer
from podsrl.run.checks import check_dtype
from podsrl.run.fit import fit_prompts
from podsrl.run.offline import skip_unreachable_hub
from podsrl.score import EXTRACTORS, Scorer
from podsrl.select import SelectionRule, resolve_rule
from podsrl.select.groups import call_rule
from podsrl.tasks import TaskSet, load_tasks
from podsrl.update import resolve_loss

SPLIT_SEED = 0
"""Which rows are held out does not depend on a run's seed: all runs are judged on the same questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a trainer is made of, besides the model."""

    rule: SelectionRule
    advantage: str
    """A key of `podsrl.update.NORMALIZERS`."""
    loss: Mapping[str, Any]
    """Keyword arguments of `podsrl.update.policy_loss`."""
    rewards: Mapping[str, float]
    """Reward function -> weight: the config's, else the task set's."""
    correct: str
    """Which reward function decides what accuracy counts."""
    format: str | None
    """Which one decides whether an answer has the wanted form."""
    scorer: Scorer
    """Made of these three. Holds worker processes: close it, or the parts."""
    tasks: TaskSet
    """Without the questions whose prompts are too long."""
    tokenizer: Any
    longest_prompt: int
    """Tokens."""
    num_dropped_train: int
    """Training questions left out because their prompts are too long."""
    num_dropped_eval: int
    """Held-out questions left out for that reason."""
    warnings: tuple[str, ...]

    def close(self) -> None:
        """End the scorer's worker processes."""
        self.scorer.close()


def prepare(config: RunConfig, tokenizer: Any = None, *, is_trained: bool = True) -> Parts:
    """Resolve and check.

    Args:
        config: of a run.
        tokenizer: an already loaded one instead of `config.model`'s.
        is_trained: False, to evaluate only: the training side is not read, and may be empty.

    Raises:
        UsageError: a name that does not exist, or parts that do not fit together or to the data.
    """
    make_scheduler(config.rollouts.scheduler, Limits(num_slots=1, num_tokens=1))
    has_model = tokenizer is not None
    check_model_options(config, has_model=has_model)
    if is_trained and not has_model:
        check_dtype(config)
    rule = resolve_rule(config.select.rule)
    _try_rule(rule, config)
    advantage, loss = _resolve_loss(config)
    skip_unreachable_hub(config.model, config.task)
    tasks = _load_tasks(config)
    if is_trained and not tasks.train:
        raise UsageError(
            f"task.name = '{config.task.name}': the data found has no training questions, so it can only be "
            "evaluated on; set task.path to a folder that has train.jsonl too, or to another set"
        )
    rewards, correct, format = _resolve_rewards(config, tasks)
    with ExitStack() as on_error:
        scorer = on_error.enter_context(_scorer(config, rewards, correct, format))
        # Its workers, where there are any, start now and are ready by the time the prompts are tokenised.
        probed = scorer.probe((tasks.train if is_trained else tasks.eval)[0])
        tokenizer = tokenizer if has_model else load_tokenizer(config.model)
        if config.rollouts.stop_strings:
            StopStrings(tokenizer, config.rollouts.stop_strings)
        fitted = fit_prompts(tasks, tokenizer, config.rollouts.max_prompt_tokens, is_trained=is_trained)
        on_error.pop_all()
    return Parts(
        rule=rule,
        advantage=advantage,
        loss=loss,
        rewards=rewards,
        correct=correct,
        format=format,
        scorer=scorer,
        tasks=fitted.tasks,
        tokenizer=tokenizer,
        longest_prompt=fitted.longest_prompt,
        num_dropped_train=fitted.num_dropped_train,
        num_dropped_eval=fitted.num_dropped_eval,
        warnings=(
            *(() if has_model else device_notes(config.model)),
            *probed,
            *_filter_warning(config),
            *_answer_warning(config, tasks, correct),
            *tasks.notes,
            *fitted.notes,
        ),
    )


def _scorer(config: RunConfig, rewards: Mapping[str, float], correct: str, format: str | None) -> Scorer:
    return Scorer(
        rewards,
        correct,
        format=format,
        workers=config.task.reward_workers,
        timeout_seconds=config.task.reward_timeout_seconds,
        batch_timeout_seconds=config.task.batch_timeout_seconds,
    )


def _resolve_rewards(config: RunConfig, tasks: TaskSet) -> tuple[Mapping[str, float], str, str | None]:
    task = config.task
    return (
        task.rewards if task.rewards is not None else tasks.rewards,
        task.correct if task.correct is not None else tasks.correct,
        task.format if task.format is not None else tasks.format,
    )


def _try_rule(rule: SelectionRule, config: RunConfig) -> None:
    """One call on made-up rewards, so that a rule which refuses n -> m does so now and not after the first rollouts."""
    chunks = config.select.num_chunks
    n, m = config.rollouts.num_rollouts // chunks, config.select.num_kept // chunks  # as `Trainer.choose` calls it
    rewards = torch.linspace(0, 1, n, dtype=torch.float64).reshape(1, n)
    call_rule(rule, rewards, m, generator=torch.Generator().manual_seed(0))


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
        subset=task.subset,
        train_split=task.train_split,
        eval_split=task.eval_split,
        prompt_column=task.prompt_column,
        answer_column=task.answer_column,
        digits=task.digits,
        chat=task.chat,
        system_prompt=task.system_prompt,
        special_tokens=task.special_tokens,
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


def _answer_warning(config: RunConfig, tasks: TaskSet, correct: str) -> list[str]:
    """Own data in GSM8K's format: no answer equals a whole solution, and all rewards would be 0 without a word."""
    if config.task.name not in ("jsonl", "hub") or correct not in EXTRACTORS:  # own functions read what they like
        return []
    whole = [task for task in (*tasks.eval, *tasks.train) if "####" in task.answer]
    if not whole:
        return []
    end = " ".join(whole[0].answer.split())[-20:]
    return [
        f"{len(whole):,} reference answers hold '####' (task '{whole[0].id}': '… {end}'), and "
        f"'{correct}' compares with all of the text, so nothing is right: name a column with the final answer alone in "
        "task.answer_column, or use task.name = 'gsm8k' with task.path"
    ]
