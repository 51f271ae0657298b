"""Accuracy against generated tokens: a search at one width (`Point`), and the widths that are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from podsrl.evaluation.search.run import Found
from podsrl.score.accuracy import powers_of_two, share_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A search at one width."""

    search: str
    width: int
    num_questions: int
    num_right: int
    """Questions whose given answer is right."""
    tokens: float
    """Mean tokens drawn for a question."""
    most_tokens: int
    """Drawn for one question."""
    num_unanswered: int
    """Questions without a given answer; they count as wrong."""

    @property
    def accuracy(self) -> float:
        """Share of the questions whose given answer is right."""
        return self.num_right / self.num_questions

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy over questions."""
        return share_interval(self.num_right, self.num_questions)

    def to_json(self) -> dict[str, Any]:
        """The fields, the accuracy, and the ends of its interval."""
        low, high = self.interval
        return {**asdict(self), "accuracy": self.accuracy, "low": low, "high": high}


def point_of(name: str, width: int, found: Sequence[Found]) -> Point:
    """Summarise what a search found, for at least one question."""
    return Point(
        search=name,
        width=width,
        num_questions=len(found),
        num_right=sum(each.answer is not None and each.answer.is_correct for each in found),
        tokens=sum(each.num_tokens for each in found) / len(found),
        most_tokens=max(each.num_tokens for each in found),
        num_unanswered=sum(each.answer is None for each in found),
    )


def widths(most: int) -> list[int]:
    """1, 2, 4, 8 … and the largest.

    Example:
        >>> widths(12)
        [1, 2, 4, 8, 12]
    """
    return sorted({1, most, *powers_of_two(most)})
