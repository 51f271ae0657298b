"""Whether rollouts may be watched while they are generated (`steer.prune`, `steer.branch`), given all else."""

from __future__ import annotations

from podsrl.config.schema import RunConfig
from podsrl.control import BRANCH, PRUNE
from podsrl.control.steer import counts_of
from podsrl.errors import UsageError
from podsrl.lib.slots import Slots


def check_watching(config: RunConfig, *, is_watching: bool) -> None:
    """Check that what generates shows rollouts to the parts that want to see them.

    Args:
        is_watching: it has the ability "watch".

    Raises:
        UsageError: it has not.
    """
    for slot in (PRUNE, BRANCH):
        name = getattr(config.steer, slot.method)
        if name != "never" and not is_watching:
            raise UsageError(
                f"{slot.option} = {name!r} sees rollouts while they are generated, and rollouts.generator = "
                f"{config.rollouts.generator!r} lacks the ability 'watch': set rollouts.generator = 'engine', or "
                f"{slot.option} = 'never'"
            )


def check_steering(config: RunConfig, slots: Slots) -> None:
    """Check what can be checked of `steer.prune` and `steer.branch` without a model.

    Raises:
        UsageError: rollouts never have as many tokens as a part wants to see; a part sets tokens where stop strings end
            an answer; or a group is both closed and branched.
    """
    limit, steer = config.rollouts.max_new_tokens, config.steer
    for slot in (PRUNE, BRANCH):
        [part] = slots[slot.option]
        if (late := max(counts_of(part) or (), default=0)) >= limit:
            raise UsageError(
                f"{part.option} is shown rollouts that have {late} tokens, and rollouts.max_new_tokens = {limit} ends "
                f"them: wanted at most {limit - 1}"
            )
    if getattr(slots[BRANCH.option][0].part, "sets_tokens", False) and config.rollouts.stop_strings:
        raise UsageError(
            f"steer.branch = {steer.branch!r} sets tokens, and one of rollouts.stop_strings = "
            f"{list(config.rollouts.stop_strings)} may reach across one unseen; leave one of them out"
        )
    if "never" not in (steer.close, steer.branch):
        raise UsageError(
            f"steer.branch = {steer.branch!r} with steer.close = {steer.close!r}: forks would hang on when a group "
            "is closed; leave one of them out"
        )
