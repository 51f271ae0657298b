"""A step's result as flat objects with the public metric names (docs/metrics.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podsrl.errors import cut
from podsrl.lib.rounding import has_signal
from podsrl.run.group_log import group_line
from podsrl.run.step.step_result import StepResult, samples_by_group
from podsrl.types import Group, Rollout

Json = dict[str, Any]
MAX_REASONS = 3
NUM_BINS = 20
"""Of a histogram."""


def step_metrics(result: StepResult) -> Json:
    """The line of a step in `metrics.jsonl`; null for numbers that are not finite, since JSON has none."""
    rollouts, left_out = _judged(result.fresh), _judged(result.left_out)
    pools = list(result.pools())
    kept = [rollout for _, of_pool in pools for rollout in of_pool]
    rewards = [np.array([r.reward for r in pool if r.is_valid]) for pool, _ in pools]
    kept_rewards = [np.array([r.reward for r in of_pool]) for _, of_pool in pools]
    tokens = _token_counts(result, rollouts, kept)
    metrics = {
        "step": result.progress.step,
        "version": result.progress.version,
        **tokens,
        **_rewards(rewards, kept_rewards, rollouts, left_out),
        "groups/all": len(pools),
        "groups/zero_signal": sum(not has_signal(each) for each in kept_rewards),
        "groups/invalid": sum(1 for _, of_pool in pools if not of_pool),
        "groups/mixed": sum(group.is_mixed for group in (*result.groups, *result.left_out)),
        "groups/all_wrong": sum(_is_all_wrong(group) for group in (*result.groups, *result.left_out)),
        "groups/left_out": len(result.left_out),
        "rollouts/all": len(rollouts),
        "rollouts/kept": len(kept),
        "rollouts/left_out": len(left_out),
        "rollouts/probes": len(_judged(result.probes)),
        **_guided(result, rollouts),
        **_lags(result),
        **_without_verdict(result, rollouts),
        "rollouts/truncated": sum(1 for rollout in rollouts if rollout.finish_reason == "length"),
        **_turns(rollouts),
        "length/all": _mean(_lengths(rollouts)),
        "length/kept": _mean(_lengths(kept)),
        "length/min": min(_lengths(rollouts).tolist(), default=None),
        "length/max": max(_lengths(rollouts).tolist(), default=None),
        "histogram/rewards": _histogram([reward for each in rewards for reward in each]),
        "histogram/rewards_kept": _histogram([reward for each in kept_rewards for reward in each]),
        "histogram/lengths": _histogram(_lengths(rollouts)),
        "histogram/advantages": _histogram([float(np.mean(sample.advantage)) for sample in result.samples]),
        **_update(result),
        **_seconds(result, tokens["tokens/generated"]),
    }
    return {name: _as_json(value) for name, value in metrics.items()}


def _rewards(
    valid: Sequence[NDArray[Any]],
    kept: Sequence[NDArray[Any]],
    rollouts: Sequence[Rollout],
    left_out: Sequence[Rollout],
) -> Json:
    judged = [rollout.reward for rollout in (*rollouts, *left_out) if rollout.is_valid]
    answered = [rollout.is_correct for rollout in (*rollouts, *left_out) if not rollout.is_repaired]
    return {
        "reward/all": _mean(np.concatenate([np.empty(0), *valid])),  # there may be no group at all
        "reward/kept": _mean(np.concatenate([np.empty(0), *kept])),
        "reward/min": min(judged, default=None),
        "reward/max": max(judged, default=None),
        "reward_std/all": _mean(np.array([_std(rewards) for rewards in valid])),
        "reward_std/kept": _mean(np.array([_std(rewards) for rewards in kept])),
        **_by_reward_function(rollouts),
        "accuracy/all": _mean(np.array(answered, dtype=np.float64)),
    }


def _update(result: StepResult) -> Json:
    stats = result.update.stats
    fractions = {name: getattr(stats, name) for name in ("capped_fraction", "dropped_fraction")}
    return {
        "loss": stats.loss,
        "grad_norm": result.update.grad_norm,
        "lr": result.lr,
        "entropy": stats.entropy,
        "kl": stats.kl,
        "clip_fraction": stats.clip_fraction,
        "logprob_gap": stats.logprob_gap,
        **{name: value for name, value in fractions.items() if value is not None},
        "updates/skipped": result.num_skipped_updates,
        "sync/weights_digest": result.weights_digest,
    }


def _seconds(result: StepResult, num_generated: int) -> Json:
    """What the step took of the machine: memory, and time."""
    load, total = result.load, result.total_seconds
    return {
        "memory/peak_generate_bytes": load.peak_generate_bytes,
        **({} if load.peak_update_bytes is None else {"memory/peak_update_bytes": load.peak_update_bytes}),
        **{f"seconds/{stage}": seconds for stage, seconds in result.seconds.items()},
        **({} if result.overlapped_seconds is None else {"seconds/overlapped": result.overlapped_seconds}),
        "seconds/total": total,
        "seconds/tokens_per_second": num_generated / total if total else None,
        "seconds/train_elapsed": result.progress.train_seconds,
        "seconds/cpu": load.cpu.used,
        "seconds/cpu_wait": load.cpu.waited,
    }


def _token_counts(result: StepResult, rollouts: Sequence[Rollout], kept: Sequence[Rollout]) -> Json:
    """Generated is the sum of all fates (`lib/stages.py`), without what was drawn in earlier steps or for others.

    What goes to the update counts whole, as the update reads it; of the rest each rollout has what was drawn for it.
    """
    load, num_trained = result.load, result.update.stats.num_trained_tokens
    untrained = (*result.left_out, *result.probes)
    pruned = [r for group in (*result.fresh, *untrained) for r in group.rollouts if r.is_pruned]
    recalled = _judged(result.groups[len(result.fresh) :])
    num_recalled = sum(rollout.num_own for rollout in recalled)
    ended = [*rollouts, *recalled, *_judged(untrained)]
    num_ended, num_kept, num_pruned = (sum(r.num_own for r in some) for some in (ended, kept, pruned))
    num_shared = sum(rollout.num_shared for rollout in kept)
    num_given = sum(r.num_given for r in (*rollouts, *_judged(untrained), *pruned))
    fates = {
        "trained": num_trained,
        "skipped": num_kept + num_shared - num_trained,
        "discarded": num_ended - num_kept,
        "pruned": num_pruned + load.num_pruned_tokens,
        "postponed": load.num_postponed_tokens,
    }
    return {
        "tokens/prompt": sum(len(ids) for group in (*result.groups, *untrained) for ids in _prompts(group)),
        "tokens/generated": sum(fates.values()) - num_shared - num_recalled - load.num_resumed_tokens,
        "tokens/forwarded": load.num_forwarded,
        "tokens/reread": load.num_reread,
        **{f"tokens/{fate}": count for fate, count in fates.items()},
        **({"tokens/shared": num_shared} if num_shared else {}),
        **({"tokens/given": num_given} if num_given else {}),
        **({"tokens/recalled": num_recalled, "rollouts/recalled": len(recalled)} if recalled else {}),
        **_waiting(result),
        "rollouts/pruned": len(pruned) + load.num_pruned,
        "rollouts/postponed": load.num_postponed,
    }


def _waiting(result: StepResult) -> Json:
    """Groups that are not trained on yet, in steps in which there are some or were some."""
    load, ages = result.load, [result.progress.step - 1 - group.step for group in result.fresh]
    if not load.num_waiting and not load.num_resumed_tokens:
        return {}
    return {
        "groups/waiting": load.num_waiting,
        "groups/resumed": sum(age > 0 for age in ages),
        "groups/age_max": max(ages, default=0),
        "tokens/resumed": load.num_resumed_tokens,
    }


def _by_reward_function(rollouts: Sequence[Rollout]) -> Json:
    """Mean and standard deviation (ddof 1) of each reward function's own values, before its weight."""
    found: Json = {}
    for name in dict.fromkeys(name for rollout in rollouts for name in rollout.parts):
        values = np.array([rollout.parts.get(name, math.nan) for rollout in rollouts])
        values = values[np.isfinite(values)]
        found |= {f"rewards/{name}/mean": _mean(values), f"rewards/{name}/std": _std(values) if len(values) else None}
    return found


def _histogram(values: Sequence[float] | NDArray[Any]) -> Json | None:
    """Counts in bins of equal width from the smallest value to the largest; a single bin where they are equal."""
    if len(values) == 0:
        return None
    low, high = float(np.min(values)), float(np.max(values))
    halves = np.asarray(values, dtype=np.float64) / 2 - low / 2  # no difference of two finite halves overflows
    if not (width := high / 2 - low / 2):
        return {"low": low, "high": high, "counts": [len(values)]}
    places = np.minimum(halves / width * NUM_BINS, NUM_BINS - 1).astype(np.int64)
    return {"low": low, "high": high, "counts": np.bincount(places, minlength=NUM_BINS).tolist()}


def _judged(groups: Sequence[Group]) -> list[Rollout]:
    return [rollout for group in groups for rollout in group.rollouts if not rollout.is_pruned]


def _prompts(group: Group) -> set[tuple[int, ...]]:
    """The group's prompt, and others that some of its rollouts answered."""
    return {group.prompt_ids, *(r.prompt_ids for r in group.rollouts if r.prompt_ids is not None)}


def _is_all_wrong(group: Group) -> bool:
    return not any(rollout.is_correct for rollout in group.rollouts if rollout.is_valid)


def _guided(result: StepResult, rollouts: Sequence[Rollout]) -> Json:
    """Rollouts that were asked in another way than their task's, whose guided prompt was too long, or put right."""
    everything = [r for group in (*result.groups, *result.left_out, *result.probes) for r in group.rollouts]
    num_repaired = sum(rollout.is_repaired for rollout in rollouts)
    return {
        "rollouts/guided": sum(rollout.prompt_ids is not None for rollout in everything),
        "rollouts/guide_too_long": sum(rollout.is_unguided for rollout in everything),
        **({"rollouts/repaired": num_repaired} if num_repaired else {}),
    }


def _lags(result: StepResult) -> Json:
    """Weight updates between the weights that made the kept rollouts and those that trained on them."""
    ages = np.array([result.trained_version - sample.rollout.oldest_version for sample in result.samples])
    return {
        "rollouts/lag": _mean(ages),
        "rollouts/lag_max": int(ages.max()) if len(ages) else None,
        **({"histogram/lags": _histogram(ages)} if ages.any() else {}),
    }


def _without_verdict(result: StepResult, rollouts: Sequence[Rollout]) -> Json:
    """Rollouts that the rewards did not judge, or not to the end."""
    reasons = [rollout.invalid_reason for rollout in rollouts if rollout.invalid_reason is not None]
    example = next((rollout.text for rollout in rollouts if rollout.invalid_reason is not None), "")
    return {
        "rollouts/invalid": len(reasons),
        "invalid_reasons": list(dict.fromkeys(reasons))[:MAX_REASONS],
        **({"invalid_example": cut(example)} if example else {}),
        "rollouts/reward_timeouts": result.load.num_stopped,
        "rollouts/reward_hurried": result.load.num_hurried,
        "reward_timeout_reasons": list(result.load.stopped_reasons[:MAX_REASONS]),
    }


def _turns(rollouts: Sequence[Rollout]) -> Json:
    """Turns of the model per rollout and calls of tools, in steps in which there are some."""
    counts = np.array([len(rollout.turns) for rollout in rollouts], dtype=np.int64)
    calls = [is_good for rollout in rollouts for turn in rollout.turns for is_good in turn.calls]
    return {
        **({"turns/mean": _mean(counts), "turns/max": int(counts.max())} if max(counts, default=0) > 1 else {}),
        **({"tools/calls": len(calls), "tools/failed": calls.count(False)} if calls else {}),
    }


def group_records(result: StepResult, tokenizer: Any = None) -> Iterator[Json]:
    """Each group as a line of `groups.jsonl`: what was generated, its reward, and what became of it (`group_line`)."""
    of_groups = samples_by_group(result.selections, result.samples)
    for group, selection, samples in zip(result.groups, result.selections, of_groups, strict=True):
        yield group_line(result.progress.step, group, selection, samples, tokenizer)


def _as_json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lengths(rollouts: Sequence[Rollout]) -> NDArray[np.int64]:
    return np.array([len(rollout.token_ids) for rollout in rollouts], dtype=np.int64)


def _mean(values: NDArray[Any]) -> float | None:
    """None where there is nothing."""
    return float(values.mean()) if len(values) else None


def _std(rewards: NDArray[Any]) -> float:
    """Unbiased (ddof 1), as in the advantages; 0 for fewer than two."""
    return float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0
