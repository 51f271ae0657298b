"""Judged groups and views for the tests of parts that choose questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from podsrl.control import View
from podsrl.tasks import Stream
from podsrl.types import Group, Task
from tests.systems.made_up_groups import right_of


def tasks_of(prompts: Sequence[str]) -> list[Task]:
    return [Task(id=str(place), prompt=prompt, answer="") for place, prompt in enumerate(prompts)]


def group(index: int, right: int, wrong: int, *, prompt: str = "?", is_trained: bool = True) -> Group:
    """A group with so many right and wrong rollouts."""
    name = f"s6/{index}/{'trained' if is_trained else 'probe'}"
    found = right_of(name, right, right + wrong, index=index, is_trained=is_trained)
    return replace(found, task=replace(found.task, prompt=prompt))


def view_of(num_train: int, *, step: int = 0, prompts: Sequence[str] = (), **changes: Any) -> View:
    return View(
        step=step,
        num_prompts=4,
        num_rollouts=8,
        num_train=num_train,
        tasks=tasks_of(prompts or ["?"] * num_train),
        seed=3,
        stream=Stream(num_train, seed=1),
        **changes,
    )
