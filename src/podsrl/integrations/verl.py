"""Selection in verl: replay buffers for `trainer.v1.sampler.custom_sampler`. See docs/from-verl.md.

verl generates `actor_rollout_ref.rollout.n` rollouts per prompt. Its replay buffer hands finished prompts to the
trainer; the classes here hand on only the chosen rollouts and delete the others, before log-probs, advantages and
updates. verl's GRPO then computes advantages over the kept, because it groups by prompt.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

from podsrl.errors import UnavailableError, UsageError
from podsrl.integrations.choice import Choice
from podsrl.integrations.verl_config import OPTIONS, check_config
from podsrl.lib.options import check_options
from podsrl.lib.user_function import reason_of

try:
    import transfer_queue as tq
    from omegaconf import DictConfig, OmegaConf
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
except ImportError as error:
    raise UnavailableError(
        f"podsrl.integrations.verl needs verl with its V1 trainer ({reason_of(error)}): pip install 'verl>=0.9'"
    ) from error

_ROOT = "....."
"""From trainer.v1.sampler.sampler_kwargs to the whole configuration, as OmegaConf writes it."""


class _Selection:
    """What both classes add to verl's. It stands before verl's class, and calls its methods."""

    is_sync: bool

    def __init__(self, trainer_mode: str, *args: Any, sampler_kwargs: DictConfig, **options: Any) -> None:
        super().__init__(trainer_mode, *args, sampler_kwargs=sampler_kwargs, **options)  # type: ignore[call-arg]
        if (trainer_mode == "sync") is not self.is_sync:
            fits = "PODSReplayBufferAsync" if self.is_sync else "PODSReplayBuffer"
            raise UsageError(
                f"trainer.v1.sampler.custom_sampler.name = '{type(self).__name__}', but trainer.v1.trainer_mode = "
                f"'{trainer_mode}'; wanted '{fits}'"
            )
        given: Any = OmegaConf.to_container(sampler_kwargs, resolve=True)
        self._choose = Choice(**check_options(Choice, given, where=OPTIONS, keyword_only=False))
        num_kept, rule = self._choose.num_kept, self._choose.rule
        check_config(lambda key: OmegaConf.select(sampler_kwargs, _ROOT + key), trainer_mode, num_kept, rule)
        self._pods_metrics: dict[str, float] = {}

    def sample(self, *args: Any, **options: Any) -> tuple[KVBatchMeta, dict[str, Any]]:
        """As verl's, with the metrics of the selection: `pods/reward/all`, `pods/reward/kept`, and the two counts."""
        self._pods_metrics = {}
        batch, metrics = super().sample(*args, **options)  # type: ignore[misc]
        return batch, metrics | self._pods_metrics

    def _materialize_batch(self, partition_id: str, *args: Any, **options: Any) -> KVBatchMeta:
        batch = super()._materialize_batch(partition_id, *args, **options)  # type: ignore[misc]
        return batch if partition_id == "val" or not batch.keys else self._select(batch)

    def _select(self, batch: KVBatchMeta) -> KVBatchMeta:
        """The kept rows of a batch; the others are deleted from the queue, where nobody would look for them again."""
        groups = _rows_by_rollout(batch.keys)
        # Of several rows of one rollout all have its reward; verl takes that of the last one, too.
        rewards = _rewards(batch.partition_id, [rows[-1] for group in groups for rows in group])
        kept, kept_rewards = set[str](), list[float]()
        start = 0
        for group in groups:
            of_group = rewards[start : start + len(group)]
            start += len(group)
            for place in self._choose(of_group):
                kept.update(group[place])
                kept_rewards.append(of_group[place])
        if dropped := [key for key in batch.keys if key not in kept]:
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
        self._pods_metrics = {
            "pods/reward/all": fmean(rewards),
            "pods/reward/kept": fmean(kept_rewards),
            "pods/rollouts/generated": len(rewards),
            "pods/rollouts/kept": len(kept_rewards),
        }
        return batch.select_keys([key for key in batch.keys if key in kept])


class PODSReplayBuffer(_Selection, ReplayBuffer):  # type: ignore[misc]
    """verl's replay buffer for `trainer.v1.trainer_mode = "sync"`, which hands on the chosen rollouts of each prompt.

    Its options are those of `podsrl.integrations.choice.Choice`, in `trainer.v1.sampler.sampler_kwargs`. A prompt with
    no more than `num_kept` rollouts keeps them all; verl then fills the batch with empty rows, as it does by itself for
    failed rollouts. Validation is left alone.

    Raises:
        UsageError: an option that does not exist or does not fit, or a configuration that would train something else
            (`podsrl.integrations.verl_config.check_config`); in training, a reward that is not finite.
    """

    is_sync = True


class PODSReplayBufferAsync(_Selection, ReplayBufferAsync):  # type: ignore[misc]
    """As `PODSReplayBuffer`, for `trainer.v1.trainer_mode = "colocate_async"`."""

    is_sync = False


def _rows_by_rollout(keys: list[str]) -> list[list[list[str]]]:
    """For each prompt, for each of its rollouts, the keys of its rows; keys are PROMPT_ROLLOUT_ROW."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
        prompt, rollout, _ = key.rsplit("_", 2)
        groups[prompt][rollout].append(key)
    return [list(group.values()) for group in groups.values()]


def _rewards(partition_id: str, keys: list[str]) -> list[float]:
    """The reward of each row: the sum over its tokens, before a KL penalty."""
    rows = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores"])["rm_scores"]
    return [float(row.sum()) for row in rows]
