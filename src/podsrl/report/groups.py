"""Recorded groups: every rollout of one task, with its reward, its advantage, and whether and why it was dropped.

In: one parsed line of groups.jsonl. Out: `RecordedGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podsrl.lib.text import prompt_text

LARGEST = 1e100
"""Size of a number that is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRollout:
    """One rollout as it was written down."""

    index: int
    text: str
    reward: float | None
    """None where invalid."""
    parts: Mapping[str, float | None]
    """Each reward function's value; None where it gave none."""
    is_correct: bool
    invalid_reason: str | None
    num_tokens: int
    finish_reason: str
    is_kept: bool
    drop_reason: str | None
    advantage: float | None
    """None where dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """All rollouts of one task in one step."""

    step: int
    group: str
    task_id: str
    prompt: str
    """Chat messages are written as "role: content", one after another."""
    answer: str
    rollouts: tuple[RecordedRollout, ...]

    def by_reward(self) -> tuple[RecordedRollout, ...]:
        """Return the rollouts with the highest reward first; the invalid ones, which have none, come last."""
        return tuple(sorted(self.rollouts, key=lambda r: (r.reward is None, -(r.reward or 0.0), r.index)))

    @property
    def is_zero_signal(self) -> bool:
        """Whether every kept rollout has the same reward, so that all advantages are zero and nothing is learned."""
        kept = {rollout.reward for rollout in self.rollouts if rollout.is_kept}
        return len(kept) <= 1


def parse_group(line: Mapping[str, Any]) -> RecordedGroup:
    """Make a record of one parsed line of groups.jsonl.

    Args:
        line: the JSON object.

    Returns:
        The record.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the line is no recorded group; the reader counts it as damaged.
    """
    task = line["task"]
    return RecordedGroup(
        step=int(line["step"]),
        group=str(line["group"]),
        task_id=str(task["id"]),
        prompt=prompt_text(task["prompt"]),
        answer=str(task["answer"]),
        rollouts=tuple(_parse_rollout(rollout) for rollout in line["rollouts"]),
    )


def _parse_rollout(entry: Mapping[str, Any]) -> RecordedRollout:
    return RecordedRollout(
        index=int(entry["index"]),
        text=str(entry["text"]),
        reward=_number(entry["reward"]),
        parts={str(name): _number(value) for name, value in entry["parts"].items()},
        is_correct=bool(entry["is_correct"]),
        invalid_reason=_text(entry["invalid_reason"]),
        num_tokens=int(entry["num_tokens"]),
        finish_reason=str(entry["finish_reason"]),
        is_kept=bool(entry["kept"]),
        drop_reason=_text(entry["drop_reason"]),
        advantage=_number(entry["advantage"]),
    )


def _number(value: Any) -> float | None:
    """ValueError: it is too large for sums and differences of such numbers to be finite."""
    # NaN is how Python's json writes a missing float; it means the same as null here.
    if value is None or value != value:
        return None
    if abs(value) > LARGEST:
        raise ValueError("too large")
    return float(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
