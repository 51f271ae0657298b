"""Drop tasks whose prompt exceeds the token limit, and report how many; before any weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, NamedTuple

from podsrl.errors import UsageError
from podsrl.policy import check_chat_template, prompts_ids, special_token_in
from podsrl.tasks import TaskSet
from podsrl.types import Task, TokenMarkup

MAX_CHECKED_PROMPTS = 20_000
"""A larger set that makes its tasks on demand is checked by an even sample before training; the rest as it comes."""
_BATCH = 2048
"""Prompts tokenised at once: as fast as all, without all their tokens in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A task set whose prompts are within the limit."""

    tasks: TaskSet
    longest_prompt: int
    """Tokens."""
    num_dropped_train: int
    num_dropped_eval: int
    notes: tuple[str, ...]
    """One sentence for each side that lost questions, or that holds special tokens."""


def fit_prompts(tasks: TaskSet, tokenizer: Any, max_prompt_tokens: int, *, is_trained: bool = True) -> Fitted:
    """Leave out the questions with longer prompts; `is_trained` = False leaves the training side unread.

    Raises:
        UsageError: nothing is left of a side; a prompt is empty; the tokenizer's chat template is missing or drops the
            system prompt; a set of more than `MAX_CHECKED_PROMPTS` tasks made on demand has a longer prompt.

    Example:
        >>> fit_prompts(load_tasks("gsm8k"), tokenizer, 256).notes               # doctest: +SKIP
        ('3 of 7,473 training questions have prompts of more than 256 tokens and are left out',)
    """
    check_chat_template(tokenizer, tasks.eval[0])
    held_out = _fit(tokenizer, tasks.eval, max_prompt_tokens, "held-out")
    train = _fit(tokenizer, tasks.train, max_prompt_tokens, "training") if is_trained else _Side(tasks.train, 0, (), 0)
    return Fitted(
        tasks=replace(tasks, train=train.tasks, eval=tuple(held_out.tasks)),
        longest_prompt=max(train.longest, held_out.longest),
        num_dropped_train=len(tasks.train) - len(train.tasks),
        num_dropped_eval=len(tasks.eval) - len(held_out.tasks),
        notes=train.notes + held_out.notes + _unused(tasks.eval[0], train.num_special + held_out.num_special),
    )


def _unused(task: Task, num_special: int) -> tuple[str, ...]:
    text = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
    if num_special or not isinstance(text, TokenMarkup):
        return ()
    return ("task.special_tokens = 'tokens' changes nothing: no question holds the text of a special token",)


def looked_at(tasks: Sequence[Task]) -> Sequence[Task]:
    """All of a set; of one that is made on demand and larger than `MAX_CHECKED_PROMPTS`, an even sample."""
    if len(tasks) <= MAX_CHECKED_PROMPTS or isinstance(tasks, (tuple, list)):
        return tasks
    return tasks[:: -(-len(tasks) // MAX_CHECKED_PROMPTS)]


class _Side(NamedTuple):
    tasks: Sequence[Task]
    longest: int
    notes: tuple[str, ...]
    num_special: int
    """Questions that hold special tokens, among those looked at."""


def _fit(tokenizer: Any, tasks: Sequence[Task], limit: int, name: str) -> _Side:
    sample = looked_at(tasks)
    lengths, notes, num_special = _look_at(tokenizer, sample, name)
    if len(sample) < len(tasks):
        return _Side(tasks, _longest_of_sample(sample, lengths, limit), notes, num_special)
    fits = [length <= limit for length in lengths]
    if all(fits):
        return _Side(tasks, max(lengths), notes, num_special)
    if not any(fits):
        raise UsageError(
            f"rollouts.max_prompt_tokens = {limit}: all {len(tasks):,} {name} questions have longer prompts (the "
            f"shortest has {min(lengths):,} tokens): raise the limit, or shorten the questions"
        )
    num_left_out = fits.count(False)
    have, are = ("has a prompt", "is") if num_left_out == 1 else ("have prompts", "are")
    note = f"{num_left_out:,} of {len(tasks):,} {name} questions {have} of more than {limit} tokens and {are} left out"
    return _Side(tuple(compress(tasks, fits)), max(compress(lengths, fits)), (note, *notes), num_special)


def _look_at(tokenizer: Any, tasks: Sequence[Task], name: str) -> tuple[list[int], tuple[str, ...], int]:
    """The tokens of each prompt, notes on those that hold special tokens, and how many do."""
    lengths: list[int] = []
    held: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for start in range(0, len(tasks), _BATCH):
        batch = tasks[start : start + _BATCH]
        lengths += map(len, prompts_ids(tokenizer, batch))
        for task in batch:
            if found := special_token_in(tokenizer, task):
                token, is_text = found
                held[is_text].append((task.id, token))
    notes = tuple(_note(found, is_text, len(tasks), name) for is_text, found in held.items() if found)
    return lengths, notes, sum(map(len, held.values()))


def _note(held: Sequence[tuple[str, str]], is_text: bool, num_tasks: int, name: str) -> str:
    task, token = held[0]
    holds = "holds" if len(held) == 1 else "hold"
    start = (
        f"{len(held):,} of {num_tasks:,} {name} questions {holds} the text of a special token ({token!r} in {task!r})"
    )
    if is_text:
        return f"{start}, which is encoded as text; task.special_tokens = 'tokens' makes it the token"
    return f"{start}, which is the token, as in a prompt rendered with a chat template"


def _longest_of_sample(sample: Sequence[Task], lengths: Sequence[int], limit: int) -> int:
    if max(lengths) > limit:
        raise UsageError(
            f"prompt of task {sample[lengths.index(max(lengths))].id!r} has {max(lengths)} tokens, wanted 1 .. "
            f"rollouts.max_prompt_tokens = {limit}: raise the limit or remove the task"
        )
    return max(lengths)
