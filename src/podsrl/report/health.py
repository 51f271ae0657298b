"""Early signs of a wasted run: each check says what it measured, where its limit lies and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from podsrl.report.read import Array, Run
from podsrl.run.group_log import RecordedRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One check of one run."""

    name: str
    value: float | None
    """None where the run recorded nothing to measure it by."""
    limit: float
    is_share: bool
    """The value is a share between 0 and 1, which is written as percent."""
    advice: str
    """What to do above the limit."""

    @property
    def is_alarm(self) -> bool:
        return self.value is not None and self.value > self.limit


def check_run(run: Run) -> tuple[HealthCheck, ...]:
    """Measure every sign of a wasted run: all checks, alarming or not, in a fixed order."""
    return tuple(
        HealthCheck(name=name, value=measure(run), limit=limit, is_share=is_share, advice=advice)
        for name, measure, limit, is_share, advice in _CHECKS
    )


def truncated_share(run: Run) -> float | None:
    """Share of rollouts that hit the token limit: of all where the run counted them, else of the recorded ones."""
    counted = _share(run.series("rollouts/truncated"), run.num_rollouts())
    return _recorded_share(run, lambda rollout: rollout.finish_reason == "length") if counted is None else counted


def invalid_share(run: Run) -> float | None:
    """Share of rollouts without a usable reward: of all where the run counted them, else of the recorded ones."""
    counted = _share(run.series("rollouts/invalid"), run.num_rollouts())
    return _recorded_share(run, lambda rollout: rollout.invalid_reason is not None) if counted is None else counted


def zero_signal_share(run: Run) -> float | None:
    """Share of the run's groups in which every kept rollout has the same reward, so that they teach nothing."""
    return _share(run.series("groups/zero_signal"), run.num_groups())


def mean_logprob_gap(run: Run) -> float | None:
    """Mean over steps of how far the generator's log-probabilities are from the trainer's, nats per token.

    Steps on rollouts of older weights are left out: their gap is also that of the two policies.
    """
    gaps, lags = run.series("logprob_gap"), run.series("rollouts/lag")
    gaps = np.abs(gaps[np.isfinite(gaps) & ~(lags > 0)])
    return float(gaps.mean()) if gaps.size else None


def _share(counts: Array, totals: Array) -> float | None:
    """Sum of the counts [steps] over the sum of their totals [steps], of the steps that have both."""
    is_known = np.isfinite(counts) & np.isfinite(totals)
    total = float(totals[is_known].sum())
    return float(counts[is_known].sum()) / total if total > 0 else None


def _recorded_share(run: Run, is_hit: Callable[[RecordedRollout], bool]) -> float | None:
    """Share of the recorded rollouts, without pruned ones."""
    hits = [is_hit(rollout) for group in run.groups for rollout in group.rollouts if not rollout.is_pruned]
    return sum(hits) / len(hits) if hits else None


_CHECKS: tuple[tuple[str, Callable[[Run], float | None], float, bool, str], ...] = (
    (
        "answers cut at the token limit",
        truncated_share,
        0.1,
        True,
        "raise rollouts.max_new_tokens, or reward shorter answers: a cut answer can rarely be right",
    ),
    (
        "groups without signal",
        zero_signal_share,
        0.5,
        True,
        "more than half of the groups have equal rewards and teach nothing: raise rollouts.num_rollouts, or choose "
        "tasks that the model neither always solves nor never",
    ),
    (
        "rollouts without a reward",
        invalid_share,
        0.01,
        True,
        "a reward function raises or returns nothing usable; the reasons stand in the groups below",
    ),
    (
        "log-prob gap, generator to trainer",
        mean_logprob_gap,
        0.05,
        False,
        "generator and trainer disagree about the policy: check that weights reach the generator (sync) and that both "
        "use the same precision and sampling options",
    ),
)
