"""What a configuration of verl must say so that a selection trains what it should. Needs no verl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podsrl.errors import UsageError
from podsrl.select import RULES
from podsrl.select.base import reads_groups

OPTIONS = "trainer.v1.sampler.sampler_kwargs"
"""Where verl's configuration holds a custom sampler's options."""

_N, _PROMPTS = "actor_rollout_ref.rollout.n", "data.train_batch_size"
_OFF = {
    "algorithm.filter_groups.enable": "verl leaves the filter to a custom sampler, and this one drops single rollouts",
    "trainer.v1.sampler.sync_refill_failed_groups": "verl does not pass it on to a custom sampler",
}
"""Options that would be ignored, and why."""


def check_config(get: Callable[[str], Any], trainer_mode: str, num_kept: int, rule: str = "max_variance") -> None:
    """Check that mini-batches hold kept rollouts alone, and that nothing is ignored.

    verl cuts a batch into mini-batches of `ppo_mini_batch_size` x `rollout.n` rows, and fills a batch that they do not
    divide with empty rows, which count in the mean over sequences and change the number of updates.

    Args:
        get: the value at a key such as "data.train_batch_size"; None: it is not set.
        trainer_mode: "sync", "colocate_async" or "separate_async".
        num_kept: rollouts kept per prompt.
        rule: which rule chooses them.

    Raises:
        UsageError: what would be wrong, and what to set.

    Example:
        >>> check_config({"actor_rollout_ref.rollout.n": 8}.get, "sync", 16)
        Traceback (most recent call last):
        podsrl.errors.UsageError: trainer.v1.sampler.sampler_kwargs.num_kept = 16; wanted at most \
actor_rollout_ref.rollout.n = 8
    """
    num_rollouts, num_prompts = get(_N), get(_PROMPTS)
    if num_rollouts is None:
        raise UsageError(f"{_N} is not set beside {OPTIONS}; wanted verl's whole configuration")
    if num_kept > num_rollouts:
        raise UsageError(f"{OPTIONS}.num_kept = {num_kept}; wanted at most {_N} = {num_rollouts}")
    if rule in RULES and reads_groups(RULES[rule]):
        raise UsageError(
            f"{OPTIONS}.rule = {rule!r} keeps fewer than num_kept = {num_kept} rollouts of some prompts, and verl "
            "would fill up the batch with empty rows, which count in the mean over sequences; wanted a rule that keeps "
            "as many of each prompt, such as 'max_variance'"
        )
    for key, reason in _OFF.items():
        if get(key):
            raise UsageError(f"{key} = {get(key)}, but {reason}; set it to false")
    if get("reward.reward_model.enable") and not get("reward.reward_model.enable_resource_pool"):
        raise UsageError(
            "reward.reward_model.enable_resource_pool = false: that reward model scores rollouts after they are "
            "sampled, so they cannot be chosen by reward; set it to true, or take a reward function"
        )
    if trainer_mode == "separate_async" and num_kept < num_rollouts:
        raise UsageError(
            "trainer.v1.trainer_mode = 'separate_async' updates on ppo_mini_batch_size prompts, each with rollout.n "
            "rows, and would fill in empty rows for the dropped ones; wanted 'sync' or 'colocate_async'"
        )
    for part in ("actor_rollout_ref.actor", *(["critic"] if _has_critic(get) else [])):
        _check_mini_batches(f"{part}.ppo_mini_batch_size", get, num_prompts, num_rollouts, num_kept)


def _has_critic(get: Callable[[str], Any]) -> bool:
    enabled = get("critic.enable")
    return bool(enabled) if enabled is not None else get("algorithm.adv_estimator") == "gae"


def _check_mini_batches(
    key: str, get: Callable[[str], Any], num_prompts: int, num_rollouts: int, num_kept: int
) -> None:
    size, num_rows = get(key), num_prompts * num_kept
    most, rest = divmod(num_rows, num_rollouts)
    if rest:
        raise UsageError(
            f"{_PROMPTS} = {num_prompts} with num_kept = {num_kept} makes {num_rows} rows, which verl cannot cut into "
            f"mini-batches of {_N} = {num_rollouts} rows or multiples; wanted such a multiple for {_PROMPTS} x num_kept"
        )
    if most % size:
        raise UsageError(
            f"{key} = {size}: verl multiplies it by {_N} = {num_rollouts}, and would fill up the {num_rows} kept rows "
            f"with empty ones; set it to {most} for one update per step, or to a divisor of {most} for several"
        )
