"""What a config names, checked before the weights are read: rule, loss, rewards, tasks, tokenizer, prompts.

`prepare` gives `Parts`, with the questions whose prompts fit, and warnings. A dry run uses `find_parts`, which can
go on without what this machine lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from podsrl.config.bounds import kept_of
from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.control import Budget
from podsrl.errors import UsageError
from podsrl.generate import Kind, resolve_generator
from podsrl.generate.engine.stop_strings import StopStrings
from podsrl.generate.schedule.scheduler import Limits, make_scheduler
from podsrl.lib.slots import Slots
from podsrl.policy import check_model_options, device_notes, load_tokenizer
from podsrl.run.advice import (
    accuracy_advice,
    answer_advice,
    eval_note,
    filter_advice,
    learn_note,
    metric_advice,
    rate_advice,
    repeat_advice,
    split_note,
    tag_advice,
)
from podsrl.run.checks import check_beside, check_dtype, check_elsewhere, check_ray
from podsrl.run.data import load_task_set
from podsrl.run.model_shape import read_shape
from podsrl.run.offline import skip_unreachable_hub
from podsrl.run.prompt_lengths import Fitted, fit_prompts
from podsrl.run.sizes import check_sizes, make_parts
from podsrl.run.tracked import check_trackers
from podsrl.score import Scorer
from podsrl.select import Rule, resolve_rule, try_rule
from podsrl.tasks import TaskSet
from podsrl.update import (
    SHAPE,
    Advantage,
    LossSpec,
    resolve_advantage,
    resolve_algorithm,
    shape_advantages,
    try_advantage,
)

Excuse = Callable[[str], AbstractContextManager[None]]
"""Given what is looked for, in words: a context that may swallow an `UnavailableError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a trainer is made of, besides the model."""

    generator: Kind
    """Makes the run's generator."""
    slots: Slots
    """The parts that the budget and the loss name, with what they learn."""
    budget: Budget
    """Decides what each step asks."""
    rule: Rule
    advantage: Advantage
    loss: LossSpec
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
    """Training questions left out because their prompts are too long; likewise the held-out ones."""
    num_dropped_eval: int
    notes: tuple[str, ...]
    """What learns from what, how the questions are split and when they are asked, a line each."""
    warnings: tuple[str, ...]

    def close(self) -> None:
        """End the scorer's worker processes."""
        self.scorer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the names in a config stand for, whatever model and data it names."""

    generator: Kind
    slots: Slots
    budget: Budget
    rule: Rule
    advantage: Advantage
    loss: LossSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Questions, and the rewards that were tried on one of them."""

    tasks: TaskSet
    rewards: Mapping[str, float]
    correct: str
    format: str | None
    scorer: Scorer
    warnings: tuple[str, ...]
    """Warnings from the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything that a run needs before its weights; None for what could not be had and was excused."""

    names: Names
    judged: Judged | None
    tokenizer: Any
    fitted: Fitted | None
    of_rate: tuple[str, ...]
    """Warnings of a learning rate that does not suit the model."""

    def close(self) -> None:
        """End the scorer's worker processes."""
        if self.judged is not None:
            self.judged.scorer.close()


def prepare(config: RunConfig, tokenizer: Any = None, *, is_trained: bool = True) -> Parts:
    """Resolve and check.

    Args:
        tokenizer: an already loaded one instead of `config.model`'s.
        is_trained: False, to evaluate only: the training side is not read, and may be empty.

    Raises:
        UsageError: a name that does not exist, or parts that do not fit together or to the data.
    """
    found = find_parts(config, tokenizer, is_trained=is_trained)
    judged, fitted = found.judged, found.fitted
    assert judged is not None and fitted is not None, "nothing was excused"
    return Parts(
        generator=found.names.generator,
        slots=found.names.slots,
        budget=found.names.budget,
        rule=found.names.rule,
        advantage=found.names.advantage,
        loss=found.names.loss,
        rewards=judged.rewards,
        correct=judged.correct,
        format=judged.format,
        scorer=judged.scorer,
        tasks=fitted.tasks,
        tokenizer=found.tokenizer,
        longest_prompt=fitted.longest_prompt,
        num_dropped_train=fitted.num_dropped_train,
        num_dropped_eval=fitted.num_dropped_eval,
        notes=(learn_note(config, judged.rewards), split_note(config.task, fitted.tasks), eval_note(config)),
        warnings=warnings_of(config, found, has_model=tokenizer is not None),
    )


@contextmanager
def _nothing(what: str) -> Iterator[None]:
    yield


def find_parts(
    config: RunConfig, tokenizer: Any = None, *, is_trained: bool = True, excuse: Excuse = _nothing
) -> Found:
    """Look for all that `prepare` returns, in the order of what it costs.

    `excuse` is entered around what another machine may have although this one has not.

    Raises:
        UsageError: as of `prepare`, but for what was excused.
    """
    has_model = tokenizer is not None
    skip_unreachable_hub(config.model, config.task)
    names, judged, fitted, of_rate = _resolve_names(config), None, None, list[str]()
    with excuse("what rollouts.generator needs"):
        names.generator.check()
    with excuse("what the model's options need"):
        check_model_options(config, has_model=has_model)
        if names.generator.check_heads is not None and not has_model:
            names.generator.check_heads(read_shape(config.model).head_dim)
    if is_trained and not has_model:
        check_dtype(config)
    if is_trained:
        with excuse("the Ray cluster of scale.ray"):
            check_ray(config)
        with excuse("the trackers of record.trackers"):
            check_trackers(config)
    with ExitStack() as on_error:
        with excuse("the questions, their prompts and the rewards"):
            judged = _judge(config, load_task_set(config.task), is_trained)
            on_error.callback(judged.scorer.close)
        # Its workers, where there are any, are ready by the time the prompts are tokenised.
        with excuse("the tokenizer and the prompts"):
            tokenizer = tokenizer if has_model else load_tokenizer(config.model)
        with excuse("whether the learning rate suits the model's size"):
            of_rate = rate_advice(config) if is_trained and not has_model else []
        if tokenizer is not None and config.rollouts.stop_strings:
            StopStrings(tokenizer, config.rollouts.stop_strings)
        if tokenizer is not None and judged is not None:
            fitted = fit_prompts(judged.tasks, tokenizer, config.rollouts.max_prompt_tokens, is_trained=is_trained)
        if fitted is not None and is_trained:
            names.slots.check_train(config.rollouts.num_prompts, len(fitted.tasks.train))
        on_error.pop_all()
    return Found(names=names, judged=judged, tokenizer=tokenizer, fitted=fitted, of_rate=tuple(of_rate))


def warnings_of(config: RunConfig, found: Found, *, has_model: bool = False) -> tuple[str, ...]:
    """What a person should know before the run, a sentence each."""
    judged, fitted = found.judged, found.fitted
    return (
        *(() if has_model else device_notes(config.model)),
        *(judged.warnings if judged else ()),
        *filter_advice(config),
        *found.of_rate,
        *(answer_advice(config, judged.tasks, judged.correct) if judged else ()),
        *(accuracy_advice(config, judged.correct) if judged else ()),
        *(metric_advice(config, judged.rewards, judged.correct) if judged else ()),
        *(tag_advice(judged.tasks, judged.rewards) if judged else ()),
        *(repeat_advice(config, judged.tasks) if judged else ()),
        *(judged.tasks.notes if judged else ()),
        *(fitted.notes if fitted else ()),
    )


def _resolve_names(config: RunConfig) -> Names:
    make_scheduler(config.rollouts.scheduler, Limits(num_slots=1, num_tokens=1), option="rollouts.scheduler")
    select = config.select
    rule = resolve_rule(select.rule, select.options)
    algorithm = resolve_algorithm(**config.loss.model_dump(exclude={"kl_beta", "shape"}))
    advantage = resolve_advantage(algorithm.advantage)
    generator = resolve_generator(config.rollouts.generator, config.options)
    check_elsewhere(config, generator)
    if "vllm" in config.options and generator.options_name != "vllm":
        raise UsageError(f"[options.vllm]: {generator.option} does not read it; remove the table")
    slots = make_parts(config)
    size = check_sizes(config, slots) // select.num_chunks
    keeps_all = select.rule == "keep_all" and config.budget != BudgetConfig()
    kept = size if keeps_all else kept_of(select.kept_of_chunk, size)
    try_rule(rule, size, kept)
    shape_advantages(*try_advantage(advantage, kept), slots[SHAPE.option])
    is_own = ":" in generator.options_name  # only what it makes tells its abilities
    check_beside(config, is_beside=is_own or generator.is_beside or config.scale.generators > 0)
    generator.check_run(config)
    return Names(
        generator=generator,
        slots=slots,
        budget=Budget(slots),
        rule=rule,
        advantage=advantage,
        loss=algorithm.loss,
    )


def _judge(config: RunConfig, tasks: TaskSet, is_trained: bool) -> Judged:
    """Find the rewards, and try them on one question."""
    if is_trained and not tasks.train:
        raise UsageError(
            f"task.name = '{config.task.name}': the data found has no training questions, so it can only be "
            "evaluated on; set task.path to a folder that has train.jsonl too, or to another set"
        )
    rewards, correct, format = _resolve_rewards(config, tasks)
    with ExitStack() as on_error:
        scorer = on_error.enter_context(_scorer(config, rewards, correct, format))
        warnings = scorer.probe((tasks.train if is_trained else tasks.eval)[0])
        on_error.pop_all()
    return Judged(tasks=tasks, rewards=rewards, correct=correct, format=format, scorer=scorer, warnings=tuple(warnings))


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
