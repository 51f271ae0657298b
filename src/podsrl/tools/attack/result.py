"""What an attack found out, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from podsrl.tools.attack.verdict import Baseline, Nature
from podsrl.tools.completions import Stored

SLOW_SECONDS = 1.0
"""A reward that takes longer for one completion is worth a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCount:
    """One family of hacks against one reward."""

    family: str
    why: str
    """Why its hacks must not pay."""
    knows_answer: bool
    num_tried: int
    num_paid: int
    num_escaped: int
    num_without: int
    """Questions for which the family has no hack, because of their kind of answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One hack that pays, escapes, or is slow."""

    number: int
    """Of the hack, from 0."""
    family: str
    hack: str
    why: str
    knows_answer: bool
    task_id: str
    answer: str
    """The reference answer."""
    text: str
    value: float | None
    limit: float
    """Above it a hack pays."""
    reason: str | None
    """Why it got no value."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardAttack:
    """What was found out about one reward."""

    name: str
    weight: float | None
    """None of the whole reward."""
    nature: Nature
    honest: Baseline | None
    """Means over the questions; None where none could be judged."""
    num_questions: int
    num_unjudged: int
    """Questions left out: the reward failed on honest completions, or pays none of them."""
    unjudged_reason: str | None
    families: tuple[FamilyCount, ...]
    paid: tuple[Finding, ...]
    escaped: tuple[Finding, ...]
    """Hacks without a value: no advantage is computed for them, so they are never punished."""
    slow: tuple[Finding, ...]

    @property
    def num_tried(self) -> int:
        """Hacks that were judged."""
        return sum(family.num_tried for family in self.families)

    @property
    def is_open(self) -> bool:
        """Whether any hack pays or escapes."""
        return bool(self.paid or self.escaped)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """What was found out about all rewards."""

    rewards: tuple[RewardAttack, ...]
    """Those given, in their order; the whole reward last where several have a weight."""
    num_hacks: int
    num_questions: int
    stored: tuple[Stored, ...]
    """Every hack that pays or escapes, as completions that are known to be wrong."""

    @property
    def decisive(self) -> RewardAttack:
        """What a policy sees: the whole reward, or the only one."""
        return self.rewards[-1]

    def to_json(self) -> dict[str, Any]:
        """All but the completions."""
        rewards = [asdict(reward) for reward in self.rewards]
        return {"num_questions": self.num_questions, "num_hacks": self.num_hacks, "rewards": rewards}
