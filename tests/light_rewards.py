"""Rewards of a user's, in a module of their own: a worker that imports it loads neither torch nor a test."""

from __future__ import annotations

import time


def slow(task: object, completion: str) -> float:
    """The length of the completion, after a hundredth of a second."""
    time.sleep(0.01)
    return float(len(completion))


def half_none(task: object, completion: str) -> float | None:
    """None where the last digit but one is odd."""
    return None if completion[-2:-1] in "13579" else 1.0 * len(set(completion))


def raises(prompts: list[str], completions: list[str], **columns: object) -> list[float]:
    """No value at all."""
    raise RuntimeError("no judge today")


def too_short(prompts: list[str], completions: list[str]) -> list[float]:
    """One value fewer than there are completions."""
    return [0.0] * (len(completions) - 1)


def varied(prompts: list[str], completions: list[str]) -> list[float]:
    """A value for each text, unequal in nearly every group."""
    return [sum(map(ord, text)) % 101 / 101 for text in completions]


def own_question(prompts: list[str], completions: list[str]) -> list[float]:
    """The length of the question, and how much the answer varies."""
    return [len(prompt) + len(set(text)) / 100 for prompt, text in zip(prompts, completions, strict=True)]


def constant(prompts: list[str], completions: list[str]) -> list[float]:
    """Nothing to learn from."""
    return [0.5] * len(completions)
