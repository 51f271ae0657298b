"""Choose the held-out questions: training and evaluation share none.

The choice depends on a seed, and a smaller number of held-out questions is always a subset of a larger one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial

import numpy as np

from podsrl.errors import UsageError
from podsrl.tasks.base import TaskSet, TasksOnDemand
from podsrl.types import Task

MOST_HELD_OUT = 256
"""Questions held out by default, if there are enough."""
_SPLIT_STREAM = 0x51
"""Second word of the split's seed, so that its stream differs from that of the training order, [seed, epoch]."""


def hold_out(
    where: object, tasks: Sequence[Task], num_eval: int | None, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Split at least 2 tasks into those to train on and `num_eval` held-out ones; both stay in their order.

    A prompt that several tasks share is never held out, so no held-out question is trained on. `num_eval` None: a fifth
    of the tasks, at least 1 and at most `MOST_HELD_OUT`. UsageError: it does not fit, or `seed`, of the shuffle, is
    negative.

    Example:
        >>> tasks = [Task(id=f"{a}", prompt=f"{a}+{a}=", answer=f"{2 * a}") for a in range(5)]
        >>> [len(side) for side in hold_out("doubles", tasks, num_eval=2, seed=0)]
        [3, 2]
    """
    prompts = [_prompt_key(task) for task in tasks]
    times = Counter(prompts)
    single = [index for index, prompt in enumerate(prompts) if times[prompt] == 1]
    most = min(len(single), len(tasks) - 1)
    if num_eval is None:
        num_eval = min(MOST_HELD_OUT, max(1, len(tasks) // 5), max(1, most))
    if not 1 <= num_eval <= most:
        repeats = len(tasks) - len(single)
        because = f", {repeats} of them with a prompt that another row shares" if repeats else ""
        none = " (0 is for sets with a test split of their own)" if num_eval == 0 else ""
        copied = "each question stands there more than once, so leave out copies, or name other questions to hold out"
        cure = (
            f"choose 1 .. {most} or add rows" if most else f"none can be held out: {'add rows' if single else copied}"
        )
        raise UsageError(
            f"task.num_eval = {num_eval}: {where} has {len(tasks)} rows{because}; at least one must be left "
            f"for training: {cure}{none}"
        )
    chosen = {single[index] for index in _first_of_shuffle(len(single), num_eval, seed)}
    train = tuple(task for index, task in enumerate(tasks) if index not in chosen)
    return train, tuple(tasks[index] for index in sorted(chosen))


def take_eval(where: object, tasks: Sequence[Task], num_eval: int | None, seed: int) -> tuple[Task, ...]:
    """Choose evaluation questions from a set's own test split, in its order: the first of a fixed shuffle.

    `num_eval` 0: all; None: `MOST_HELD_OUT`, or all if there are fewer. UsageError: the split has fewer, or `seed` is
    negative; `where` names the split in messages.

    Example:
        >>> tasks = [Task(id=f"{a}", prompt=f"{a}+{a}=", answer=f"{2 * a}") for a in range(5)]
        >>> len(take_eval("doubles", tasks, num_eval=0, seed=0)), len(take_eval("doubles", tasks, num_eval=2, seed=0))
        (5, 2)
    """
    if num_eval is None:
        num_eval = min(MOST_HELD_OUT, len(tasks))
    if not 0 <= num_eval <= len(tasks):
        raise UsageError(f"task.num_eval = {num_eval}: {where} has {len(tasks)} rows; choose 0 (all) .. {len(tasks)}")
    chosen = _first_of_shuffle(len(tasks), num_eval, seed) if num_eval else range(len(tasks))
    return tuple(tasks[index] for index in sorted(chosen))


def without_held_out(
    train: Sequence[Task], test: Sequence[Task], where: object = "the test split"
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Training tasks whose question is not in the test split, and a note with the number of the others, if any.

    Example:
        >>> one, two = Task(id="train/0", prompt="1+2=", answer="3"), Task(id="train/1", prompt="2+2=", answer="4")
        >>> without_held_out([one, two], [Task(id="test/0", prompt="1+2=", answer="3")])[1]
        ('1 of 2 training questions is also in the test split and is left out of training',)
    """
    held_out = {_prompt_key(task) for task in test}
    kept = tuple(task for task in train if _prompt_key(task) not in held_out)
    num_left_out = len(train) - len(kept)
    if not num_left_out:
        return kept, ()
    verb = "is" if num_left_out == 1 else "are"
    note = f"{num_left_out:,} of {len(train):,} training questions {verb} also in {where}"
    return kept, (f"{note} and {verb} left out of training",)


def held_apart(tasks: TaskSet) -> TaskSet:
    """The same set, whose training part has no id of its held-out part; a note counts questions that both have.

    A training part that is made on demand may be huge: each of its tasks is checked when it is read, and its questions
    are not counted. UsageError: an id is in both parts.

    Example:
        >>> seven, again = Task(id="a", prompt="3+4=", answer="7"), Task(id="b", prompt="3+4=", answer="7")
        >>> held_apart(TaskSet(name="sums", train=[again], eval=(seven,))).notes
        ('1 of 1 training questions has the text of a held-out one, under another id: it is trained on',)
    """
    held_out = {task.id for task in tasks.eval}
    if not isinstance(tasks.train, (tuple, list)):
        read = partial(_read_apart, tasks.name, tasks.train, held_out)
        return replace(tasks, train=TasksOnDemand(range(len(tasks.train)), read))
    _check_apart(tasks.name, [task.id for task in tasks.train if task.id in held_out])
    prompts = {_prompt_key(task) for task in tasks.eval}
    num_shared = sum(_prompt_key(task) in prompts for task in tasks.train)
    if not num_shared:
        return tasks
    has, are = (
        ("has the text of a held-out one", "it is") if num_shared == 1 else ("have texts of held-out ones", "they are")
    )
    note = f"{num_shared:,} of {len(tasks.train):,} training questions {has}, under another id: {are} trained on"
    return replace(tasks, notes=(*tasks.notes, note))


def _read_apart(name: str, train: Sequence[Task], held_out: Set[str], place: int) -> Task:
    task = train[place]
    _check_apart(name, [task.id] if task.id in held_out else [])
    return task


def _check_apart(name: str, shared: Sequence[str]) -> None:
    if not shared:
        return
    ids = ", ".join(map(repr, shared[:3])) + (", …" if len(shared) > 3 else "")
    raise UsageError(
        f"task set {name!r}: the training and the held-out part share {len(shared):,} id{'s' * (len(shared) > 1)} "
        f"({ids}): leave these questions out of one of them or, where they are different, give each an id of its own"
    )


def _first_of_shuffle(size: int, count: int, seed: int) -> list[int]:
    if seed < 0:
        raise UsageError(f"seed = {seed}; wanted at least 0")
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _SPLIT_STREAM])))
    first: list[int] = generator.permutation(size)[:count].tolist()
    return first


def _prompt_key(task: Task) -> str:
    return (
        task.prompt
        if isinstance(task.prompt, str)
        else json.dumps([dict(message) for message in task.prompt], default=str)
    )
