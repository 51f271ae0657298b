"""GRPOTrainer's own step, run twice: choose, then replay.

    choose    TRL generates and scores all n rollouts, and a rule chooses m of each group. No model runs forward.
    replay    TRL's step runs again on the chosen rollouts alone, as if only they had been generated.

So advantages, masks, denominators and log-probabilities are TRL's own, over m rollouts per prompt, and so are metrics
and tables of all n. These parts of TRL are used: the methods `_generate_and_score_completions`, `_generate`,
`_calculate_rewards`, `_get_per_token_logps_and_entropies` and `_log_completion_extra`, the masks of the first one's
batch, and the attributes `num_generations`, `reward_funcs`, `reward_func_names`, `reward_weights`, `_metrics`, `_logs`
and `_step`.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from podsrl.errors import PodsError, UsageError
from podsrl.integrations.trl.config import PODSConfig, what_is_kept
from podsrl.integrations.trl.rewards import checked
from podsrl.integrations.trl.version import VERSION, GRPOTrainer
from podsrl.lib.seeds import selection_generator
from podsrl.select import Rule, select_groups
from podsrl.select.base import reads_groups
from podsrl.types import group_of_rewards

KEPT = "pods/kept"
"""The column of TRL's completions table that says which rollouts were trained on."""
_THREE_VALUES = (1, 7)
"""Since this version TRL's function of log-probabilities returns three values, before it two."""
_OF_LOGPROBS = "sampling/"
"""Begins the metrics that TRL computes from log-probabilities, which only the replay has."""


def choose(rewards: Tensor, num_kept: int, rule: Rule, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Choose of each group what the rule keeps, and fill it up to m.

    Args:
        rewards: `[P, n]` float64 on the CPU; NaN where a rollout has no reward, or no gradient whatever its reward.
        num_kept: m, 2 .. n.
        rule: as for `podsrl.select.select_groups`.
        generator: for the rule.

    Returns:
        `[P, m]` int64, ascending within a group, and `[P, n]` bool: what the rule keeps, and all of a group with fewer
        than m rewards. A group with fewer than m of these is filled with the first of its others, to which TRL (1.6 or
        newer) gives the advantage 0.

    Raises:
        UsageError: as `podsrl.select.select_groups`.

    Example:
        >>> from podsrl.select import max_variance
        >>> rewards = torch.tensor([[0.0, 1.0, 0.5, torch.nan], [torch.nan, torch.nan, 1.0, torch.nan]])
        >>> choose(rewards, 2, max_variance, torch.Generator())[0].tolist()
        [[0, 1], [0, 2]]
    """
    groups = [group_of_rewards(str(place), row) for place, row in enumerate(rewards.tolist())]
    is_chosen = torch.zeros(rewards.shape, dtype=torch.bool)
    for row, selection in enumerate(select_groups(groups, rule, num_kept, generator=generator)):
        is_chosen[row, list(selection.kept)] = True
    if not reads_groups(rule):  # `select_groups` keeps nothing of a single reward
        is_valid = ~rewards.isnan()
        is_chosen |= is_valid & (is_valid.sum(dim=1, keepdim=True) == 1)
    order = (~is_chosen).long().argsort(dim=1, stable=True)
    return order[:, :num_kept].sort(dim=1).values, is_chosen


def normalised(rewards: Tensor, num_rollouts: int) -> Tensor:
    """Each reward function's rewards `[rows, functions]` with mean 0 and standard deviation 1 in each group, as TRL's
    `normalize_then_sum` trains on them; NaN stays."""
    groups = rewards.view(-1, num_rollouts, rewards.shape[1])
    gaps = groups - groups.nanmean(dim=1, keepdim=True)
    counts = (~groups.isnan()).sum(dim=1, keepdim=True)
    deviations = (gaps.square().nansum(dim=1, keepdim=True) / (counts - 1)).sqrt()
    return (gaps / (deviations + 1e-4)).view_as(rewards)


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
    """The first base class of a trainer, before GRPOTrainer or a class that derives from it.

        class MyTrainer(PODSMixin, GMPOTrainer): ...

    Its `args` are a `PODSConfig` (the default), or a class that derives from `PODSConfig` and the trainer's own.

    Raises:
        UsageError: other `args`; `tools` or `environment_factory`, which a replay would run a second time; `beta` > 0
            with a model that has no path.
        RewardError: in training, a reward function returns anything but a list of numbers (`rewards.checked`).
    """

    num_generations: int
    reward_funcs: list[Any]
    _logs: Any
    _chosen: _Chosen | None = None

    def __init__(self, *positional: Any, **named: Any) -> None:
        bound = inspect.signature(super().__init__).bind(*positional, **named)
        given = bound.arguments
        if given.get("args") is None:
            given["args"] = PODSConfig()
        if not isinstance(args := given["args"], PODSConfig):
            raise UsageError(f"args is a {type(args).__name__}; wanted a PODSConfig")
        for name in ("tools", "environment_factory"):
            if given.get(name):
                raise UsageError(
                    f"{name} cannot be used with {type(self).__name__}, which runs TRL's step again on the kept "
                    f"rollouts and would use their tools or environments twice; leave {name} out, or use GRPOTrainer"
                )
        _check_reference(args.beta, given)
        super().__init__(*bound.args, **bound.kwargs)
        self.reward_funcs = list(map(checked, self.reward_func_names, self.reward_funcs))
        self._rule = args.new_rule()
        if self.accelerator.is_main_process:
            print(what_is_kept(args), file=sys.stderr)

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
        return rewards

    def _get_per_token_logps_and_entropies(self, model: Any, input_ids: Any, *rest: Any, **named: Any) -> Any:
        if self._chosen is None or self._chosen.is_replay:
            return super()._get_per_token_logps_and_entropies(model, input_ids, *rest, **named)
        logits_to_keep = rest[1] if len(rest) > 1 else named["logits_to_keep"]
        nothing = torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device)
        return (nothing, None) if VERSION < _THREE_VALUES else (nothing, None, None)

    def _generate_and_score_completions(self, inputs: Sequence[dict[str, Any]]) -> Any:
        if not self.model.training:
            self._log_completion_extra(KEPT, [True] * len(inputs))  # an evaluation's rows stand in the same table
            return super()._generate_and_score_completions(inputs)
        self._chosen = _Chosen()
        try:
            self._choose(self._chosen, super()._generate_and_score_completions(inputs))
            with self._replay(self._chosen, len(inputs)):
                return super()._generate_and_score_completions([inputs[row] for row in self._chosen.own])
        finally:
            self._chosen = None

    def _choose(self, chosen: _Chosen, batch: Mapping[str, Any]) -> None:
        """Choose of the rollouts of all processes, the same in each of them, by what they would be trained on."""
        n, m = self.num_generations, self.args.num_kept
        is_trained = (batch["completion_mask"] * batch.get("tool_mask", 1)).sum(dim=1)  # not where TRL masks all tokens
        parts = chosen.rewards
        is_none = parts.isnan().all(dim=1) | (self.accelerator.gather(is_trained) == 0)
        if getattr(self, "multi_objective_aggregation", None) == "normalize_then_sum":
            parts = normalised(parts, n)
        rewards = (parts * self.reward_weights.to(parts.device)).nansum(dim=1)
        rewards = rewards.masked_fill(is_none, torch.nan).double().cpu().view(-1, n)
        generator = selection_generator(self.args.seed, self._num_micro_steps())
        kept, is_chosen = choose(rewards, m, self._rule, generator)
        kept += n * torch.arange(len(rewards)).unsqueeze(1)
        is_left_out = (~is_chosen & ~rewards.isnan()).flatten()
        # One that fills its group has no advantage then.
        chosen.rewards = chosen.rewards.masked_fill(is_left_out.to(parts.device).unsqueeze(1), torch.nan)
        chosen.rows = kept.flatten().tolist()
        first = len(is_trained) * self.accelerator.process_index
        chosen.own = [row - first for row in chosen.rows if first <= row < first + len(is_trained)]
        is_kept = torch.isin(torch.arange(rewards.numel()), kept) & ~is_left_out
        self._logs["extra"][KEPT].extend(is_kept.tolist())

    def _num_micro_steps(self) -> int:
        """Done so far in the run; a resumed run counts on."""
        size = self.args.gradient_accumulation_steps
        return int(self.state.global_step * size + self._step % size)

    @contextmanager
    def _replay(self, chosen: _Chosen, num_rows: int) -> Iterator[None]:
        """Let TRL's method see the kept rollouts alone, and put what it logs about them beside what it logged of all.

        Afterwards the table's advantages are those of the kept, and NaN for the others.
        """
        chosen.generated = self._kept_of(chosen.generated, chosen.own, num_rows)
        num_all, chosen.rewards = len(chosen.rewards), chosen.rewards[chosen.rows]
        chosen.is_replay = True
        before = self.num_generations, self._metrics["train"], self._logs
        of_kept: dict[str, list[float]] = defaultdict(list)
        logs: dict[str, Any] = defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list))
        self.num_generations, self._metrics["train"], self._logs = self.args.num_kept, of_kept, logs
        try:
            yield
        finally:
            self.num_generations, self._metrics["train"], self._logs = before
        for name, values in of_kept.items():
            if name.startswith(_OF_LOGPROBS):
                self._metrics["train"][name][-len(values) :] = values
            else:
                self._metrics["train"][f"pods/{name}"] += values
        advantages = dict(zip(chosen.rows, logs["advantages"], strict=True))
        for _ in range(num_all):
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(advantages.get(row, float("nan")) for row in range(num_all))

    def _kept_of(self, generated: tuple[Any, ...], rows: Sequence[int], num_rows: int) -> tuple[Any, ...]:
        """What `_generate` would have returned, had it made these rows alone.

        Raises:
            PodsError: a TRL that returns something else than the releases this was written for.
        """
        lengths = {len(value) for value in generated if isinstance(value, list) and value}
        if len(generated) not in (7, 8, 9) or lengths != {num_rows}:
            raise PodsError(
                f"GRPOTrainer._generate of TRL {'.'.join(map(str, VERSION))} returned {len(generated)} values with "
                f"lists of {sorted(lengths)}; wanted 7, 8 or 9, with lists of {num_rows}: this TRL is too new for "
                "podsrl.integrations.trl"
            )
        found = [[value[row] for row in rows] if isinstance(value, list) and value else value for value in generated]
        found = [{} if isinstance(value, dict) else value for value in found]  # columns for rewards, which are known
        if isinstance(found[4], Tensor):  # below TRL 1.9: the tokens of all processes, the denominator of some losses
            num_tokens = sum(sum(mask) for mask in found[2]) if found[2] else sum(len(ids) for ids in found[1])
            found[4] = self.accelerator.gather(torch.tensor(num_tokens, device=found[4].device)).sum()
        return tuple(found)


def _check_reference(beta: float, given: Mapping[str, Any]) -> None:
    """Check that TRL can load the reference model: it takes the path of the model that it gets."""
    model = given.get("model")
    if not beta or isinstance(model, str) or hasattr(model, "peft_config") or given.get("peft_config") is not None:
        return
    if not getattr(getattr(model, "config", None), "_name_or_path", None):
        raise UsageError(
            f"beta = {beta} wants a reference model, which TRL loads from the model's path, and this model has none; "
            "save it and pass its folder, or set beta = 0"
        )


class PODSTrainer(PODSMixin, GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that trains on `num_kept` of `num_generations` rollouts per prompt; its `args` are a `PODSConfig`."""
