"""A plan as plain numbers: what `pods plan --json` prints and the table and the picture are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from podsrl.plan.probe import Verification
from podsrl.plan.search import Candidate, Plan
from podsrl.plan.value import BETWEEN

Json = dict[str, Any]
LARGEST_SPREAD = 0.3
"""Single measurements further from the fit than this (half the width of the middle 90 %) disagree."""
LARGEST_MISS = 1.25
"""A prediction that is off by more than this factor when it is run for real is wrong."""


def to_json(plan: Plan, checks: Sequence[Verification], hardware: str) -> Json:
    """The plan as JSON; `checks` hold the suggestion first and the config's own choice last."""
    return {
        "hardware": hardware,
        "spread": plan.spread,
        "doubts": doubts(plan.spread, checks),
        "pass_rate": plan.pass_rate,
        "concentration": plan.concentration,
        "noise_ratio": plan.noise_ratio,
        "is_noise_measured": plan.is_noise_measured,
        "noise_range": plan.noise_range and list(plan.noise_range),
        "price": plan.price and asdict(plan.price),
        "costs": plan.costs and plan.costs.model_dump(),
        "largest_micro_batch_tokens": plan.largest_micro_batch,
        "own": _candidate(plan, plan.own),
        "best": _candidate(plan, plan.best),
        "flags": flags(plan),
        "candidates": [_candidate(plan, candidate) for candidate in plan.candidates],
        "measured_relative_progress": _measured_relative(plan, checks),
        "checks": {"own": _check(checks[-1:]), "best": _check(checks[:1])},
        "unknown": list(plan.unknown),
    }


def flags(plan: Plan) -> list[str]:
    """The suggestion as overrides to paste; `keep_all` cannot keep fewer than all, so it makes way."""
    n, m, micro = plan.best.key
    rule = ["--select.rule=max_variance"] if plan.is_rule_replaced and m < n else []
    return [f"--rollouts.num_rollouts={n}", f"--select.num_kept={m}", *rule, f"--optim.micro_batch_tokens={micro}"]


def _check(found: Sequence[Verification]) -> Json | None:
    return {**asdict(found[0]), "ratio": found[0].ratio} if found else None


def doubts(spread: float | None, checks: Sequence[Verification]) -> list[str]:
    """Why the plan's seconds cannot be trusted; empty if they can."""
    found = []
    if spread is not None and spread > LARGEST_SPREAD:
        found.append(f"repeats of the same measurement differ by ±{spread:.0%}")
    missed = [check.ratio for check in checks if not 1 / LARGEST_MISS <= check.ratio <= LARGEST_MISS]
    if missed:
        times = " and ".join(f"{ratio:.2f}" for ratio in missed)
        found.append(f"predicted seconds were {times} times those measured when it was run")
    return found


def _measured_relative(plan: Plan, checks: Sequence[Verification]) -> float | None:
    """The suggestion's progress over that of the config's choice, by the seconds that both took in turns."""
    if len(checks) < 2 or plan.own.share == 0:
        return None
    best, own = checks
    return float((plan.best.share / plan.own.share) ** BETWEEN) * own.measured / best.measured


def _finite(value: float) -> float | None:
    """None where the config's own choice teaches nothing, so that there is no ratio."""
    return value if value != float("inf") else None


def _candidate(plan: Plan, candidate: Candidate) -> Json:
    low, high = plan.relative_range(candidate)
    return {
        "num_rollouts": candidate.num_rollouts,
        "num_kept": candidate.num_kept,
        "micro_batch_tokens": candidate.micro_batch_tokens,
        "seconds": {**asdict(candidate.seconds), "total": candidate.seconds.total},
        "share": candidate.share,
        "progress": candidate.progress(),
        "relative_progress": _finite(plan.relative(candidate)),
        "relative_progress_range": [_finite(low), _finite(high)],
        "signal_share": candidate.taught.signal_share,
        "trained_rows": candidate.taught.trained_rows,
        "kv_bytes": candidate.kv_bytes,
        "update_bytes": candidate.update_bytes,
    }
