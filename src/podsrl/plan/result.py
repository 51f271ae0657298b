"""A plan as plain numbers: what `pods plan --json` prints and the table and the picture are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from podsrl.plan.machine_use import MachineUse
from podsrl.plan.probe import Verification
from podsrl.plan.resample import MIDDLE
from podsrl.plan.search import Candidate, Plan
from podsrl.plan.trust import Trust
from podsrl.plan.value import BETWEEN

Json = dict[str, Any]


def to_json(plan: Plan, checks: Sequence[Verification], hardware: str, use: MachineUse | None = None) -> Json:
    """The plan as JSON; `checks` hold the suggestion first and the config's own choice last."""
    return {
        "hardware": hardware,
        "trust": _trust(Trust(use=use, spread=plan.spread, checks=checks)),
        "pass_rate": plan.pass_rate,
        "concentration": plan.concentration,
        "noise_ratio": plan.noise_ratio,
        "is_noise_measured": plan.is_noise_measured,
        "noise_range": plan.noise_range and list(plan.noise_range),
        "largest_micro_batch_tokens": plan.largest_micro_batch,
        "own": _candidate(plan, plan.own),
        "best": _candidate(plan, plan.best),
        "flags": flags(plan),
        "candidates": [_candidate(plan, candidate) for candidate in plan.candidates],
        "later": [{"pass_rate": rate, **_key(candidate)} for rate, candidate in plan.later],
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


def _trust(trust: Trust) -> Json:
    use = {name: getattr(trust.use, name, None) for name in ("waited_share", "load", "num_cores")}
    return {"is_trusted": not trust.reasons, "reasons": trust.reasons, **use, "spread": trust.spread}


def _measured_relative(plan: Plan, checks: Sequence[Verification]) -> float | None:
    """The suggestion's progress over that of the config's choice, by the seconds that both took in turns."""
    if len(checks) < 2 or plan.own.share == 0:
        return None
    best, own = checks
    return float((plan.best.share / plan.own.share) ** BETWEEN) * own.measured / best.measured


def _finite(value: float) -> float | None:
    """None where the config's own choice teaches nothing, so that there is no ratio."""
    return value if value != float("inf") else None


def _key(candidate: Candidate) -> Json:
    n, m, micro = candidate.key
    return {"num_rollouts": n, "num_kept": m, "micro_batch_tokens": micro}


def _candidate(plan: Plan, candidate: Candidate) -> Json:
    low, high = plan.relative_range(candidate)
    return {
        **_key(candidate),
        "seconds": {**asdict(candidate.seconds), "total": candidate.seconds.total},
        "seconds_range": np.quantile(candidate.resampled, MIDDLE).tolist() if candidate.resampled else None,
        "share": candidate.share,
        "progress": candidate.progress(),
        "relative_progress": _finite(plan.relative(candidate)),
        "relative_progress_range": [_finite(low), _finite(high)],
        "signal_share": candidate.taught.signal_share,
        "trained_rows": candidate.taught.trained_rows,
        "kv_bytes": candidate.kv_bytes,
        "update_bytes": candidate.update_bytes,
    }
