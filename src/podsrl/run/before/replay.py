"""Whether groups of earlier steps and of other runs can be trained on, and what they take of the memory."""

from __future__ import annotations

from podsrl.config.schema import RunConfig
from podsrl.control import RECALL
from podsrl.errors import UsageError
from podsrl.lib.machine import host_bytes
from podsrl.lib.slots import Slots
from podsrl.run.before.sizes import at_most

_TOKEN_BYTES = 72
"""Of a token of a completion: a number and a log-prob as Python objects (28 rounded up, and 24), and two pointers."""


def check_replay(slots: Slots, num_processes: int) -> None:
    """UsageError: several processes would look into a folder at different times, and train on different groups."""
    [recall] = slots[RECALL.option]
    if num_processes > 1 and getattr(recall.part, "reads_others", False):
        raise UsageError(
            f"{recall.option} reads what other runs write meanwhile, and this run has {num_processes} processes, which "
            "would not see the same: start it with one process, or leave it out"
        )


def replay_notes(config: RunConfig, slots: Slots) -> tuple[str, ...]:
    """A line for a part of `replay.groups` that tells by `most_groups` how many it keeps.

    Raises:
        UsageError: so many do not fit into the memory of this machine.
    """
    [recall] = slots[RECALL.option]
    most = getattr(recall.part, "most_groups", None)
    if most is None:
        return ()
    rollouts = at_most(config, slots).rollouts
    needed, there = most * rollouts.num_rollouts * rollouts.max_new_tokens * _TOKEN_BYTES, host_bytes()
    takes = (
        f"{recall.option} keeps up to {most:,} groups of {rollouts.num_rollouts} rollouts with up to "
        f"{rollouts.max_new_tokens} tokens each, which take up to {needed:,} bytes"
    )
    if needed > there:
        raise UsageError(f"{takes}, and this machine has {there:,}: let it keep fewer groups")
    return (takes,)
