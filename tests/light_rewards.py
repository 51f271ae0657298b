"""Rewards of a user's, in a module of their own: a worker that imports it loads neither torch nor a test."""

from __future__ import annotations

import time


def slow(task: object, completion: str) -> float:
    """The length of the completion, after a hundredth of a second."""
    time.sleep(0.01)
    return float(len(completion))


def is_odd(task: object, completion: str) -> float:
    """1 or 0, about as often."""
    return float(sum(map(ord, completion)) % 2)


def raises(prompts: list[str], completions: list[str], **columns: object) -> list[float]:
    """No value at all."""
    raise RuntimeError("no judge today")


def varied(prompts: list[str], completions: list[str]) -> list[float]:
    """A value for each text, unequal in nearly every group."""
    return [sum(map(ord, text)) % 101 / 101 for text in completions]


def own_question(prompts: list[str], completions: list[str]) -> list[float]:
    """The length of the question, and how much the answer varies."""
    return [len(prompt) + len(set(text)) / 100 for prompt, text in zip(prompts, completions, strict=True)]


def constant(prompts: list[str], completions: list[str]) -> list[float]:
    """Nothing to learn from."""
    return [0.5] * len(completions)
