"""Measurements of a model on a machine: the records that the cost model is fitted to, made by `probe.py`."""

from __future__ import annotations

from dataclasses import dataclass

from podsrl.config.schema import RunConfig
from podsrl.plan.rewards import Seen
from podsrl.plan.value import GradientProbe


def own_kept(config: RunConfig) -> int:
    """The config's m, for its n; a share of a group is that many of n."""
    return config.select.most_kept(config.rollouts.num_rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateProbe:
    """One update, all epochs, with the selection before it."""

    num_kept: int
    trained_rows: float
    trained_tokens: int
    update_seconds: float
    select_seconds: float
    gradient: GradientProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProbe:
    """One step: its generation, and updates at several m on what it generated."""

    num_rollouts: int
    """n."""
    decode_steps: int
    """Draws of one token for all live rollouts."""
    forwarded: int
    """Tokens read one at a time: rollouts with the same tokens so far are one row."""
    generated: int
    """Tokens drawn for all completions of the step."""
    generate_seconds: float
    score_seconds: float
    rest_seconds: float
    """Sync, records, and what lies between the stages."""
    updates: tuple[UpdateProbe, ...]
    """At the config's m first."""
    groups: tuple[Seen, ...]
    """Valid rollouts of each question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All that a plan is made from."""

    config: RunConfig
    """The choice that a suggestion is compared with."""
    steps: tuple[StepProbe, ...]
