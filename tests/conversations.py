"""Environments that start conversations, for tests, with twins of the simple form."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import Any

from podsrl.score import Reply
from podsrl.types import Task


class Guess:
    """Which number? It keeps the bounds that were said so far, and writes starts and ends into the column "log"."""

    def __init__(self, task: Task) -> None:
        self.task, self.low, self.high, self.count = task, 0, 100, 0
        self.write("start")

    def hear(self, text: str) -> Any:
        self.count += 1
        if int(text) == int(self.task.answer):
            return None, 1.0
        if int(text) < int(self.task.answer):
            self.low = max(self.low, int(text) + 1)
        else:
            self.high = min(self.high, int(text))
        return f"{self.count}: {self.low} to {self.high}"

    def close(self) -> None:
        self.write("close")

    def write(self, word: str) -> None:
        if "log" in self.task.columns:
            with open(str(self.task.columns["log"]), "a") as file:
                file.write(f"{word} {self.task.id}\n")


def guess(task: Task, turns: list[str]) -> Any:
    """What `Guess` says, from all turns."""
    said, number = [int(turn) for turn in turns], int(task.answer)
    if said[-1] == number:
        return None, 1.0
    low = max([0, *(each + 1 for each in said if each < number)])
    return f"{len(said)}: {low} to {min([100, *(each for each in said if each > number)])}"


class Waiting(Guess):
    """All of it waits a little, as long as the column "seconds" says."""

    async def hear(self, text: str) -> Any:
        await asyncio.sleep(float(str(self.task.columns.get("seconds", 0.0))))
        return super().hear(text)

    async def close(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().close()


async def waits(task: Task) -> Waiting:
    await asyncio.sleep(0)
    return Waiting(task)


class Draws:
    """Random numbers of each call."""

    def __init__(self, task: Task) -> None:
        import random

        self.first = random.random()

    async def hear(self, text: str) -> Any:
        import random

        drawn = random.random()
        await asyncio.sleep(0.01)
        return f"{self.first} {drawn}"


class Fates:
    """One fate by what the model says; "close ..." is what happens at the end."""

    def __init__(self, task: Task) -> None:
        self.end = ""
        if task.id in {"raise", "hang", "die"}:
            _befall(task.id)

    async def hear(self, text: str) -> Any:
        if text.startswith("close "):
            self.end = text.removeprefix("close ")
        elif text == "sleep":
            await asyncio.sleep(600)
        elif text == "deaf":
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(600)
        elif text == "wait":
            await asyncio.sleep(0.05)
        elif text == "bytes":
            return b"x"
        elif text == "reply":
            return Reply(("a", "b"), reward=0.5)
        else:
            _befall(text)
        return text

    def close(self) -> None:
        _befall(self.end)


def _befall(fate: str) -> None:
    match fate:
        case "raise":
            raise ValueError("no such door")
        case "exit":
            raise SystemExit(3)
        case "hang":
            time.sleep(600)
        case "die":
            os._exit(7)
        case "greedy":
            len([0] * (1 << 29))


class Mute:
    def __init__(self, task: Task) -> None:
        pass


class Deaf:
    def __init__(self, task: Task) -> None:
        pass

    def hear(self) -> None:
        pass


class Apart:
    """Not made from a task."""

    def hear(self, text: str) -> None:
        pass


def nothing(task: Task) -> None:
    return None


async def sleeps(task: Task) -> None:
    await asyncio.sleep(600)


def breaks(task: Task) -> None:
    _befall("raise")


class Bytes(Mute):
    async def hear(self, text: str) -> bytes:
        return b"x"


async def waits_for_turns(task: Task, turns: list[str]) -> None:
    pass
