"""How answers are judged. Goes in: tasks and completions. Comes out: rollouts, with their rewards."""

from __future__ import annotations

from podsrl.score.answer import correct, format
from podsrl.score.base import BatchReward, Reward, RowReward
from podsrl.score.scorer import Scorer

__all__ = ["REWARDS", "BatchReward", "Reward", "RowReward", "Scorer"]

REWARDS: dict[str, Reward] = {
    "correct": correct,
    "format": format,
}
