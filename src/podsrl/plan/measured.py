"""Measurements of a model on a machine: the records that the cost model is fitted to, made by `probe.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from podsrl.config.schema import RunConfig
from podsrl.plan.rewards import Seen


def own_kept(config: RunConfig) -> int:
    """The config's m, for its n; a share of a group is that many of n."""
    return config.select.most_kept(config.rollouts.num_rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationProbe:
    """One step's generation, and what depends on n alone."""

    num_rollouts: int
    """n."""
    decode_steps: int
    """Draws of one token for all live rollouts."""
    forwarded: int
    """Tokens read one at a time: rollouts with the same tokens so far are one row."""
    generated: int
    """Tokens of all completions."""
    generate_seconds: float
    score_seconds: float
    rest_seconds: float
    """Sync, records, and what lies between the stages."""
    kv_bytes: int
    """Key-value memory held at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateProbe:
    """One update, all epochs, with the selection before it."""

    num_rollouts: int
    num_kept: int
    micro_batch_tokens: int
    trained_rows: float
    trained_tokens: int
    update_seconds: float
    select_seconds: float
    peak_bytes: int | None
    """Memory in use at most: the device's on CUDA, the whole process's on Linux; None where not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All that a plan is made from."""

    config: RunConfig
    """The choice that a suggestion is compared with."""
    generation: tuple[GenerationProbe, ...]
    updates: tuple[UpdateProbe, ...]
    groups: tuple[Seen, ...]
    """Valid rollouts of each seen question."""
    noise_ratio: float | None
    """κ (`value.py`); None where not measured."""
    memory_bytes: int | None
    """What there is; None where not known."""
    noise_range: tuple[float, float] | None = None
    """How far κ may be off, by its middle 90 % over resampled steps; None where not measured on several steps."""
    unknown: tuple[str, ...] = field(default=())
    """What could not be told, in words."""
