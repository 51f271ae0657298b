"""The accuracy of k judged answers to each of Q questions: pass@1, majority vote, pass@k, and the standard error.

Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podsrl.types import Group, Rollout

_Z = 1.959964
"""The normal distribution has 95 % within so many deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Of Q questions with k answers each. Shares are 0 .. 1; an invalid rollout counts as wrong and without form."""

    num_questions: int
    num_samples: int
    """Answers judged, Q · k."""
    accuracy: float
    """pass@1: share of right answers."""
    accuracy_sem: float | None
    """Standard error of `accuracy` over questions (the answers to one are one draw); None for a single question."""
    accuracy_and_format: float
    """Share of answers that are right and have the wanted form."""
    format: float
    """Share of answers that have the wanted form."""
    majority: float | None
    """maj@k: share of questions whose most frequent final answer is right; None where no text held a final answer."""
    pass_at: Mapping[int, float]
    """j = 2, 4, 8 … up to k -> share of questions of which at least one of j answers is right, estimated."""
    reward: float | None
    """Mean reward of the valid rollouts; None where there is none."""
    length: float
    """Mean tokens of an answer."""
    num_truncated: int
    """Answers that ran into the token limit."""
    num_invalid: int
    """Answers without a usable reward."""
    num_stopped: int
    """Answers counted as wrong because a known reward ran out of time or memory."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `accuracy`: Wilson's for the number of independent answers that would have the same
        standard error, no fewer than the questions and no more than the answers."""
        variance, sem = self.accuracy * (1 - self.accuracy), self.accuracy_sem
        independent = variance / sem**2 if sem else 0.0
        independent = min(max(independent, self.num_questions), self.num_samples)
        return share_interval(self.accuracy * independent, independent)

    def __repr__(self) -> str:
        spread = "" if self.accuracy_sem is None else f" ± {self.accuracy_sem:.1%}"
        return f"Accuracy({self.accuracy:.1%}{spread}, {self.num_questions:,} questions, {self.num_samples:,} answers)"


def accuracy_of(groups: Sequence[Group], *, num_stopped: int = 0) -> Accuracy:
    """Summarise judged groups. ValueError: no group, or groups without or of unequal numbers of rollouts."""
    sizes = sorted({len(group.rollouts) for group in groups})
    if len(sizes) != 1 or sizes[0] < 1:
        raise ValueError(f"{len(groups)} groups with {sizes} rollouts; wanted at least one, all of the same size")
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    num_right = [sum(rollout.is_correct for rollout in group.rollouts) for group in groups]
    rewards = [rollout.reward for rollout in rollouts if rollout.is_valid]
    return Accuracy(
        num_questions=len(groups),
        num_samples=len(rollouts),
        accuracy=sum(num_right) / len(rollouts),
        accuracy_sem=standard_error([count / sizes[0] for count in num_right]),
        accuracy_and_format=_mean(rollout.is_correct and rollout.is_formatted for rollout in rollouts),
        format=_mean(rollout.is_valid and rollout.is_formatted for rollout in rollouts),
        majority=_majority(groups),
        pass_at={k: _mean(pass_at_k(sizes[0], count, k) for count in num_right) for k in powers_of_two(sizes[0])},
        reward=_mean(rewards) if rewards else None,
        length=_mean(len(rollout.token_ids) for rollout in rollouts),
        num_truncated=sum(rollout.finish_reason == "length" for rollout in rollouts),
        num_invalid=sum(rollout.invalid_reason is not None for rollout in rollouts),
        num_stopped=num_stopped,
    )


def accuracy_metrics(result: Accuracy) -> dict[str, Any]:
    """The fields under their public names (docs/metrics.md)."""
    return {
        "eval/accuracy": result.accuracy,
        "eval/accuracy_sem": result.accuracy_sem,
        "eval/accuracy_and_format": result.accuracy_and_format,
        "eval/format": result.format,
        "eval/maj": result.majority,
        **{f"eval/pass@{k}": share for k, share in result.pass_at.items()},
        "eval/reward": result.reward,
        "eval/length": result.length,
        "eval/truncated": result.num_truncated,
        "eval/num_questions": result.num_questions,
        "eval/num_samples": result.num_samples,
        "eval/num_invalid": result.num_invalid,
        "eval/reward_timeouts": result.num_stopped,
    }


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Chance that at least one of k answers, drawn without replacement from those given, is right.

    The unbiased estimate 1 - C(n - c, k) / C(n, k) of arXiv 2107.03374, eq. 1, in whole numbers until the division:
    n = `num_samples`, c = `num_right`, k = 1 .. n.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    return 1 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def majority_rollout(rollouts: Sequence[Rollout], weights: Sequence[float] | None = None) -> Rollout | None:
    """The first rollout that gives the final answer with most votes; of answers with as many, the one given first.

    Only valid rollouts with a final answer vote; None where there is none. `weights` are their votes, at least 0; None,
    or none above 0: each has one.
    """
    cast = weights if weights is not None and any(weights) else [1.0] * len(rollouts)
    voters = [
        (rollout, vote)
        for rollout, vote in zip(rollouts, cast, strict=True)
        if rollout.is_valid and rollout.answer is not None
    ]
    votes = Counter[str | None]()
    for rollout, vote in voters:
        votes[rollout.answer] += vote  # type: ignore[assignment]  # typeshed knows whole numbers alone
    # max returns the first of equals
    return max((rollout for rollout, _ in voters), key=lambda rollout: votes[rollout.answer], default=None)


def standard_error(values: Sequence[float]) -> float | None:
    """The standard error of a mean: sample deviation (ddof 1) over the root of the number; None below two values.

    Example:
        >>> standard_error([0.0, 1.0])
        0.5
    """
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def share_interval(num_right: float, num_all: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson 1927, JASA 22:209), within 0 .. 1 also where none or all are right.

    Example:
        >>> [round(end, 3) for end in share_interval(8, 10)]
        [0.49, 0.943]
    """
    share, extra = num_right / num_all, _Z**2 / num_all
    middle = share + extra / 2
    half = math.sqrt(extra * (share * (1 - share) + extra / 4))
    return max((middle - half) / (1 + extra), 0.0), min((middle + half) / (1 + extra), 1.0)


def powers_of_two(limit: int) -> list[int]:
    """2, 4, 8 … up to `limit`."""
    return [2**i for i in range(1, limit.bit_length()) if 2**i <= limit]


def _majority(groups: Sequence[Group]) -> float | None:
    if all(rollout.answer is None for group in groups for rollout in group.rollouts):
        return None
    winners = [majority_rollout(group.rollouts) for group in groups]
    return _mean(winner is not None and winner.is_correct for winner in winners)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
