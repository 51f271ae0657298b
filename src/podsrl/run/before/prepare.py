"""What a config names, checked before the weights are read: rule, loss, rewards, tasks, tokenizer, prompts.

`prepare` gives `Prepared`, with the questions whose prompts fit, and warnings. A dry run uses `find`, which can go on
without what this machine lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

from podsrl.config.bounds import kept_of
from podsrl.config.schema import CostsConfig, RunConfig
from podsrl.control import Budget
from podsrl.errors import UsageError
from podsrl.generate import Kind, resolve_generator
from podsrl.generate.engine.stop_strings import StopStrings
from podsrl.generate.schedule.scheduler import named
from podsrl.lib.parts import Parts
from podsrl.policy import check_model_options, device_notes, load_tokenizer
from podsrl.run.before.advice import (
    accuracy_advice,
    answer_advice,
    eval_note,
    filter_advice,
    form_advice,
    learn_note,
    metric_advice,
    rate_advice,
    repeat_advice,
    split_note,
)
from podsrl.run.before.checks import check_dtype, check_elsewhere, check_kind, check_ray, check_trackers
from podsrl.run.before.closing import closing_advice, kept_of_plenty, reward_bounds
from podsrl.run.before.costs import costs_advice, costs_notes, costs_of, rule_options
from podsrl.run.before.data import load_task_set
from podsrl.run.before.environment import check_earned, find_environment, talking, turn_notes
from podsrl.run.before.exclusions import check_exclusions, check_pieces
from podsrl.run.before.model_shape import read_shape
from podsrl.run.before.offline import skip_unreachable_hub
from podsrl.run.before.order import order_notes
from podsrl.run.before.prompt_lengths import fit_prompts, looked_at
from podsrl.run.before.replay import replay_notes
from podsrl.run.before.settle import settle
from podsrl.run.before.sizes import check_sizes, grows_groups, parts_of
from podsrl.score import EXTRACTORS, Environment, Scorer
from podsrl.select import Rule, resolve_rule, try_rule
from podsrl.tasks import TaskSet
from podsrl.update import (
    Advantage,
    LossSpec,
    resolve_advantage,
    resolve_algorithm,
    shape_advantages,
    try_advantage,
)
from podsrl.update.bounds import bounds_of
from podsrl.update.correct import check_baseline

Excuse = Callable[[str], AbstractContextManager[Any]]
"""Given what is looked for, in words: a context that may swallow an `UnavailableError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a run needs before its weights; None, 0 or empty is what this machine lacks, in a dry run."""

    generator: Kind
    """Makes the run's generator."""
    systems: Parts
    """What `systems` names, with what it learns."""
    budget: Budget
    """Asks them."""
    costs: CostsConfig
    """What the parts of a step cost."""
    rule: Rule
    advantage: Advantage
    loss: LossSpec
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Reward function -> weight: the config's, else the task set's."""
    correct: str = ""
    """Which reward function decides what accuracy counts."""
    format: str | None = None
    """Which one decides whether an answer has the wanted form."""
    scorer: Scorer | None = None
    """Made of these three. Holds worker processes: close it, or this record."""
    environment: Environment | None = None
    """Answers the model's turns; None: each rollout has one. Holds worker processes too."""
    tasks: TaskSet | None = None
    """Without the questions whose prompts are too long, where there is a tokenizer to see it."""
    tokenizer: Any = None
    longest_prompt: int = 0
    """Tokens."""
    num_dropped_train: int = 0
    """Training questions left out because their prompts are too long; likewise the held-out ones."""
    num_dropped_eval: int = 0
    warnings: tuple[str, ...] = ()
    """What a person should know before the run, a sentence each."""

    def close(self) -> None:
        """End the worker processes."""
        for each in (self.scorer, self.environment):
            if each is not None:
                each.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Found):
    """The same with nothing missing: what a trainer is made of, besides the model."""

    scorer: Scorer
    tasks: TaskSet
    notes: tuple[str, ...]
    """What learns from what, how the questions are split and when they are asked, a line each."""


def prepare(config: RunConfig, tokenizer: Any = None, *, is_trained: bool = True) -> Prepared:
    """Resolve and check.

    Args:
        tokenizer: an already loaded one instead of `config.model`'s.
        is_trained: False, to evaluate only: the training side is not read, and may be empty.

    Raises:
        UsageError: a name that does not exist, or parts that do not fit together or to the data.
    """
    found = find(config, tokenizer, is_trained=is_trained)
    assert found.tasks is not None, "nothing was excused"
    notes = (
        learn_note(config, found.rewards),
        split_note(config.task, found.tasks),
        *turn_notes(config, found.environment),
        eval_note(config),
        *costs_notes(config),
        *order_notes(config, talks=found.environment is not None),
        *replay_notes(config, found.systems),
    )
    return Prepared(**{each.name: getattr(found, each.name) for each in fields(Found)}, notes=notes)


def find(config: RunConfig, tokenizer: Any = None, *, is_trained: bool = True, excuse: Excuse = nullcontext) -> Found:
    """Look for all that `prepare` returns, in the order of what it costs.

    `excuse` is entered around what another machine may have although this one has not.

    Raises:
        UsageError: as of `prepare`, but for what was excused.
    """
    has_model = tokenizer is not None
    config, _ = settle(config)
    skip_unreachable_hub(config.model, config.task)
    found, of_rate, of_questions, of_prompts = _resolve_names(config), list[str](), list[str](), tuple[str, ...]()
    if is_trained:
        check_kind(config, found.systems, found.generator)
    with excuse("what rollouts.generator needs"):
        found.generator.check()
    with excuse("what the model's options need"):
        check_model_options(config, has_model=has_model)
        if found.generator.check_heads is not None and not has_model:
            found.generator.check_heads(read_shape(config.model).head_dim)
    if is_trained and not has_model:
        check_dtype(config)
    if is_trained:
        with excuse("the Ray cluster of scale.ray"):
            check_ray(config)
        with excuse("the trackers of record.trackers"):
            check_trackers(config)
    with ExitStack() as on_error:
        with excuse("the questions, their prompts and the rewards"):
            found = _with_questions(found, config, load_task_set(config.task, config.options), is_trained)
            on_error.callback(found.close)
            of_questions = _question_advice(config, found)
        # Its workers, where there are any, are ready by the time the prompts are tokenised.
        with excuse("the tokenizer and the prompts"):
            tokenizer = tokenizer if has_model else load_tokenizer(config.model)
        with excuse("whether the learning rate suits the model's size"):
            of_rate = rate_advice(config) if is_trained and not has_model else []
        if tokenizer is not None and config.rollouts.stop_strings:
            StopStrings(tokenizer, config.rollouts.stop_strings)
        if tokenizer is not None and found.environment is not None and found.tasks is not None:
            tokenizer = talking(tokenizer, found.environment, found.tasks)
        if tokenizer is not None and found.tasks is not None:
            fitted = fit_prompts(found.tasks, tokenizer, config.rollouts.max_prompt_tokens, is_trained=is_trained)
            of_prompts = fitted.notes
            found = replace(
                found,
                tasks=fitted.tasks,
                longest_prompt=fitted.longest_prompt,
                num_dropped_train=fitted.num_dropped_train,
                num_dropped_eval=fitted.num_dropped_eval,
            )
            if is_trained:
                found.systems.check("check_train", config.rollouts.num_prompts, len(fitted.tasks.train))
                found.systems.check("check_tasks", looked_at(fitted.tasks.train))
                found.systems.check("check_model", tokenizer, config.rollouts.max_new_tokens)
        of_model = () if has_model else device_notes(config.model)
        warnings = (
            *of_model,
            *found.warnings,
            *filter_advice(config),
            *costs_advice(config),
            *of_rate,
            *of_questions,
            *of_prompts,
        )
        on_error.pop_all()
    return replace(found, tokenizer=tokenizer, warnings=warnings)


def _resolve_names(config: RunConfig) -> Found:
    named(config.rollouts.scheduler, "rollouts.scheduler")
    select = config.select
    rule = resolve_rule(select.rule, rule_options(config))
    algorithm = resolve_algorithm(**config.loss.model_dump(exclude={"kl_beta"}))
    advantage = resolve_advantage(algorithm.advantage)
    generator = resolve_generator(config.rollouts.generator, config.options)
    check_elsewhere(config, generator)
    if "vllm" in config.options and generator.options_name != "vllm":
        raise UsageError(f"[options.vllm]: {generator.option} does not read it; remove the table")
    parts = parts_of(config)
    size = check_sizes(config, parts) // select.num_chunks
    is_larger = size > config.rollouts.num_rollouts // select.num_chunks
    keeps_all = select.rule == "keep_all" and (is_larger or grows_groups(parts))
    kept = size if keeps_all else kept_of(select.kept_of_chunk, size)
    try_rule(rule, size, kept)
    groups, selections, advantages = try_advantage(advantage, kept)
    shape_advantages(groups, selections, advantages, parts["shape"])
    bound = parts.one("bound")
    if bound is not None and bounds_of(groups, selections, bound) is not None and algorithm.loss.clip == "none":
        raise UsageError(f"{bound.option} bounds ratios, and loss.clip = 'none' has no bound: leave one of them out")
    check_baseline(config.correct.baseline, clip=algorithm.loss.clip, kl_beta=config.loss.kl_beta)
    check_exclusions(config, parts, advantage)
    replay_notes(config, parts)
    generator.check_run(config)
    return Found(
        generator=generator,
        systems=parts,
        budget=Budget(parts),
        costs=costs_of(config),
        rule=rule,
        advantage=advantage,
        loss=algorithm.loss,
    )


def _with_questions(found: Found, config: RunConfig, tasks: TaskSet, is_trained: bool) -> Found:
    """Find the rewards, and try them on one question; the warnings are those of the trial."""
    if is_trained and not tasks.train:
        raise UsageError(
            f"task.name = '{config.task.name}': the data found has no training questions, so it can only be "
            "evaluated on; set task.path to a folder that has train.jsonl too, or to another set"
        )
    task = config.task
    rewards = tasks.rewards if task.rewards is None else task.rewards
    correct = tasks.correct if task.correct is None else task.correct
    format = tasks.format if task.format is None and tasks.format in rewards else task.format
    scorer = Scorer(
        rewards,
        correct,
        format=format,
        workers=task.reward_workers,
        timeout_seconds=task.reward_timeout_seconds,
        batch_timeout_seconds=task.batch_timeout_seconds,
    )
    with ExitStack() as on_error:
        on_error.enter_context(scorer)
        first = (tasks.train if is_trained else tasks.eval)[0]
        environment, of_environment = find_environment(config, tasks, first)
        on_error.callback(environment.close if environment else lambda: None)
        check_earned(environment, {*rewards, correct, format})
        warnings = (*scorer.probe(first), *of_environment)
        if is_trained:
            check_pieces(found.systems, scorer, environment)
            kept = config.select.num_kept
            if found.systems.has("close") and isinstance(kept, int):
                kept = kept_of_plenty(found.rule, kept)
            found.systems.check("check_rewards", kept, reward_bounds(rewards))
            found.systems.check("check_answers", correct, correct in EXTRACTORS)
        on_error.pop_all()
    return replace(
        found,
        tasks=tasks,
        rewards=rewards,
        correct=correct,
        format=format,
        scorer=scorer,
        environment=environment,
        warnings=warnings,
    )


def _question_advice(config: RunConfig, found: Found) -> list[str]:
    tasks = found.tasks
    assert tasks is not None
    return [
        *answer_advice(config, tasks, found.correct),
        *accuracy_advice(config, found.correct),
        *metric_advice(config, found.rewards, found.correct),
        *form_advice(tasks, found.rewards),
        *repeat_advice(config, tasks),
        *closing_advice(config, found.systems, found.rewards),
        *tasks.notes,
    ]
