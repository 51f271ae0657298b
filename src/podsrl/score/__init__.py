"""How answers are judged. Goes in: tasks and completions. Comes out: rollouts, with their rewards."""

from __future__ import annotations

from collections.abc import Callable

from podsrl.score.answers import math_correct, voted_answer
from podsrl.score.base import BatchReward, Reward, RowReward
from podsrl.score.paper import any_correct, boxed_correct, strict_format, tag_count, tag_share, think_format
from podsrl.score.scorer import Scorer, ScoreStats
from podsrl.score.stated import correct, format, stated_answer
from podsrl.score.tags import answer_format

__all__ = ["EXTRACTORS", "REWARDS", "BatchReward", "Reward", "RowReward", "ScoreStats", "Scorer"]

REWARDS: dict[str, Reward] = {
    "correct": correct,
    "format": format,
    "math_correct": math_correct,
    "answer_format": answer_format,
    "any_correct": any_correct,
    "think_format": think_format,
    "tag_count": tag_count,
    "boxed_correct": boxed_correct,
    "strict_format": strict_format,
    "tag_share": tag_share,
}

EXTRACTORS: dict[str, Callable[[str], str | None]] = {
    "correct": stated_answer,
    "math_correct": voted_answer,
    "any_correct": voted_answer,
    "boxed_correct": voted_answer,
}
"""Reward that says what is right -> the final answer in a text, for majority votes."""
