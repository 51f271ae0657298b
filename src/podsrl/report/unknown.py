"""What a run folder of another version of podsrl holds that this one does not know: named in a note, never an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from podsrl.config.schema import RunConfig
from podsrl.lib.stages import EXCHANGE, FATES, STAGES

_KNOWN = {
    "": "step version loss grad_norm lr entropy kl clip_fraction logprob_gap invalid_reasons reward_timeout_reasons "
    "note",
    "tokens": f"prompt generated forwarded reread {' '.join(FATES)}",
    "reward": "all kept",
    "reward_std": "all kept",
    "accuracy": "all",
    "groups": "all zero_signal invalid mixed all_wrong left_out",
    "rollouts": "all left_out probes guided guide_too_long lag lag_max invalid pruned postponed truncated "
    "reward_timeouts reward_hurried",
    "length": "all kept min max",
    "histogram": "rewards rewards_kept lengths advantages",
    "updates": "skipped",
    "sync": "weights_digest",
    "memory": "peak_generate_bytes peak_update_bytes",
    "seconds": f"{' '.join(STAGES)} {EXCHANGE} overlapped total tokens_per_second train_elapsed eval",
    "eval": "accuracy accuracy_sem accuracy_and_format format maj reward length truncated num_questions num_samples "
    "num_invalid reward_timeouts examples",
}
KNOWN_METRICS = frozenset(f"{kind}/{name}".lstrip("/") for kind, names in _KNOWN.items() for name in names.split())
"""Metrics of docs/metrics.md, without `eval/pass@2`, `rewards/NAME/mean` and their like."""
_MOST = 6
"""Names that a note gives."""


def unknown_notes(config: Mapping[str, Any], metrics: Iterable[str]) -> tuple[str, ...]:
    """One note on a run's options and metrics that this version does not know; none where it knows all.

    Example:
        >>> unknown_notes({"seed": 1, "optim": {"lr": 1e-3, "warp": 9}}, ["step", "reward/median"])
        ('written by another version of podsrl: unknown here are the option optim.warp, the metric reward/median',)
    """
    options = list(_unknown_keys(config, RunConfig))
    names = sorted(
        {name for name in metrics if name not in KNOWN_METRICS and not name.startswith(("eval/pass@", "rewards/"))}
    )
    parts = [_listed(kind, found) for kind, found in (("option", options), ("metric", names)) if found]
    return (f"written by another version of podsrl: unknown here are {', '.join(parts)}",) if parts else ()


def _unknown_keys(tree: Mapping[str, Any], schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        field = schema.model_fields.get(key)
        if field is None:
            yield prefix + key
        elif isinstance(value, Mapping):
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield from _unknown_keys(value, kind, f"{prefix}{key}.")


def _listed(kind: str, names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"the {kind}{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST])}{more}"
