"""Small Python functions to be written: a task set that needs no download, judged by tests (docs/code-rewards.md).

    Write a Python function `add_to_all(numbers)` that returns a list with 7 added to each of the numbers. For example,
    `add_to_all([3, 0])` is `[10, 7]`.

Each question is a template with values of its own. A reference computes what is right for eight drawn arguments: one
stands in the question, and all are tests. The column `tests` holds them as assert statements, and `answer` the
reference.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np

from podsrl.errors import UsageError
from podsrl.lib.seeds import derive, hash_bits
from podsrl.tasks.base import TaskSet
from podsrl.tasks.split import MOST_HELD_OUT
from podsrl.tasks.steps import check_shares
from podsrl.types import Task

NUM_TESTS = 8
LEVELS = (1, 2, 3)
_MOST_OF_TEMPLATE = 24
"""Questions of one template, so that none is most of the set."""
_SET_SEED = 20_261_128
"""Fixed: runs with different seeds have the same questions."""
_MOST_DRAWS = 1000
_WORDS = (
    "able", "bat", "civic", "delta", "echo", "fig", "gamma", "hello", "iris", "jazz", "kayak", "level", "mango", "noon",
    "orange", "pear", "queen", "radar", "stone", "tulip", "under", "violet", "wow", "xenon", "yellow", "zebra",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A kind of function, as functions.toml says."""

    level: int
    name: str
    arguments: str
    kinds: str
    asks: str
    """Goes on behind "that returns"."""
    body: str
    """Of the reference, indented."""
    values: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@lru_cache(maxsize=1)
def templates() -> tuple[Template, ...]:
    """All of them, in the file's order."""
    found = tomllib.loads(files("podsrl.tasks").joinpath("functions.toml").read_text())
    return tuple(Template(**each) for each in found["template"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    level: int
    task: Task


def load_functions(*, levels: Mapping[int, float] | None, num_eval: int | None) -> TaskSet:
    """Load all questions, or as many as have these shares of the levels, 1 (easiest) to 3; the shares add up to 1.

    One question in eight is held out, by a hash of its template and values, and never trained on. `num_eval` of them
    are used, by default `MOST_HELD_OUT` or all. The questions are the same in every run, and a smaller number of
    held-out ones is a prefix of a larger one. UsageError: a share or `num_eval` is out of range.

    Example:
        >>> tasks = load_functions(levels=None, num_eval=16)
        >>> len(tasks.eval), tasks.eval[0].columns["tests"][0].startswith("assert ")
        (16, True)
    """
    shares = None if levels is None else check_shares(levels, LEVELS)
    train, held_out = ([*_of_shares(side, shares)] for side in _questions())
    num_eval = min(MOST_HELD_OUT, len(held_out)) if num_eval is None else num_eval
    if not 1 <= num_eval <= len(held_out):
        raise UsageError(
            f"task.num_eval = {num_eval}; 'functions' has {len(held_out)} held-out questions of these levels: choose "
            f"1 .. {len(held_out)}"
        )
    return TaskSet(
        name="functions" if shares is None else f"functions, levels = {shares}",
        train=tuple(train),
        eval=tuple(held_out[:num_eval]),
        rewards={"code_tests": 1.0},
        correct="code_tests",
        format=None,
        chat=True,
    )


def _of_shares(questions: tuple[_Question, ...], shares: Mapping[int, float] | None) -> list[Task]:
    """The most questions that have these shares of the levels, in their order."""
    if shares is None:
        return [question.task for question in questions]
    counts = {level: sum(question.level == level for question in questions) for level in shares}
    size = min(counts[level] / share for level, share in shares.items() if share)
    left = {level: int(size * share + 1e-9) for level, share in shares.items()}
    found = []
    for question in questions:
        if left.get(question.level, 0) > 0:
            left[question.level] -= 1
            found.append(question.task)
    return found


@lru_cache(maxsize=1)
def _questions() -> tuple[tuple[_Question, ...], tuple[_Question, ...]]:
    """All questions for training, and all that are held out, in a fixed order without a rule."""
    sides: tuple[list[_Question], list[_Question]] = ([], [])
    for template in templates():
        names, ranges = [*template.values], (range(low, high + 1) for low, high in template.values.values())
        every = [dict(zip(names, values, strict=True)) for values in product(*ranges)]
        every.sort(key=lambda values: hash_bits(f"{template.name} {values}".encode()))
        for values in every[:_MOST_OF_TEMPLATE]:
            task = function_task(template, values)
            sides[hash_bits(task.id.encode()) % 8 == 0].append(_Question(level=template.level, task=task))
    train, held_out = (tuple(sorted(side, key=lambda each: derive(_SET_SEED, each.task.id))) for side in sides)
    return train, held_out


def function_task(template: Template, values: Mapping[str, int]) -> Task:
    """The question of a template with these values.

    Example:
        >>> print(function_task(templates()[0], {"k": 7}).answer)
        def add_number(x):
            return x + 7
    """
    shown = ", ".join(f"{name} = {value}" for name, value in values.items())
    key = f"{template.name}({shown})" if shown else template.name
    source = f"def {template.name}({template.arguments}):\n{_filled(template.body, values)}"
    space: dict[str, Any] = {}
    exec(source, space)  # a template of this package
    function = space[template.name]
    rng = np.random.default_rng(derive(_SET_SEED, key))
    cases = dict[str, Any]()
    for _ in range(_MOST_DRAWS):
        given = [_drawn(kind, rng) for kind in template.kinds]
        call = f"{template.name}({', '.join(map(repr, given))})"
        results = [*map(repr, cases.values())]
        result = function(*given)
        if call not in cases and results.count(repr(result)) < (1 + NUM_TESTS) // 2:  # no constant passes most
            cases[call] = result
        if len(cases) == NUM_TESTS:
            break
    assert len(cases) == NUM_TESTS, key
    example, wanted = next(iter(cases.items()))
    asked = _filled(template.asks, values)
    return Task(
        id=key,
        prompt=f"Write a Python function `{template.name}({template.arguments})` that returns {asked}. "
        f"For example, `{example}` is `{wanted!r}`.\n",
        answer=source,
        columns={"tests": [f"assert {call} == {result!r}" for call, result in cases.items()], "level": template.level},
    )


def _filled(text: str, values: Mapping[str, int]) -> str:
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text


def _drawn(kind: str, rng: np.random.Generator) -> Any:
    """A drawn argument: i whole number, p positive one, w word, s sentence, n numbers, t words."""
    match kind:
        case "i":
            return int(rng.integers(-20, 100))
        case "p":
            return int(rng.integers(1, 200))
        case "w":
            return _WORDS[rng.integers(len(_WORDS))]
        case "s":
            return " ".join(_WORDS[place] for place in rng.integers(len(_WORDS), size=rng.integers(1, 6)))
        case "n":
            return rng.integers(-9, 30, size=rng.integers(1, 9)).tolist()
    return [_WORDS[place] for place in rng.integers(len(_WORDS), size=rng.integers(1, 7))]
