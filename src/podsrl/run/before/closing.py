"""Whether groups may be closed while they are generated (`steer.close`), given what is made of them."""

from __future__ import annotations

from collections.abc import Mapping

from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.errors import UsageError, short
from podsrl.score import BOUNDS, EARNED, REWARDS, Scorer
from podsrl.select import Rule, select_groups
from podsrl.types import group_of_rewards
from podsrl.update.advantage import Advantage, reads_groups


def check_closing(config: RunConfig, advantage: Advantage) -> None:
    """Check all that is known without the questions.

    Raises:
        UsageError: something goes by the rollouts that a closed group does not have.
    """
    close, select = config.steer.close, config.select
    if close == "never":
        return
    if config.budget.rollouts != "equal":
        raise UsageError(
            f"steer.close = {close!r} with budget.rollouts = {config.budget.rollouts!r}: each of them decides how many "
            "rollouts a question gets, the budget by rollouts that a closed group does not have; leave one of them out"
        )
    if select.num_chunks > 1:
        raise UsageError(
            f"steer.close = {close!r} with select.num_chunks = {select.num_chunks}: a closed group cannot be cut into "
            "equal chunks; set select.num_chunks = 1, or steer.close = 'never'"
        )
    if close == "certain":
        _check_certain(config, advantage)


def _check_certain(config: RunConfig, advantage: Advantage) -> None:
    select, num_rollouts, budget = config.select, config.rollouts.num_rollouts, BudgetConfig().model_dump()
    others = {f"budget.{slot}": (name, budget[slot]) for slot, name in config.budget.model_dump().items()}
    rule = select.rule if select.rule == "max_signal" else "max_variance"
    wanted = {"select.rule": (select.rule, rule), **others, "loss.shape": (config.loss.shape, ())}
    for option, (got, needed) in wanted.items():
        if got != needed:
            raise UsageError(
                f"steer.close = 'certain' with {option} = {short(got)}, which may read rollouts that max-variance "
                f"drops: set {option} = {short(needed)}, or steer.close = 'never'"
            )
    if config.loss.advantage is not None and ":" in config.loss.advantage and reads_groups(advantage):
        raise UsageError(
            f"steer.close = 'certain' with loss.advantage = {config.loss.advantage!r}, which reads whole groups: write "
            "it as f(rewards), or set steer.close = 'never'"
        )
    if isinstance(select.num_kept, float) or select.num_kept >= num_rollouts:
        raise UsageError(
            f"steer.close = 'certain' with select.num_kept = {select.num_kept} of rollouts.num_rollouts = "
            f"{num_rollouts}: wanted a whole number below it; a share is known only when the group is whole, and where "
            "all are kept there is nothing to leave out"
        )


def kept_of_plenty(rule: Rule, num_kept: int) -> int:
    """How many rollouts a rule keeps of a group with as many of the highest and of the lowest reward as it wants.

    Example:
        >>> from podsrl.select import max_signal, max_variance
        >>> kept_of_plenty(max_variance, 16), kept_of_plenty(max_signal, 16)
        (16, 16)
    """
    [selection] = select_groups([group_of_rewards("plenty", [0.0, 1.0] * num_kept)], rule, num_kept)
    return len(selection.kept)


def check_rewards(config: RunConfig, scorer: Scorer) -> None:
    """Check that rollouts can be judged one by one, as they come.

    Raises:
        UsageError: a function of TRL's form gets all of them in one call.
    """
    if config.steer.close != "never" and scorer.batches:
        raise UsageError(
            f"steer.close = {config.steer.close!r} judges each rollout when it has ended, and the reward "
            f"{scorer.batches[0]!r} takes a batch of completions: write it as f(task, completion), or set "
            "steer.close = 'never'"
        )


def closing_advice(config: RunConfig, rewards: Mapping[str, float]) -> list[str]:
    """Rewards by which few groups are certain."""
    num, bounds = sum(weight != 0 for weight in rewards.values()), reward_bounds(rewards)
    if config.steer.close != "certain" or num == 1 or bounds is None:
        return []
    return [
        f"steer.close = 'certain' counts rollouts with the lowest and the highest sum of the {num} rewards, "
        f"{bounds[0]:g} and {bounds[1]:g}: those between, such as wrong answers in the right form, are neither, and "
        "few groups may close; task.rewards = {correct = 1.0} has no others"
    ]


def reward_bounds(rewards: Mapping[str, float]) -> tuple[float, float] | None:
    """The lowest and the highest weighted sum, to the last bit; None where a function of the user's own is in it.

    Example:
        >>> reward_bounds({"correct": 1.0, "format": 0.5}), reward_bounds({"my_rewards:length": 1.0})
        ((0.0, 1.5), None)
    """
    if any(weight and (name not in REWARDS or name == EARNED) for name, weight in rewards.items()):
        return None
    lowest = highest = 0.0
    for weight in rewards.values():  # added in the scorer's order
        ends = [weight * bound for bound in BOUNDS]
        lowest, highest = lowest + min(ends), highest + max(ends)
    return lowest, highest
