"""Learning-rate schedules: the factor on the full learning rate at each step."""

from __future__ import annotations

import math
from collections.abc import Callable

from podsrl.errors import UsageError, nearest


def constant(share: float) -> float:
    return 1.0


def cosine(share: float) -> float:
    """From the full rate to 0 along half a cosine (Loshchilov & Hutter 2017, equation 5, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * share))


SCHEDULES: dict[str, Callable[[float], float]] = {"constant": constant, "cosine": cosine}
"""Name -> share of the steps after warm-up that lie behind, in [0, 1] -> factor."""


def rate_factor(schedule: str, step: int, *, warmup_steps: int, schedule_steps: int) -> float:
    """The factor in [0, 1] on the learning rate in step s, from 1.

    The first w warm-up steps get 1/(w+1), 2/(w+1) …, step w+1 gets 1. After T = `schedule_steps` steps the schedule is
    at its end, and stays there: with "cosine" step T+1 gets 0.

    Example:
        >>> [round(rate_factor("cosine", s, warmup_steps=1, schedule_steps=3), 3) for s in (1, 2, 3, 4, 9)]
        [0.5, 1.0, 0.5, 0.0, 0.0]
    """
    if step <= warmup_steps:
        return step / (warmup_steps + 1)
    share = (step - 1 - warmup_steps) / (schedule_steps - warmup_steps) if schedule_steps else 0.0
    return SCHEDULES[schedule](min(1.0, share))


def check_schedule(schedule: str, warmup_steps: int, schedule_steps: int) -> None:
    """UsageError: an unknown schedule, or steps that do not go with it."""
    if schedule not in SCHEDULES:
        raise UsageError(f"optim.schedule = {schedule!r}: no such schedule.{nearest(schedule, SCHEDULES)}")
    if schedule == "constant" and schedule_steps:
        raise UsageError(f"optim.schedule_steps = {schedule_steps} has no effect on a constant rate; leave it out")
    if schedule != "constant" and schedule_steps <= warmup_steps:
        raise UsageError(
            f"optim.schedule_steps = {schedule_steps}: {schedule!r} wants more steps than "
            f"optim.warmup_steps = {warmup_steps}, since it counts them in"
        )
