"""Options that exclude each other, by what each of them does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.control.steer import counts_of
from podsrl.errors import UsageError
from podsrl.lib.slots import Slots
from podsrl.score import Environment, Scorer
from podsrl.update.advantage import Advantage, reads_groups


@dataclass(frozen=True, slots=True)
class _Exclusion:
    """An option that is not at its default goes with defaults of the others alone."""

    option: str
    reason: str
    others: Sequence[str]
    value: Any = None
    """The one value of the option that excludes the others; None: every one but the default."""


_EXCLUSIONS = (
    _Exclusion(
        "replay.wait",
        "when a step ends, a group has to have what was asked",
        ("order.ahead", "steer.close", "steer.branch", "replay.repair"),
    ),
    _Exclusion("order.take", "the groups under way are asked once, whole", ("budget.enough", "budget.rollouts")),
    _Exclusion("order.take", "either would end rollouts of the other", ("steer.close",)),
    _Exclusion("order.rest", "what watches a rollout has learned by its next token", ("steer.prune", "steer.branch")),
    _Exclusion("steer.close", "each of them decides how many rollouts a question gets", ("budget.rollouts",)),
    _Exclusion("steer.close", "a closed group cannot be cut into equal chunks", ("select.num_chunks",)),
    _Exclusion("steer.close", "forks would hang on when a group is closed", ("steer.branch",)),
    _Exclusion(
        "steer.close",
        "that may read rollouts that max-variance drops",
        (*(f"budget.{slot}" for slot in BudgetConfig.model_fields), "loss.shape"),
        "certain",
    ),
)


def check_exclusions(config: RunConfig, slots: Slots, advantage: Advantage) -> None:
    """Check all that is known without the questions.

    Raises:
        UsageError: two options that exclude each other; groups are closed whose other rollouts something reads; or
            rollouts are never as long as a part wants to see them.
    """
    default = RunConfig()
    for each in _EXCLUSIONS:
        got, off = (attrgetter(each.option)(of) for of in (config, default))
        if got == off or each.value not in (None, got):
            continue
        for other in each.others:
            found, wanted = (attrgetter(other)(of) for of in (config, default))
            if found != wanted:
                raise UsageError(
                    f"{each.option} = {got!r} with {other} = {found!r}: {each.reason}; set {other} = {wanted!r}, or "
                    f"{each.option} = {off!r}"
                )
    if config.steer.close == "certain":
        _check_certain(config, advantage)
    _check_counts(config, slots)


def _check_certain(config: RunConfig, advantage: Advantage) -> None:
    """What max-variance keeps of a closed group has to be known, and to be all that is read of it."""
    select, advantage_name = config.select, config.loss.advantage
    if select.rule not in ("max_variance", "max_signal"):
        problem = f"select.rule = {select.rule!r}, which may read rollouts that max-variance drops: set 'max_variance'"
    elif advantage_name is not None and ":" in advantage_name and reads_groups(advantage):
        problem = f"loss.advantage = {advantage_name!r}, which reads whole groups: write it as f(rewards)"
    elif isinstance(select.num_kept, float) or select.num_kept >= config.rollouts.num_rollouts:
        problem = (
            f"select.num_kept = {select.num_kept} of rollouts.num_rollouts = {config.rollouts.num_rollouts}: set a "
            "whole number below it"
        )
    else:
        return
    raise UsageError(f"steer.close = 'certain' with {problem}, or steer.close = 'never'")


def _check_counts(config: RunConfig, slots: Slots) -> None:
    limit = config.rollouts.max_new_tokens
    for option in ("steer.prune", "steer.branch"):
        [part] = slots[option]
        if (late := max(counts_of(part) or (), default=0)) >= limit:
            raise UsageError(
                f"{part.option} is shown rollouts that have {late} tokens, and rollouts.max_new_tokens = {limit} ends "
                f"them: wanted at most {limit - 1}"
            )
    [prune], [branch] = slots["steer.prune"], slots["steer.branch"]
    if hasattr(prune.part, "together") and config.steer.branch != "never":
        raise UsageError(
            f"{prune.option} lets rollouts go on after it has seen their whole group, and {branch.option} would give a "
            "fork an index that the group has already; leave one of them out"
        )
    if getattr(branch.part, "sets_tokens", False) and config.rollouts.stop_strings:
        raise UsageError(
            f"{branch.option} sets tokens, and one of rollouts.stop_strings = {list(config.rollouts.stop_strings)} may "
            "reach across one unseen; leave one of them out"
        )


def check_pieces(config: RunConfig, scorer: Scorer | None, environment: Environment | None) -> None:
    """Check that rollouts that are closed can be judged one by one, and that those that are watched have one turn.

    Raises:
        UsageError: a reward function gets all of them in one call, or an environment answers between their turns.
    """
    steer = config.steer
    if scorer is not None and scorer.batches and steer.close != "never":
        raise UsageError(
            f"steer.close = {steer.close!r} judges rollouts one by one, and the reward function {scorer.batches[0]!r} "
            "takes a batch of completions: write it as f(task, completion), or set steer.close = 'never'"
        )
    if environment is not None:
        for option, got in (("steer.prune", steer.prune), ("steer.branch", steer.branch)):
            if got != "never":
                raise UsageError(
                    f"{option} = {got!r} is for rollouts that are written in one go, and {environment.option} answers "
                    f"between their turns: set {option} = 'never', or leave the other out"
                )
