"""What an attack found out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from podsrl.tools.attack.families import Family, Hack
from podsrl.tools.attack.verdict import Baseline, Nature
from podsrl.tools.completions import Stored


@dataclass(frozen=True, slots=True)
class FamilyCount:
    """How many hacks of a family were tried on one reward, paid, and escaped."""

    family: Family
    num_tried: int
    num_paid: int
    num_escaped: int

    def to_json(self) -> dict[str, Any]:
        """The counts, and what the family is."""
        family = self.family
        counts = {"num_tried": self.num_tried, "num_paid": self.num_paid, "num_escaped": self.num_escaped}
        return {"family": family.name, "why": family.why, "knows_answer": family.knows_answer, **counts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one reward says about one hack."""

    number: int
    """Of the hack, from 0."""
    hack: Hack
    outcome: float | str
    """Its value, or why it has none."""
    limit: float
    """Above it a hack pays."""

    @property
    def value(self) -> float | None:
        """None where the reward failed."""
        return None if isinstance(self.outcome, str) else self.outcome

    @property
    def reason(self) -> str | None:
        """Why there is no value."""
        return self.outcome if isinstance(self.outcome, str) else None

    def to_json(self) -> dict[str, Any]:
        """All of it, flat."""
        hack = self.hack
        return {
            "family": hack.family.name,
            "hack": hack.name,
            "task_id": hack.target.task.id,
            "answer": hack.target.answer,
            "text": hack.text,
            "value": self.value,
            "limit": self.limit,
            "reason": self.reason,
        }


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

    @property
    def num_tried(self) -> int:
        """Hacks that were judged."""
        return sum(family.num_tried for family in self.families)

    @property
    def is_open(self) -> bool:
        """Whether any hack pays or escapes."""
        return bool(self.paid or self.escaped)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        plain = ("name", "weight", "nature", "num_questions", "num_unjudged", "unjudged_reason")
        lists = {name: [one.to_json() for one in getattr(self, name)] for name in ("families", "paid", "escaped")}
        return {
            **{name: getattr(self, name) for name in plain},
            "honest": self.honest and asdict(self.honest),
            **lists,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """What was found out about all rewards."""

    rewards: tuple[RewardAttack, ...]
    """Those given, in their order; the whole reward last where several have a weight."""
    num_hacks: int
    num_questions: int
    stored: tuple[Stored, ...]
    """Every hack that pays or escapes in `decisive`, as completions that are known to be wrong."""

    @property
    def decisive(self) -> RewardAttack:
        """What a policy sees: the whole reward, or the only one."""
        return self.rewards[-1]

    def to_json(self) -> dict[str, Any]:
        """All but the completions."""
        rewards = [reward.to_json() for reward in self.rewards]
        return {"num_questions": self.num_questions, "num_hacks": self.num_hacks, "rewards": rewards}
