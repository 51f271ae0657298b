"""What a run would read besides its weights: questions, prompts, rewards, tokenizer.

`check_inputs` calls the same functions as a run does before it loads weights, so a mistake gives the same message. What
this machine lacks (network, GPU) is listed as not checked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safetensors import SafetensorError

from podsrl.config.schema import RunConfig
from podsrl.errors import UnavailableError
from podsrl.generate import Request, Sampling
from podsrl.generate.engine.limits import plan_memory
from podsrl.lib.model_files import shapes_in, weight_files
from podsrl.lib.torch_model import end_token_ids
from podsrl.policy import generation_config, model_folder, outline, prompt_ids
from podsrl.policy.adapter_folder import base_of
from podsrl.policy.source import unreadable
from podsrl.run.before.advice import eval_note, split_note, stop_note
from podsrl.run.before.checks import check_processes, check_window
from podsrl.run.before.costs import costs_notes
from podsrl.run.before.estimate import kv_bytes_per_token
from podsrl.run.before.model_shape import read_shape
from podsrl.run.before.prepare import Found, find
from podsrl.run.before.sizes import at_most
from podsrl.run.health import REASONS
from podsrl.score import Scorer
from podsrl.score.rewards import CODE
from podsrl.score.workers.dispatcher import default_workers
from podsrl.types import Rollout, Task

_RIGHT = {
    "boxed_correct": "\\boxed{{{}}}",
    "math_correct": "<answer>{}</answer>",
    **dict.fromkeys(CODE, "```python\n{}\n```"),
}
"""Reward that decides what is right -> how a right answer may look to it."""
_RIGHT_OTHERWISE = "Answer: {}."
_DOES_NOT_KNOW = "I do not know."
_SLOW_TRIAL_SECONDS, _SLOW_STEP_SECONDS = 1.0, 30.0
"""Above what a busy machine takes for a quick reward, and what a step may well wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """Something that could not be checked on this machine."""

    what: str
    why: str
    """The error that a run would end with here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The rewards of a made-up answer to the first training question."""

    text: str
    parts: Mapping[str, float | None]
    """Reward function -> value; None where it failed."""
    reward: float | None
    """The weighted sum; None where it is invalid."""
    is_correct: bool
    invalid_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts as the model would see them."""

    is_chat: bool
    """Whether the first training question is a chat; one set may have both kinds."""
    has_template: bool
    """Whether the tokenizer has a chat template."""
    longest: int
    """Tokens."""
    num_dropped_train: int
    """Training questions left out because their prompts are too long."""
    num_dropped_eval: int
    first: str
    """The first training question's, decoded from its tokens."""
    first_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is known before the weights are loaded; None for what this machine lacks."""

    num_train: int | None
    """Questions to train on, without those whose prompts are too long where there was a tokenizer to see it."""
    num_eval: int | None
    """Held-out questions, likewise."""
    rewards: Mapping[str, float] | None
    """Function -> weight."""
    correct: str | None
    format: str | None
    """None also where every form is wanted."""
    trials: tuple[Trial, ...]
    prompts: Prompts | None
    tokenizer: str | None
    """Kind, size and end token."""
    split: str | None
    """How the questions are split, in a line."""
    schedule: str
    """When the run is evaluated and ends, in a line."""
    costs: tuple[str, ...]
    """Which costs it decides by, in a line; empty where it decides by none."""
    not_checked: tuple[NotChecked, ...]
    warnings: tuple[str, ...]
    seconds: float
    """Duration of the check."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        return asdict(self)


def check_inputs(config: RunConfig, num_processes: int = 1) -> Inputs:
    """Check all that can be checked without weights of a run that `num_processes` would share.

    Raises:
        UsageError: what a run would raise before it loads weights, unless only this machine is the reason; a prompt and
            a completion beyond the model's window; key-value memory that holds no rollout.
        RewardError: a reward function breaks its contract.

    Example:
        >>> found = check_inputs(RunConfig())
        >>> found.num_train, found.num_eval, found.prompts.first
        (7080, 256, 'What is 10 + 10?\\n')
    """
    started, missing = time.monotonic(), dict[str, list[str]]()

    @contextmanager
    def excuse(what: str) -> Iterator[None]:
        try:
            yield
        except UnavailableError as error:
            missing.setdefault(str(error), []).append(what)

    check_processes(config, num_processes)
    with closing(find(config, excuse=excuse)) as found:
        _check_weight_files(config)
        if found.longest_prompt:
            with excuse("the model's window"):
                _check_room(config, found.longest_prompt)
        tasks, began = found.tasks, time.monotonic()
        trials = _try_rewards(found.scorer, tasks.train[0], found.correct) if tasks and found.scorer else ()
        trial_seconds = time.monotonic() - began
        return Inputs(
            num_train=len(tasks.train) if tasks else None,
            num_eval=len(tasks.eval) if tasks else None,
            rewards=dict(found.rewards) if tasks else None,
            correct=found.correct if tasks else None,
            format=found.format,
            trials=trials,
            prompts=_prompts(found, tasks.train[0]) if tasks and found.longest_prompt else None,
            tokenizer=_describe(config, found.tokenizer) if found.tokenizer is not None else None,
            split=split_note(config.task, tasks) if tasks else None,
            schedule=eval_note(config),
            costs=tuple(costs_notes(config)),
            not_checked=tuple(NotChecked(what=", ".join(what), why=why) for why, what in missing.items()),
            warnings=(*found.warnings, *trial_advice(trials), *pace_advice(config, trial_seconds)),
            seconds=time.monotonic() - started,
        )


def _check_weight_files(config: RunConfig) -> None:
    """For a model on this machine, check by their headers that all files are there and whole."""
    folder = Path(model_folder((base_of(config.model) or config.model).path))
    if not folder.is_dir():
        return  # on the hub
    try:
        shapes_in(weight_files(folder))
    except (OSError, SafetensorError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise unreadable(config.model, "weights ", error) from None


def _check_room(config: RunConfig, longest_prompt: int) -> None:
    """What a run checks once its model is there, from the model's description alone."""
    rollouts = config.rollouts
    check_window(outline(config.model), longest_prompt, rollouts.max_new_tokens)
    if rollouts.kv_cache_bytes:
        sampling = Sampling(max_new_tokens=rollouts.max_new_tokens)
        longest = Request("longest", (0,) * longest_prompt, at_most(config).rollouts.num_rollouts, sampling)
        per_token = kv_bytes_per_token(config, read_shape(config.model))
        plan_memory([longest], per_token, None, rollouts.kv_cache_bytes)


def _try_rewards(scorer: Scorer, task: Task, correct: str) -> tuple[Trial, ...]:
    texts = [_RIGHT.get(correct, _RIGHT_OTHERWISE).format(task.answer), _DOES_NOT_KNOW]
    made_up = [
        Rollout(group_id="trial", index=i, token_ids=(0,), logprobs=(0.0,), finish_reason="stop", version=0)
        for i in range(len(texts))
    ]
    [rollouts] = scorer.score([task], [made_up], [texts])
    return tuple(map(_trial, rollouts))


def trial_advice(trials: tuple[Trial, ...]) -> list[str]:
    """Rewards that do not tell the reference answer from none: they may want another form, or be wrong."""
    if len({trial.reward for trial in trials}) != 1:
        return []
    right, wrong = trials
    if right.reward is None:
        reasons = " and ".join(dict.fromkeys(str(trial.invalid_reason) for trial in trials))
        return [
            f"the rewards failed on both test answers ({reasons}): they must return a number, such as 0 for a wrong "
            "answer; `pods check-reward` tries them alone"
        ]
    same = f"the rewards give {right.text!r} and {wrong.text!r} the same, {right.reward:g}"
    if right.is_correct != wrong.is_correct:
        return [f"{same}, though one of them is correct: {REASONS['alike'][-1]}"]
    return [
        f"{same}: unless they want another form, nothing will be learned; `pods check-reward --attack` tries many forms"
    ]


def pace_advice(config: RunConfig, trial_seconds: float) -> list[str]:
    """Rewards so slow that a step would mostly wait for them: by the seconds of a trial of two answers.

    Example:
        >>> [line] = pace_advice(RunConfig(), 3.0)
        >>> line.partition(":")[0]
        'the rewards took 3.0 s for two answers'
    """
    workers = max(2, config.task.reward_workers or default_workers())  # two answers are judged side by side
    num_rollouts = config.rollouts.num_prompts * config.rollouts.num_rollouts
    step_seconds = trial_seconds * num_rollouts / workers
    if trial_seconds < _SLOW_TRIAL_SECONDS or step_seconds < _SLOW_STEP_SECONDS:
        return []
    return [
        f"the rewards took {trial_seconds:.1f} s for two answers: the {num_rollouts:,} of a step may take "
        f"{step_seconds / 60:,.1f} min with {workers} at a time: make the reward faster, raise task.reward_workers, or "
        "generate fewer"
    ]


def _trial(rollout: Rollout) -> Trial:
    return Trial(
        text=rollout.text,
        parts={name: _finite(value) for name, value in rollout.parts.items()},
        reward=_finite(rollout.reward),
        is_correct=rollout.is_correct,
        invalid_reason=rollout.invalid_reason,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _prompts(found: Found, first: Task) -> Prompts:
    ids = prompt_ids(found.tokenizer, first)
    return Prompts(
        is_chat=not isinstance(first.prompt, str),
        has_template=found.tokenizer.chat_template is not None,
        longest=found.longest_prompt,
        num_dropped_train=found.num_dropped_train,
        num_dropped_eval=found.num_dropped_eval,
        first=found.tokenizer.decode(ids, clean_up_tokenization_spaces=False),
        first_tokens=len(ids),
    )


def _describe(config: RunConfig, tokenizer: Any) -> str:
    model = SimpleNamespace(generation_config=generation_config(config.model))
    ends = stop_note(tokenizer, end_token_ids(model, tokenizer), config.rollouts.stop_strings)
    return f"{type(tokenizer).__name__}, {len(tokenizer):,} tokens; {ends}"
