"""Notes and warnings about a config before a run begins: how the data is split, and choices that rarely work."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from podsrl.config.schema import RunConfig, TaskConfig
from podsrl.lib.text import prompt_text
from podsrl.run.before.model_shape import read_shape
from podsrl.score import EXTRACTORS, MARKS
from podsrl.tasks import TaskSet

LARGE_MODEL = 100_000_000
"""Weights from which `MOST_LR` holds. Smaller ones, the demo's among them, take higher rates; the published rates below
are for models of half a billion weights and more."""
MOST_LR = 2e-5
"""The highest published learning rate for all weights of such a model that we know: the PODS paper's for 3B with a
cosine (settings d and e; 5e-6 in another of its files). TRL's GRPOConfig and verl's examples start from 1e-6."""
MOST_LORA_LR = 5e-4
"""Likewise for adapters, which take about ten times the rate of all weights (Schulman et al. 2025, "LoRA Without
Regret"): Hu et al. 2021 train models of 125 million weights at up to 5e-4. The paper's settings a, b and c train
adapters of rank 64 at 5e-6, well below."""
MOST_WITHOUT_ANSWER = 0.05
"""Share of the reference answers that may well be words for none."""
_NO_ANSWER = re.compile(r"[-–—?._/*\s]+|n\.?/?a\.?|none|null|nan|tbd|todo|unknown|see\s.*", re.IGNORECASE)


def learn_note(config: RunConfig, rewards: Mapping[str, float]) -> str:
    """Which model learns what, and from which rewards.

    Example:
        >>> learn_note(RunConfig(), {"correct": 1.0, "format": 0.1})
        "builtin:arithmetic learns from the questions of 'arithmetic', rewarded by correct (1) and format (0.1)"
    """
    source = config.task.path or config.task.name
    names = " and ".join(f"{name} ({weight:g})" for name, weight in rewards.items())
    return f"{config.model.path} learns from the questions of {source!r}, rewarded by {names}"


def stop_note(tokenizer: Any, token_ids: Iterable[int], strings: Iterable[str]) -> str:
    """What ends an answer, as text."""
    ends = [*(repr(tokenizer.decode([token])) for token in token_ids), *(f"the text {text!r}" for text in strings)]
    return f"an answer ends at {' or '.join(ends) or 'the token limit alone: the model names no end token'}"


def split_note(task: TaskConfig, tasks: TaskSet) -> str:
    """How many questions are on each side, and which option decided that.

    Example:
        >>> from podsrl.tasks import load_tasks
        >>> split_note(TaskConfig(), load_tasks("arithmetic"))
        '7,336 questions: 7,080 to train on, 256 held out (task.num_eval)'
    """
    given = [name for name in ("eval_path", "eval_split") if getattr(task, name) is not None]
    option = f"task.{given[0] if given else 'num_eval'}"
    num_train, num_eval = len(tasks.train), len(tasks.eval)
    return f"{num_train + num_eval:,} questions: {num_train:,} to train on, {num_eval:,} held out ({option})"


def eval_note(config: RunConfig) -> str:
    """When the run is evaluated, and when it ends.

    Example:
        >>> eval_note(RunConfig())  # doctest: +ELLIPSIS
        'no evaluation between start and end (eval.every_steps and eval.every_seconds are 0); stops after 100 steps'
    """
    stop, every = config.stop, config.eval
    ends = [f"{stop.steps:,} {'step' if stop.steps == 1 else 'steps'}"] * (stop.steps > 0) + [
        f"{stop.seconds:,g} s of training"
    ] * (stop.seconds > 0)
    when = [f"{every.every_steps:,} steps" if every.every_steps > 1 else "step"] * (every.every_steps > 0)
    when += [f"{every.every_seconds:,g} s of training"] * (every.every_seconds > 0)
    none = "no evaluation between start and end (eval.every_steps and eval.every_seconds are 0)"
    evaluated = f"evaluation at start and end, and every {' and every '.join(when)}" if when else none
    return f"{evaluated}; stops after {' or '.join(ends)}"


def rate_advice(config: RunConfig) -> list[str]:
    """A learning rate far above what models of this size are trained with.

    Raises:
        UsageError: no such model; only where the rate is that high.
    """
    lora = config.lora is not None
    most = MOST_LORA_LR if lora else MOST_LR
    if config.optim.lr <= most or (size := read_shape(config.model).num_weights) < LARGE_MODEL:
        return []
    return [
        f"optim.lr = {config.optim.lr:g} is high for {'adapters on' if lora else 'all weights of'} a model of "
        f"{_size_text(size)} weights, and may ruin it within a few steps: at most {most:g} is usual, and the "
        f"paper's recipes for 3B have {'5e-6 with LoRA r = 64' if lora else '2e-5, or 5e-6 with LoRA r = 64'}; set "
        "optim.lr"
    ]


def _size_text(size: int) -> str:
    return f"{size / 1e9:.1f} billion" if size >= 1e9 else f"{size / 1e6:.0f} million"


def filter_advice(config: RunConfig) -> list[str]:
    """A warning about sampling that excludes tokens, since the update does not account for it."""
    rollouts = config.rollouts
    filters = {"top_p": rollouts.top_p < 1, "top_k": rollouts.top_k > 0, "min_p": rollouts.min_p > 0}
    active = [f"rollouts.{name}" for name, is_on in filters.items() if is_on]
    if not active:
        return []
    return [
        f"{', '.join(active)}: rollouts are sampled from a filtered distribution and trained on the whole one, so "
        "ratios start below 1 and logprob_gap is not 0; clipping may drop tokens from the first step on"
    ]


def answer_advice(config: RunConfig, tasks: TaskSet, correct: str) -> list[str]:
    """Own data without answers, or in GSM8K's format, whose whole solutions no answer equals: rewards would be 0."""
    if config.task.name not in ("jsonl", "hub") or correct not in EXTRACTORS:  # own functions read what they like
        return []
    everything = (*tasks.eval, *tasks.train)
    whole = [task for task in everything if "####" in task.answer]
    none = [task for task in everything if _NO_ANSWER.fullmatch(task.answer.strip())]
    if len(none) > MOST_WITHOUT_ANSWER * len(everything):
        return [
            f"{len(none):,} of {len(everything):,} reference answers say that there is none (task '{none[0].id}': "
            f"{none[0].answer!r}), so nothing is correct there: leave these rows out, or name another column in "
            "task.answer_column"
        ]
    if not whole:
        return []
    end = " ".join(whole[0].answer.split())[-20:]
    return [
        f"{len(whole):,} reference answers hold '####' (task '{whole[0].id}': '… {end}'), and "
        f"'{correct}' compares with all of the text, so nothing is correct: name a column with the final answer alone "
        "in task.answer_column, or use task.name = 'gsm8k' with task.path"
    ]


def form_advice(tasks: TaskSet, rewards: Collection[str]) -> list[str]:
    """Rewards that pay for marks of which nothing tells the model.

    A model that goes on from plain text may have learned to write `Answer:`, as those of this package have.
    """
    prompt = (tasks.train or tasks.eval)[0].prompt
    text, is_plain = prompt_text(prompt), isinstance(prompt, str)
    untold: dict[tuple[str, ...], list[str]] = {}
    for name in rewards:
        marks = tuple(mark for mark in MARKS.get(name, ()) if mark not in text)
        if marks and not (is_plain and marks == MARKS["format"]):
            untold.setdefault(marks, []).append(name)
    return [
        f"{', '.join(names)} {'pays' if len(names) == 1 else 'pay'} for {' '.join(marks)}, and nothing in the prompt "
        "tells the model to write that: say it in task.system_prompt ('pods_single_gpu' tells of the tags), or in the "
        "questions"
        for marks, names in untold.items()
    ]


def repeat_advice(config: RunConfig, tasks: TaskSet) -> list[str]:
    """More questions per step than there are."""
    num_prompts, num_train = config.rollouts.num_prompts, len(tasks.train)
    if num_prompts <= num_train:
        return []
    return [
        f"rollouts.num_prompts = {num_prompts:,}, and {num_train:,} questions to train on: a step asks some repeatedly"
    ]


def accuracy_advice(config: RunConfig, correct: str) -> list[str]:
    """Rewards of the user's choice, and an accuracy by another function, which may be 0 whatever the policy learns."""
    task = config.task
    if task.correct is not None or not task.rewards or correct in task.rewards:
        return []
    names = ", ".join(map(repr, task.rewards))
    return [
        f"{correct!r}, the task set's own, decides what is correct, and is not among task.rewards: set task.correct to "
        f"what decides, one of {names} (1 and more is correct), or {correct!r} if that is meant"
    ]


def metric_advice(config: RunConfig, rewards: Collection[str], correct: str) -> list[str]:
    """Dynamic sampling by rewards of several parts, which differ within nearly every group: it filters nothing."""
    used = [name for name in ("dapo", "mixed") if name in config.systems]
    by_reward = [name for name in used if config.options.get(name, {}).get("metric") == "reward"]
    if not by_reward or set(rewards) == {correct}:
        return []
    [option] = (f"options.{name}.metric" for name in by_reward)
    return [
        f"{option} = 'reward': the rewards of nearly every group differ where {', '.join(rewards)} are rewarded, so "
        f"nearly all groups count as mixed; {option} = 'correct' goes by the answers alone"
    ]
