"""Judge completions: tasks and completions in, rollouts with rewards out.

rewards/   the reward functions, and the table of their names
forms.py   the two forms of a reward function behind one call
workers/   the processes that call slow functions, within limits of time and memory
panel.py   decides where each function of a run is called
scorer.py  adds the values up: `Scorer`
"""

from __future__ import annotations

from podsrl.score.base import BatchReward, Reward, RowReward
from podsrl.score.rewards import BOUNDS, EXTRACTORS, REWARDS, TAGGED
from podsrl.score.rewards.answers import is_correct
from podsrl.score.scorer import Scorer, ScoreStats

__all__ = [
    "BOUNDS",
    "EXTRACTORS",
    "REWARDS",
    "TAGGED",
    "BatchReward",
    "Reward",
    "RowReward",
    "ScoreStats",
    "Scorer",
    "is_correct",
]
