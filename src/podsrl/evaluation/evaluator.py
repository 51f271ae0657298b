"""Evaluate a model without a trainer: a model, an engine and a scorer, but no updater, optimizer or second model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, short
from podsrl.generate import Generator
from podsrl.lib.machine import configure_threads
from podsrl.lib.seeds import seed_globals
from podsrl.lib.torch_model import end_token_ids
from podsrl.policy import load_model, load_policy
from podsrl.run.before.checks import check_window
from podsrl.run.before.data import load_task_set
from podsrl.run.before.matmul import settle_matmul
from podsrl.run.before.prepare import Prepared, prepare
from podsrl.run.before.prompt_lengths import Fitted, fit_prompts
from podsrl.run.before.settle import settle
from podsrl.run.evaluate import eval_groups, eval_sampling
from podsrl.run.step.generators import make_generator, new_setting
from podsrl.run.step.wiring import new_desk
from podsrl.scale.processes import Processes
from podsrl.score import ScoreStats
from podsrl.sync import sync_weights
from podsrl.types import Group, Rollout, Task

_NUM_WAITING = 4
"""Answered questions that wait before they are judged, so that reward workers have done so while others generate."""


class Evaluator:
    """Samples and judges `eval.num_samples` answers to each held-out question.

    The answers are those of an evaluation in a run with the same weights: random numbers depend on the seed and the
    question alone. Adapters are merged into their base once, by PEFT, which in 16 bits may round otherwise than a run.

    Args:
        config: of which model, task, eval, seed, threads and the token limits are read (`evaluation/target.py`).
        num_questions: of the held-out ones, evenly spread over them; 0: all.
        adapters: of a base in 4 bits.
        system_prompts: behind which the questions can be asked as well (`worded`); an entry None: no system prompt.

    Raises:
        UsageError: what `prepare` and `load_model` raise, or more questions than there are; a system prompt that the
            questions cannot have, or with which fewer of them fit.

    Example:
        >>> with Evaluator(load_config("pods"), num_questions=8) as evaluator:            # doctest: +SKIP
        ...     print(accuracy_of(list(evaluator.answers())).accuracy)
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        num_questions: int = 0,
        adapters: Path | None = None,
        system_prompts: Sequence[str | None] = (),
    ) -> None:
        config, _ = settle(config)
        self.config = config
        parts = prepare(config, is_trained=False)
        self.scorer, self.tokenizer, self.warnings = parts.scorer, parts.tokenizer, parts.warnings
        self.has_form = parts.format is not None
        """Whether answers are to have a form."""
        with ExitStack() as on_error:
            on_error.callback(parts.close)
            self.questions = _spread(parts.tasks.eval, num_questions)
            """Place among all held-out questions -> the question."""
            own = config.task.system_prompt
            fitted = {prompt: parts if prompt == own else _behind(prompt, config, parts) for prompt in system_prompts}
            self.worded = {prompt: _spread(each.tasks.eval, num_questions) for prompt, each in fitted.items()}
            """System prompt -> the same questions behind it."""
            parts = replace(
                parts, longest_prompt=max([parts.longest_prompt, *(each.longest_prompt for each in fitted.values())])
            )
            model, generator = _load(config, parts, adapters, on_error)
            self.threads = configure_threads(config.threads, model.num_parameters())
            settle_matmul(config.model.matmul, model, Processes())
            self.sampling = eval_sampling(config, end_token_ids(model, self.tokenizer))
            self.desk = new_desk(config, generator, model, parts, Processes(), self.sampling)
            self.environment = parts.environment
            self._open = on_error.pop_all()

    def answers(self, questions: Mapping[int, Task] | None = None) -> Iterator[Group]:
        """Yield each question's judged answers (without their log-probabilities) soon after the last is generated.

        `questions`: one of `worded`, in place of those that the config's own system prompt stands before.
        """
        seed_globals(self.config.seed, 0, "eval")
        self.scorer.stats = ScoreStats()
        asked = eval_groups(self.questions if questions is None else questions, self.config.eval.num_samples)
        for each in self.desk.answers(asked, self.sampling, num_waiting=_NUM_WAITING):
            yield replace(each.group, rollouts=tuple(map(_without_logprobs, each.group.rollouts)))

    def close(self) -> None:
        """End the generator and the scorer's worker processes."""
        self._open.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _behind(prompt: str | None, config: RunConfig, parts: Prepared) -> Fitted:
    """The held-out questions behind another system prompt."""
    limit = config.rollouts.max_prompt_tokens
    try:
        task = with_values(config, task={"system_prompt": prompt}).task
        fitted = fit_prompts(load_task_set(task, config.options), parts.tokenizer, limit, is_trained=False)
    except UsageError as error:
        raise UsageError(f"--system-prompt {short(prompt or '')}: {error}") from None
    if [task.id for task in fitted.tasks.eval] != [task.id for task in parts.tasks.eval]:
        raise UsageError(
            f"--system-prompt {short(prompt or '')}: {len(fitted.tasks.eval)} questions have prompts within "
            f"rollouts.max_prompt_tokens = {limit}, and {len(parts.tasks.eval)} with the config's own, but all are "
            "to be asked the same: raise the limit"
        )
    return fitted


def _load(config: RunConfig, parts: Prepared, adapters: Path | None, on_error: ExitStack) -> tuple[Any, Generator]:
    """The plain model, and what samples from it; adapters of 4 bits are merged into dequantised matrices."""
    policy = load_policy(config, parts.tokenizer) if adapters else None
    model = policy.generator_model if policy else load_model(config.model).eval()
    check_window(model, parts.longest_prompt, config.rollouts.max_new_tokens)
    setting = new_setting(config, lambda: model, model.device, parts.tokenizer)
    generator = make_generator(parts.generator, setting, Processes())
    on_error.callback(generator.close)
    if policy and adapters:
        policy.load(adapters)
        sync_weights(policy.sampled_weights(), generator, 0)
    else:
        sync_weights(model, generator, 0)
    return model, generator


def _without_logprobs(rollout: Rollout) -> Rollout:
    return replace(rollout, logprobs=())


def _spread(tasks: tuple[Task, ...], count: int) -> dict[int, Task]:
    if not 0 <= count <= len(tasks):
        raise UsageError(
            f"--num-questions {count}: {len(tasks)} questions are held out; choose 1 .. {len(tasks)}; task.num_eval "
            "says how many are (0: all of a set's own test split)"
        )
    places = [i * len(tasks) // count for i in range(count)] if count else range(len(tasks))
    return {place: tasks[place] for place in places}
