"""The options of PODS in TRL, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from podsrl.errors import UsageError
from podsrl.integrations.choice import rule_of_rewards
from podsrl.integrations.trl.version import VERSION, GRPOConfig
from podsrl.select import Rule
from podsrl.select.base import reads_groups

SKIPS_NO_REWARD = (1, 6)
"""Since this version TRL gives a rollout without a reward the advantage 0."""


@dataclass
class PODSConfig(GRPOConfig):  # type: ignore[misc]  # TRL is untyped
    """GRPOConfig with a number of kept rollouts and a rule that chooses them.

    `per_device_train_batch_size`, `steps_per_generation` and `generation_batch_size` count generated rollouts, as in
    GRPOConfig; of these the trainer trains on m / n.

    Raises:
        UsageError: an option of these that cannot be, or does not fit the batch sizes. TRL raises ValueError for its
            own; UsageError is one, too.
    """

    num_kept: int | None = field(
        default=None, metadata={"help": "Rollouts per prompt that are trained on (m). None: all of num_generations."}
    )
    rule: str = field(
        default="max_variance", metadata={"help": "How they are chosen: a rule of podsrl.select or 'module:function'."}
    )
    rule_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Options of the rule, as a dictionary or JSON."}
    )

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "rule_options"]

    def __post_init__(self) -> None:
        super().__post_init__()
        n = self.num_generations
        m = self.num_kept = n if self.num_kept is None else self.num_kept
        if isinstance(m, bool) or not isinstance(m, int) or not 2 <= m <= n:
            raise UsageError(f"num_kept = {m!r}; wanted a whole number 2 .. num_generations = {n}")
        if reads_groups(self.new_rule()) and VERSION < SKIPS_NO_REWARD:
            raise UsageError(
                f"rule = {self.rule!r} keeps fewer than num_kept of some groups, which TRL "
                f"{'.'.join(map(str, VERSION))} cannot leave untrained; wanted TRL 1.6 or newer, or another rule"
            )
        if m == n:
            return  # TRL's own checks are enough
        rows = self.per_device_train_batch_size * self.steps_per_generation
        if rows % n:
            raise UsageError(
                f"per_device_train_batch_size = {self.per_device_train_batch_size} · steps_per_generation = "
                f"{self.steps_per_generation} are {rows} rollouts per process; wanted a multiple of num_generations = "
                f"{n}, so that all rollouts of a prompt lie in one process"
            )
        kept = rows // n * m
        if kept % self.steps_per_generation:
            raise UsageError(
                f"num_kept = {m} leaves {kept} of {rows} rollouts per process; wanted a multiple of "
                f"steps_per_generation = {self.steps_per_generation}, for TRL cuts them into so many equal batches"
            )

    def new_rule(self) -> Rule:
        """The rule with its options. UsageError: as `rule_of_rewards`."""
        options = cast("dict[str, Any] | None", self.rule_options)  # of a text TRL's config has made a dictionary
        return rule_of_rewards(
            self.rule, options, self.num_generations, cast(int, self.num_kept), options_called="rule_options"
        )


def what_is_kept(config: PODSConfig) -> str:
    """What the rule chooses, and what the batch sizes count, in one line."""
    n, m, rows = config.num_generations, cast(int, config.num_kept), config.per_device_train_batch_size
    if config.rule == "max_signal":
        return (
            f"PODS: per_device_train_batch_size = {rows} counts generated rollouts; of every {n} the rule max_signal "
            f"keeps up to {m}, and others without an advantage fill the group up to {m}, so a process forwards "
            f"{rows * m // n} at once"
        )
    if m == n:
        return (
            f"PODS: num_kept = num_generations = {n}: every rollout is trained on, as by GRPOTrainer, and the rule "
            f"{config.rule} has nothing to choose; set num_kept to fewer"
        )
    return (
        f"PODS: per_device_train_batch_size = {rows} counts generated rollouts; of every {n} the rule {config.rule} "
        f"keeps {m}, so a process trains on {rows * m // n} at once"
    )
