"""Environments for tests of rollouts of several turns, and one way to ask them without worker processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from podsrl.score import Reply
from podsrl.score.base import Fault, fault_of
from podsrl.score.workers.turns import read_reply
from podsrl.types import Task


def kind_of(text: str, count: int) -> int:
    return sum(map(ord, text)) % count


def silent(task: Task, turns: list[str]) -> Any:
    return ""


def ends(task: Task, turns: list[str]) -> Any:
    return None


def echo(task: Task, turns: list[str]) -> Any:
    """Its number, and the last turn backwards; nothing more after some turns."""
    return f"{len(turns)}: {turns[-1][::-1]}\n" if kind_of(turns[-1], 4) else None


def fates(task: Task, turns: list[str]) -> Any:
    """One fate by what the model has said."""
    match kind_of(turns[-1], 5):
        case 0:
            raise ValueError("no such door")
        case 1:
            return turns[-1].encode()
        case 2:
            return "x" * (10 << 20)
        case 3:
            return "\ud800"
    return "<eos><|im_end|>\n" if len(turns) == 1 else None


def worst(task: Task, turns: list[str]) -> Any:
    """What only another process survives, by what the model has said."""
    match turns[-1]:
        case "hang":
            time.sleep(600)
        case "die":
            os._exit(7)
        case "exit":
            raise SystemExit(0)
        case "greedy":
            return len([0] * (1 << 29))
        case "draw":
            import random

            return f"{random.random()}"
    return f"{task.answer} {len(turns)}"


def pays(task: Task, turns: list[str]) -> Any:
    """A text and a reward by what was said; of some turns no reward, after some no text."""
    kind = kind_of(turns[-1], 4)
    return ("?\n" if kind else None, kind / 4) if kind < 3 else "?\n"


def paid(turns: list[str]) -> float:
    """What `pays` gives for these turns."""
    return sum(kind / 4 for kind in (kind_of(turn, 4) for turn in turns) if kind < 3)


def three_arguments(task: Task, turns: list[str], more: int) -> str:
    return ""


class Direct:
    """Asks a function in this process."""

    name = "direct"

    def __init__(self, function: Callable[[Task, list[str]], Any]) -> None:
        self.function, self.asked = function, list[tuple[str, tuple[str, ...]]]()

    def ask(self, task: Task, turns: list[str], key: Any = None) -> Any:
        self.asked.append((task.id, tuple(turns)))
        try:
            return read_reply("direct", self.function(task, turns))
        except Exception as error:
            return fault_of("direct", error, "environment")

    def is_ready(self, job: Any) -> bool:
        return True

    def wait(self, jobs: Any, seconds: float) -> None:
        pass

    def reply(self, job: Any) -> Reply | Fault:
        return job  # type: ignore[no-any-return]

    def over(self, keys: Any) -> None:
        pass

    def new_step(self) -> None:
        pass
