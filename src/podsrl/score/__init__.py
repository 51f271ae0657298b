"""Judge completions: tasks and completions in, rollouts with rewards out.

rewards/   the reward functions, and the table of their names
forms.py   the two forms of a reward function behind one call
workers/   the processes that call slow functions, within limits of time and memory
panel.py   decides where each function of a run is called
scorer.py  adds the values up: `Scorer`
environment.py  answers turns before there is anything to judge: `Environment`: a function, conversations or `Tools`
"""

from __future__ import annotations

from podsrl.score.base import BatchReward, Reward, RowReward
from podsrl.score.environment import Environment
from podsrl.score.rewards import BOUNDS, EXTRACTORS, MARKS, REWARDS
from podsrl.score.rewards.answers import is_correct
from podsrl.score.rewards.earned import EARNED
from podsrl.score.scorer import Scorer, ScoreStats
from podsrl.score.workers.tools import Tools, find_tools
from podsrl.score.workers.turns import Conversation, Reply

__all__ = [
    "BOUNDS",
    "EARNED",
    "EXTRACTORS",
    "MARKS",
    "REWARDS",
    "BatchReward",
    "Conversation",
    "Environment",
    "Reply",
    "Reward",
    "RowReward",
    "ScoreStats",
    "Scorer",
    "Tools",
    "find_tools",
    "is_correct",
]
