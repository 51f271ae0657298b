"""XRPO's examples: a question that nobody solves is asked again behind solved questions that are like it.

A group of which no rollout is right so far gets its further rollouts with up to `count` solved examples before the
question (Bamba et al. 2025, arXiv 2510.06672). The examples are verified solutions of this run: right rollouts, from a
store that grows with every step. So it needs rounds, such as those of `budget.rollouts = "confidence"`.

What is ours: likeness is the cosine of hashed character n-grams of the questions' texts, in place of an embedding model
of eight billion parameters. The store holds one solution of each of the `size` questions that were solved last, and
none of more than `max_characters`. A question is no example for itself, nor for one with the same text. Where the store
has nothing that fits, the question is asked plainly. The update trains on the prompt that was answered, with the
examples, because the rollouts are on-policy for no other; the paper does not say.

Special tokens stay what they were: a solution, which a model wrote, is plain text, and in chat messages it is a message
of its own, so that it cannot change how the question's own `TokenMarkup` is read. A prompt that is one text of
`TokenMarkup` is asked plainly, since nothing can be put before it without being read as markup too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile, islice, pairwise, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group, Task, TokenMarkup

Floats = NDArray[np.float32]
Prompt = str | tuple[Mapping[str, str], ...]
ORIGIN = "examples"
"""`Rollout.origin` of those that were asked with examples."""
_GRAMS = (3, 4, 5)
"""Lengths of the n-grams, in bytes of UTF-8."""
_BUCKETS = 1024
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Examples:
    """Solved examples before questions that no rollout has solved so far.

    Args:
        count: examples per question, at most.
        size: solutions in the store, at most.
        max_characters: a longer solution is not stored.

    Raises:
        UsageError: an option out of its range.
    """

    def __init__(self, *, count: int = 2, size: int = 1024, max_characters: int = 4000) -> None:
        for name, value, most in (
            ("count", count, 16),
            ("size", size, 8192),
            ("max_characters", max_characters, 2**20),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"options.examples.{name} = {value}; wanted 1 .. {most:,}")
        self._count, self._size, self._max_characters = count, size, max_characters
        self._solutions: dict[int, str] = {}
        """By the question's place in the training set, the one that was solved longest ago first."""
        self._vectors: dict[int, Floats] = {}
        """Of questions that were looked at, for speed."""

    def guide(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The asks that join an all-wrong group, with examples before their question."""
        unsolved = {group.id for group in view.groups if not any(rollout.is_correct for rollout in group.rollouts)}
        places = [i for i, ask in enumerate(asks) if ask.joins in unsolved and ask.prompt is None]
        guided = list(asks)
        if not places or not self._solutions:
            return guided
        known = list(self._solutions)
        vectors = np.stack([self._vector(index, view.tasks) for index in known])
        for i in places:
            index, task = asks[i].index, view.tasks[asks[i].index]
            likeness = vectors @ self._vector(index, view.tasks)
            nearest = (known[place] for place in np.argsort(-likeness, kind="stable"))
            fitting = (other for other in nearest if other != index and fits(view.tasks[other], task))
            examples = [(view.tasks[other], self._solutions[other]) for other in islice(fitting, self._count)]
            if examples:
                guided[i] = replace(asks[i], prompt=with_examples(task, examples), origin=ORIGIN)
        return guided

    def learn(self, groups: Sequence[Group]) -> None:
        """Store the first right rollout of each group whose text is short enough."""
        for group in groups:
            texts = (rollout.text for rollout in group.rollouts if rollout.is_correct and rollout.is_valid)
            solution = next((text for text in texts if 0 < len(text) <= self._max_characters), None)
            if solution is not None and group.index is not None:
                self._solutions.pop(group.index, None)
                self._solutions[group.index] = solution
        for index in list(self._solutions)[: -self._size]:
            del self._solutions[index]

    def state(self) -> Mapping[str, Any]:
        """The store, as arrays: places, and the solutions' bytes with the length of each."""
        parts = [text.encode("utf-8", "surrogatepass") for text in self._solutions.values()]
        return {
            "indices": np.array(list(self._solutions), dtype=np.int64),
            "lengths": np.array([len(part) for part in parts], dtype=np.int64),
            "solutions": np.frombuffer(b"".join(parts), dtype=np.uint8),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        blob = state["solutions"].tobytes()
        ends = np.concatenate([[0], np.cumsum(state["lengths"])]).tolist()
        texts = [blob[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]
        self._solutions = dict(zip(state["indices"].tolist(), texts, strict=True))

    def _vector(self, index: int, tasks: Sequence[Task]) -> Floats:
        if index not in self._vectors:
            if len(self._vectors) >= 2 * self._size:
                self._vectors.clear()
            self._vectors[index] = vector_of(tasks[index])
        return self._vectors[index]


def with_examples(task: Task, examples: Sequence[tuple[Task, str]]) -> Prompt:
    """A task's prompt behind solved tasks, the likest last, so that it is nearest to the question.

    Texts are one text with a blank line between. In chats, each example is its messages but those of the system, and
    its solution as the assistant's; the task's own system messages come first.

    Args:
        task: a text that is no `TokenMarkup`, or chat messages.
        examples: of the same form, the likest first, each with its solution.

    Example:
        >>> seven = Task(id="a", prompt="3+4=", answer="7")
        >>> with_examples(Task(id="b", prompt="3+5=", answer="8"), [(seven, "7")])
        '3+4=7\\n\\n3+5='
    """
    if isinstance(task.prompt, str):
        before = [f"{example.prompt}{solution}\n\n" for example, solution in reversed(examples)]
        return "".join([*before, task.prompt])
    solved: list[Mapping[str, str]] = []
    for example, solution in reversed(examples):
        solved += _after_system(example)
        solved.append({"role": "assistant", "content": "".join(solution)})
    system = takewhile(_is_system, task.prompt)
    return (*system, *solved, *_after_system(task))


def fits(example: Task, task: Task) -> bool:
    """Whether one may stand before the other: both chats, or both plain texts, and not the same question."""
    prompts = (example.prompt, task.prompt)
    if any(isinstance(prompt, TokenMarkup) for prompt in prompts) or _question(example) == _question(task):
        return False
    return isinstance(example.prompt, str) == isinstance(task.prompt, str)


def vector_of(task: Task) -> Floats:
    """[1024] counts of the question's hashed n-grams, scaled to length 1; the dot product of two is their likeness.

    All 0 where the text is too short.
    """
    data = np.frombuffer(_question(task).encode("utf-8", "surrogatepass"), dtype=np.uint8).astype(np.uint64)
    found = np.zeros(_BUCKETS, dtype=np.float32)
    for length in _GRAMS:
        if len(data) >= length:
            powers = _FACTOR ** np.arange(1, length + 1, dtype=np.uint64)
            hashes = np.convolve(data, powers, "valid") >> np.uint64(54)  # the highest bits mix best
            found += np.bincount(hashes.astype(np.int64), minlength=_BUCKETS)
    return found / (np.linalg.norm(found) or 1.0)


def _question(task: Task) -> str:
    """The text that tells questions apart; a system prompt is the same for all."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(message["content"] for message in _after_system(task))


def _after_system(task: Task) -> list[Mapping[str, str]]:
    assert not isinstance(task.prompt, str)
    return list(dropwhile(_is_system, task.prompt))


def _is_system(message: Mapping[str, str]) -> bool:
    return message["role"] in ("system", "developer")
