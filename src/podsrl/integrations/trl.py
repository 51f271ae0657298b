"""PODS in TRL: GRPO's trainer generates `num_generations` rollouts per prompt and trains on `num_kept` of them.

    from podsrl.integrations.trl import PODSConfig, PODSTrainer

Use these in place of `GRPOConfig` and `GRPOTrainer`; docs/from-trl.md tells the rest. The trainer calls GRPOTrainer's
own method `_generate_and_score_completions` twice:

    choose    It generates and scores all n rollouts, and a rule chooses m of each group. No model runs forward.
    replay    It runs again on the chosen rollouts alone, as if only they had been generated.

So advantages, masks, denominators and log-probabilities are TRL's own, over m rollouts per prompt. With `num_kept` =
`num_generations` everything is kept, and the weights are those of GRPOTrainer bit for bit.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.lib.seeds import selection_generator
from podsrl.lib.user_function import FAILURES, reason_of
from podsrl.select import SelectionRule, resolve_rule, try_rule
from podsrl.select.base import reads_groups
from podsrl.select.groups import call_rule


def check_version() -> tuple[int, int]:
    """TRL's version, major and minor. UsageError: it is not installed, or not 1.x."""
    try:
        found = version("trl")
    except PackageNotFoundError:
        raise UsageError("TRL is not installed; wanted 1.0 or newer, below 2: pip install 'podsrl[trl]'") from None
    major, minor = (int(part) for part in found.split(".")[:2])
    if major != 1:
        raise UsageError(f"TRL {found} is installed; wanted 1.0 or newer, below 2: pip install 'trl>=1.0,<2'")
    return major, minor


_VERSION = check_version()
try:
    from trl import GRPOConfig, GRPOTrainer
except FAILURES as error:  # TRL imports the trackers that it finds, and one of these may be broken
    raise UsageError(f"TRL {version('trl')} cannot be imported: {reason_of(error)}") from error

KEPT = "pods/kept"
"""The column of TRL's completions table that says which rollouts were trained on."""
_THREE_VALUES = (1, 7)
"""Since this version `_get_per_token_logps_and_entropies` returns three values, before it two."""
_OF_LOGPROBS = "sampling/"
"""Begins the metrics that TRL computes from log-probabilities, which only the replay has."""


@dataclass
class PODSConfig(GRPOConfig):  # type: ignore[misc]  # TRL is untyped
    """GRPOConfig with a number of kept rollouts and a rule.

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
        self.new_rule()
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

    def new_rule(self) -> SelectionRule:
        """The rule with its options. UsageError: there is no such rule or option, or it cannot keep m of n."""
        rule = resolve_rule(self.rule, cast("dict[str, Any] | None", self.rule_options))
        if reads_groups(rule):
            raise UsageError(
                f"rule = {self.rule!r} goes by groups, whose records TRL does not have; wanted a rule of rewards, "
                "f(rewards, num_kept, *, generator)"
            )
        try_rule(rule, self.num_generations, cast(int, self.num_kept))
        return cast(SelectionRule, rule)


def choose(rewards: Tensor, num_kept: int, rule: SelectionRule, generator: torch.Generator) -> Tensor:
    """Choose exactly m rollouts of each group.

    Args:
        rewards: `[P, n]` float64 on the CPU; NaN where a rollout has no reward.
        num_kept: m, 2 .. n.
        rule: is called with the rollouts that have a reward, once per number of these, ascending.
        generator: for the rule.

    Returns:
        `[P, m]` int64, ascending within a group. A group with fewer than m rewards is filled with the first of its
        rollouts without one, to which TRL gives the advantage 0.

    Raises:
        UsageError: as `podsrl.select.groups.select_groups`.

    Example:
        >>> rewards = torch.tensor([[0.0, 1.0, 0.5, torch.nan], [torch.nan, torch.nan, 1.0, torch.nan]])
        >>> choose(rewards, 2, resolve_rule("max_variance"), torch.Generator()).tolist()
        [[0, 1], [0, 2]]
    """
    order = rewards.isnan().long().argsort(dim=1, stable=True)  # those with a reward come first
    kept = order[:, :num_kept].clone()
    num_valid = (~rewards.isnan()).sum(dim=1)
    for size in num_valid[num_valid > num_kept].unique().tolist():
        is_of_size = num_valid == size
        valid = order[is_of_size, :size]
        found = call_rule(rule, rewards[is_of_size].gather(1, valid), num_kept, generator=generator)
        kept[is_of_size] = valid.gather(1, found)
    return kept.sort(dim=1).values


@dataclass
class _Chosen:
    """What the first run of TRL's method leaves for the second."""

    generated: tuple[Any, ...] = ()
    """What `_generate` returned: n rollouts per prompt of this process, then m."""
    rewards: Tensor = field(default_factory=lambda: torch.empty(0))
    """`[rows, reward functions]` of all processes: n rollouts per prompt, then m."""
    rows: list[int] = field(default_factory=list)
    """The kept rollouts of all processes, as numbers of their rows."""
    own: list[int] = field(default_factory=list)
    """Those of this process, counted from its first row."""
    is_replay: bool = False


if TYPE_CHECKING:
    _Base = Any
else:
    _Base = object


class PODSMixin(_Base):  # type: ignore[misc]
    """Stands in front of GRPOTrainer, or of a trainer that derives from it.

        class MyTrainer(PODSMixin, GMPOTrainer): ...

    Its `args` are a `PODSConfig`, or a class that derives from `PODSConfig` and the trainer's own.

    Raises:
        UsageError: other `args`; `tools` or `environment_factory`, which a replay would run a second time.
    """

    _chosen: _Chosen | None = None

    def __init__(self, *positional: Any, **named: Any) -> None:
        given = inspect.signature(super().__init__).bind(*positional, **named).arguments
        if not isinstance(args := given.get("args"), PODSConfig):
            raise UsageError(f"args is a {type(args).__name__}; wanted a PODSConfig")
        for name in ("tools", "environment_factory"):
            if given.get(name):
                raise UsageError(
                    f"{name} does not go with {type(self).__name__}, which runs TRL's step again on the kept rollouts: "
                    f"their tools and environments would be at work twice; leave {name} out, or use TRL's GRPOTrainer"
                )
        super().__init__(*positional, **named)
        self._rule = args.new_rule()
        if args.num_kept < args.num_generations and self.accelerator.is_main_process:
            print(batch_sizes(args))

    def _generate(self, prompts: list[Any]) -> Any:
        if self._chosen is None:
            return super()._generate(prompts)
        if not self._chosen.is_replay:
            self._chosen.generated = super()._generate(prompts)
        return self._chosen.generated

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        if self._chosen is not None and self._chosen.is_replay:
            return self._chosen.rewards
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self._chosen is not None:
            self._chosen.rewards = rewards
            self._choose(self._chosen, len(inputs))
        return rewards

    def _get_per_token_logps_and_entropies(self, model: Any, input_ids: Any, *rest: Any, **named: Any) -> Any:
        if self._chosen is None or self._chosen.is_replay:
            return super()._get_per_token_logps_and_entropies(model, input_ids, *rest, **named)
        logits_to_keep = rest[1] if len(rest) > 1 else named["logits_to_keep"]
        nothing = torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device)
        return (nothing, None) if _VERSION < _THREE_VALUES else (nothing, None, None)

    def _generate_and_score_completions(self, inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            self._log_completion_extra(KEPT, [True] * len(inputs))  # evaluations stand in the same table
            return super()._generate_and_score_completions(inputs)
        chosen = _Chosen()
        try:
            self._chosen = chosen
            super()._generate_and_score_completions(inputs)
            with self._replay(chosen, len(inputs)):
                return super()._generate_and_score_completions([inputs[row] for row in chosen.own])
        finally:
            self._chosen = None

    def _choose(self, chosen: _Chosen, num_rows: int) -> None:
        """Choose of the rollouts of all processes, the same in each of them."""
        n, m = self.num_generations, self.args.num_kept
        parts = chosen.rewards
        rewards = (parts * self.reward_weights.to(parts.device)).nansum(dim=1)
        rewards = rewards.masked_fill(parts.isnan().all(dim=1), torch.nan).double().cpu().view(-1, n)
        generator = selection_generator(self.args.seed, self._num_micro_steps())
        kept = choose(rewards, m, self._rule, generator) + n * torch.arange(len(rewards)).unsqueeze(1)
        chosen.rows = kept.flatten().tolist()
        first = num_rows * self.accelerator.process_index
        chosen.own = [row - first for row in chosen.rows if first <= row < first + num_rows]
        of_this_process = set(chosen.own)
        self._log_completion_extra(KEPT, [row in of_this_process for row in range(num_rows)])

    def _num_micro_steps(self) -> int:
        """Done so far in the run; a resumed run counts on."""
        size = self.args.gradient_accumulation_steps
        return int(self.state.global_step * size + self._step % size)

    @contextmanager
    def _replay(self, chosen: _Chosen, num_rows: int) -> Iterator[None]:
        """Let TRL's method see the kept rollouts alone, and keep what it logs about them apart."""
        num_all = len(chosen.rewards)
        chosen.is_replay = True
        chosen.generated = self._kept_of(chosen.generated, chosen.own, num_rows)
        chosen.rewards = chosen.rewards[chosen.rows]
        num_generations, metrics, logs = self.num_generations, self._metrics["train"], self._logs
        self.num_generations = self.args.num_kept
        self._metrics["train"] = defaultdict(list)
        self._logs = defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list))
        try:
            yield
            of_kept, advantages = self._metrics["train"], self._logs["advantages"]
        finally:
            self.num_generations, self._metrics["train"], self._logs = num_generations, metrics, logs
        for name, values in of_kept.items():
            if name.startswith(_OF_LOGPROBS):
                metrics[name][-len(values) :] = values
            else:
                metrics[f"pods/{name}"] += values
        column = [float("nan")] * num_all
        for row, advantage in zip(chosen.rows, advantages, strict=True):
            column[row] = advantage
        for _ in column:
            logs["advantages"].pop()
        logs["advantages"].extend(column)

    def _kept_of(self, generated: tuple[Any, ...], rows: Sequence[int], num_rows: int) -> tuple[Any, ...]:
        """What `_generate` would have returned, had it made these rows alone."""
        found = [
            [value[row] for row in rows] if isinstance(value, list) and len(value) == num_rows else value
            for value in generated
        ]
        found = [{} if isinstance(value, dict) else value for value in found]  # columns for rewards, which are known
        if isinstance(found[4], Tensor):  # below TRL 1.9: the tokens of all processes, the denominator of some losses
            lengths = [sum(mask) for mask in found[2]] if found[2] else [len(ids) for ids in found[1]]
            total = torch.tensor(sum(lengths), device=self.accelerator.device)
            found[4] = self.accelerator.gather(total).sum()
        return tuple(found)


class PODSTrainer(PODSMixin, GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that trains on `num_kept` of `num_generations` rollouts per prompt; its `args` are a `PODSConfig`."""


def batch_sizes(config: PODSConfig) -> str:
    """What the batch sizes count, in one line."""
    n, m, rows = config.num_generations, config.num_kept, config.per_device_train_batch_size
    return (
        f"PODS: per_device_train_batch_size = {rows} counts generated rollouts; of every {n} the rule {config.rule} "
        f"keeps {m}, so a process trains on {rows * m // n} at once"
    )
