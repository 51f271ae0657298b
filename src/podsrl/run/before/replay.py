"""Groups of other steps and of other runs: whether several processes can train on them, and what memory they take."""

from __future__ import annotations

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.machine import host_bytes
from podsrl.lib.slots import Slots
from podsrl.run.before.sizes import at_most

_TOKEN_BYTES = 72
"""Of a token of a completion: a number and a log-prob as Python objects (28 rounded up, and 24), and two pointers."""


def check_replay(config: RunConfig, slots: Slots, num_processes: int) -> None:
    """UsageError: several processes would train on different groups, by what each sees when."""
    if num_processes > 1 and config.order.take == "first":
        raise UsageError(
            f"order.take = 'first' with {num_processes} processes: which groups are whole first would be up to their "
            "clocks; start one process, or set order.take = 'asked'"
        )
    [recall] = slots["replay.groups"]
    if num_processes > 1 and getattr(recall.part, "reads_others", False):
        raise UsageError(
            f"{recall.option} reads what other runs write meanwhile, and this run has {num_processes} processes, which "
            "would not see the same: start it with one process, or leave it out"
        )


def replay_notes(config: RunConfig, slots: Slots) -> tuple[str, ...]:
    """A line for a part that tells by `most_groups` how many groups it keeps, and for groups under way of later steps.

    Raises:
        UsageError: so many do not fit into the memory of this machine.
    """
    [recall] = slots["replay.groups"]
    order, num_prompts = config.order, config.rollouts.num_prompts
    ahead = order.num_groups(num_prompts) - num_prompts or (order.largest_age or 0) * num_prompts
    [wait] = slots["replay.wait"]
    kept = [(filled.option, getattr(filled.part, "most_groups", 0)) for filled in (recall, wait)]
    kept.append((f"order.ahead = {order.ahead:g}", ahead))
    return tuple(_note(option, most, config, slots) for option, most in kept if most)


def _note(option: str, most_groups: int, config: RunConfig, slots: Slots) -> str:
    rollouts = at_most(config, slots).rollouts
    needed, there = most_groups * rollouts.num_rollouts * rollouts.max_new_tokens * _TOKEN_BYTES, host_bytes()
    takes = (
        f"{option} keeps at most {most_groups:,} × {rollouts.num_rollouts} rollouts with up to "
        f"{rollouts.max_new_tokens} tokens each, which take up to {needed:,} bytes"
    )
    if needed > there:
        raise UsageError(f"{takes}, and this machine has {there:,}: let it keep fewer groups")
    return takes
