"""A plan as plain numbers: what `pods plan --json` prints and the table and the picture are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from podsrl.run.plan.check import Check
from podsrl.run.plan.search import Candidate, Plan
from podsrl.run.plan.value import BEST_RATE, BETWEEN, FIXED_RATE

Json = dict[str, Any]


def to_json(plan: Plan, checks: Sequence[Check], hardware: str) -> Json:
    """Flatten.

    Args:
        plan: what was found.
        checks: predicted against measured, of the suggestion and then of the config's choice if it is another; empty
            where nothing was run.
        hardware: what it was measured on.
    """
    return {
        "hardware": hardware,
        "pass_rate": plan.pass_rate,
        "concentration": plan.concentration,
        "noise_ratio": plan.noise_ratio,
        "is_noise_measured": plan.is_noise_measured,
        "largest_micro_batch_tokens": plan.largest_micro_batch,
        "own": _candidate(plan, plan.own),
        "best": _candidate(plan, plan.best),
        "flags": flags(plan),
        "candidates": [_candidate(plan, candidate) for candidate in plan.candidates],
        "later": [{"pass_rate": rate, **_key(candidate)} for rate, candidate in plan.later],
        "checks": {"own": _check(checks[-1:]), "best": _check(checks[:1])},
        "unknown": list(plan.unknown),
    }


def flags(plan: Plan) -> list[str]:
    """The suggestion as overrides to paste; `keep_all` cannot keep fewer than all, so it makes way."""
    n, m, micro = plan.best.key
    rule = ["--select.rule=max_variance"] if plan.is_rule_replaced and m < n else []
    return [
        f"--rollouts.num_rollouts={n}",
        f"--select.num_kept={m}",
        *rule,
        f"--optim.micro_batch_tokens={micro}",
    ]


def _check(found: Sequence[Check]) -> Json | None:
    return {**asdict(found[0]), "ratio": found[0].ratio} if found else None


def _finite(value: float) -> float | None:
    """None where the config's own choice teaches nothing, so that there is no ratio."""
    return value if value != float("inf") else None


def _key(candidate: Candidate) -> Json:
    n, m, micro = candidate.key
    return {"num_rollouts": n, "num_kept": m, "micro_batch_tokens": micro}


def _candidate(plan: Plan, candidate: Candidate) -> Json:
    low, middle, high = sorted(plan.relative(candidate, e) for e in (FIXED_RATE, BETWEEN, BEST_RATE))
    return {
        **_key(candidate),
        "seconds": {**asdict(candidate.seconds), "total": candidate.seconds.total},
        "share": candidate.share,
        "progress": candidate.progress(),
        "relative_progress": _finite(middle),
        "relative_progress_range": [_finite(low), _finite(high)],
        "signal_share": candidate.taught.signal_share,
        "trained_rows": candidate.taught.trained_rows,
        "kv_bytes": candidate.kv_bytes,
        "update_bytes": candidate.update_bytes,
    }
