"""What the engine counts and, if asked, traces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EngineStats:
    """Counts since the engine was made, or since `engine.stats` was last replaced."""

    steps: int = 0
    """Decode steps: draws of one token for every live rollout."""
    tokens: int = 0
    """Tokens drawn."""
    forwarded: int = 0
    """Tokens read one at a time by decode steps: fewer than `tokens` where rollouts share rows."""
    prompt_tokens: int = 0
    """Prompt tokens read."""
    reread_tokens: int = 0
    """Tokens read again: rollouts that come back without their keys and values, and all that live under new weights."""
    slots_used: int = 0
    """Largest number of rollouts alive at once."""
    rows_used: int = 0
    """Largest number of rows alive at once."""


@dataclass(slots=True)
class Span:
    """One stay of a rollout in the batch: it drew a token in each of the steps start .. end - 1."""

    request_id: str
    index: int
    start: int
    end: int
