"""One step's records -> one flat object with the public metric names (docs/metrics.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from podsrl.run.progress import Progress
from podsrl.run.trainer import Trainer
from podsrl.types import Group, Selection
from podsrl.update import UpdateStats

Json = dict[str, Any]
MAX_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a step asked of the machine: counts of all processes, memory of the one that needed most."""

    num_forwarded: int
    num_reread: int
    peak_generate_bytes: int
    peak_update_bytes: int | None
    num_stopped: int
    """Rollouts counted as wrong because a known reward ran into a limit."""
    num_hurried: int
    stopped_reasons: tuple[str, ...]


def gather_load(trainer: Trainer) -> Load:
    """Of all processes since the step's start; all call it."""
    stats, engine, scored = trainer.engine.stats, trainer.engine, trainer.scorer.stats
    own = (
        *(stats.forwarded, stats.reread_tokens, engine.peak_kv_bytes, trainer.updater.peak_bytes()),
        *(scored.num_stopped, scored.num_hurried, list(scored.reasons)),
    )
    forwarded, reread, generate_bytes, update_bytes, stopped, hurried, reasons = zip(
        *trainer.processes.gather(own), strict=True
    )
    return Load(
        num_forwarded=sum(forwarded),
        num_reread=sum(reread),
        peak_generate_bytes=max(generate_bytes),
        peak_update_bytes=None if update_bytes[0] is None else max(update_bytes),
        num_stopped=sum(stopped),
        num_hurried=sum(hurried),
        stopped_reasons=tuple(dict.fromkeys(chain.from_iterable(reasons))),
    )


def step_metrics(
    progress: Progress,
    groups: Sequence[Group],
    selections: Sequence[Selection],
    stats: UpdateStats,
    grad_norm: float,
    *,
    num_chunks: int,
    num_skipped_updates: int,
    weights_digest: str,
    load: Load,
) -> Json:
    """All metrics of a step but its seconds.

    Args:
        progress: with this step counted.
        groups: P groups of n rollouts.
        selections: P selections, same order.
        stats: of the update.
        grad_norm: before clipping; written as null where it is not finite (no JSON number is).
        num_chunks: groups that share a prompt, neighbours of each other.
        num_skipped_updates: of the whole run, given up because the gradient was not finite.
        weights_digest: of the weights that the generator samples from in the next step.
        load: counted since the step's start.
    """
    reward_all = [np.array([r.reward for r in group.rollouts if r.is_valid]) for group in groups]
    reward_kept = [np.array([g.rollouts[k].reward for k in s.kept]) for g, s in zip(groups, selections, strict=True)]
    length_all = np.array([len(r.completion.token_ids) for g in groups for r in g.rollouts])
    kept = [g.rollouts[k] for g, s in zip(groups, selections, strict=True) for k in s.kept]
    length_kept = np.array([len(rollout.completion.token_ids) for rollout in kept])
    metrics = {
        "step": progress.step,
        "version": progress.version,
        **_token_counts(groups[::num_chunks], length_all, length_kept, stats, load),
        "reward/all": _mean(np.concatenate([np.empty(0), *reward_all])),  # there may be no group at all
        "reward/kept": _mean(np.concatenate([np.empty(0), *reward_kept])),
        "reward_std/all": _mean(np.array([_std(rewards) for rewards in reward_all])),
        "reward_std/kept": _mean(np.array([_std(rewards) for rewards in reward_kept])),
        "accuracy/all": _mean(np.array([r.is_correct for g in groups for r in g.rollouts], dtype=np.float64)),
        "groups/num": len(groups),
        "groups/zero_signal": sum(1 for rewards in reward_kept if len(rewards) == 0 or rewards.min() == rewards.max()),
        "groups/invalid": sum(1 for selection in selections if not selection.kept),
        **_unjudged(groups, load),
        "rollouts/truncated": sum(1 for g in groups for r in g.rollouts if r.completion.finish_reason == "length"),
        "length/all": _mean(length_all),
        "length/kept": _mean(length_kept),
        "loss": stats.loss,
        "grad_norm": grad_norm,
        "entropy": stats.entropy,
        "kl": stats.kl,
        "clip_fraction": stats.clip_fraction,
        "logprob_gap": stats.logprob_gap,
        "updates/skipped": num_skipped_updates,
        "sync/weights_digest": weights_digest,
        "memory/peak_generate_bytes": load.peak_generate_bytes,
        "memory/peak_update_bytes": load.peak_update_bytes,
    }
    return {name: _as_json(value) for name, value in metrics.items()}


def _unjudged(groups: Sequence[Group], load: Load) -> Json:
    """Rollouts that the rewards did not judge, or not to the end."""
    return {
        "rollouts/generated": sum(len(group.rollouts) for group in groups),
        "rollouts/invalid": sum(1 for g in groups for r in g.rollouts if not r.is_valid),
        "invalid_reasons": _reasons(groups),
        "rollouts/reward_timeouts": load.num_stopped,
        "rollouts/reward_hurried": load.num_hurried,
        "reward_timeout_reasons": list(load.stopped_reasons[:MAX_REASONS]),
    }


def _token_counts(
    groups: Sequence[Group],
    length_all: np.ndarray[Any, Any],
    length_kept: np.ndarray[Any, Any],
    stats: UpdateStats,
    load: Load,
) -> Json:
    """What was read, made, trained on and left; `groups` has each prompt once."""
    return {
        "tokens/prompt": sum(len(group.prompt_ids) for group in groups),
        "tokens/generated": int(length_all.sum()),
        "tokens/forwarded": load.num_forwarded,
        "tokens/reread": load.num_reread,
        "tokens/trained": stats.num_trained_tokens,
        "tokens/skipped": int(length_kept.sum()) - stats.num_trained_tokens,
        "tokens/discarded": int(length_all.sum() - length_kept.sum()),
    }


def seconds_metrics(seconds: Mapping[str, float], total: float, train_elapsed: float) -> Json:
    """The clock's readings under their public names."""
    stages = {f"seconds/{stage}": value for stage, value in seconds.items()}
    return {**stages, "seconds/total": total, "seconds/train_elapsed": train_elapsed}


def _reasons(groups: Sequence[Group]) -> list[str]:
    """Why rollouts were invalid: each reason once, three at most."""
    reasons = {r.invalid_reason: None for group in groups for r in group.rollouts if r.invalid_reason is not None}
    return list(reasons)[:MAX_REASONS]


def _as_json(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mean(values: np.ndarray[Any, Any]) -> float | None:
    """None, not NaN, where there is nothing: NaN is no JSON."""
    return float(values.mean()) if len(values) else None


def _std(values: np.ndarray[Any, Any]) -> float:
    """Unbiased (ddof 1), as the advantages' own; 0 for fewer than two."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0
