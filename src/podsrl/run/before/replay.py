"""Groups of other steps and of other runs: what memory they take."""

from __future__ import annotations

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.machine import host_bytes
from podsrl.lib.parts import Parts
from podsrl.run.before.sizes import at_most

_TOKEN_BYTES = 72
"""Of a token of a completion: a number and a log-prob as Python objects (28 rounded up, and 24), and two pointers."""


def replay_notes(config: RunConfig, parts: Parts) -> tuple[str, ...]:
    """A line for a part that tells by `most_groups` how many groups it keeps, and for groups under way of later steps.

    Raises:
        UsageError: so many do not fit into the memory of this machine.
    """
    order, num_prompts = config.order, config.rollouts.num_prompts
    ahead = order.num_groups(num_prompts) - num_prompts or (order.largest_age or 0) * num_prompts
    kept = [(call.option, getattr(call.part, "most_groups", 0)) for call in (*parts["recall"], *parts["wait"])]
    kept.append((f"order.ahead = {order.ahead:g}", ahead))
    return tuple(_note(option, most, config, parts) for option, most in kept if most)


def _note(option: str, most_groups: int, config: RunConfig, parts: Parts) -> str:
    rollouts = at_most(config, parts).rollouts
    needed, there = most_groups * rollouts.num_rollouts * rollouts.max_new_tokens * _TOKEN_BYTES, host_bytes()
    takes = (
        f"{option} keeps at most {most_groups:,} × {rollouts.num_rollouts} rollouts with up to "
        f"{rollouts.max_new_tokens} tokens each, which take up to {needed:,} bytes"
    )
    if needed > there:
        raise UsageError(f"{takes}, and this machine has {there:,}: let it keep fewer groups")
    return takes
