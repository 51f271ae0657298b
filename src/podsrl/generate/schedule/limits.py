"""What a scheduler may use."""

from __future__ import annotations

from dataclasses import dataclass

from podsrl.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine has room for.

    Raises:
        UsageError: fewer than one slot or one token.
    """

    num_slots: int
    """Most live jobs, at least 1."""
    num_tokens: int | None = None
    """Tokens of KV memory, counted as live rows times the longest row; None: bounded by the slots alone."""

    def __post_init__(self) -> None:
        for option, value in (("num_slots", self.num_slots), ("num_tokens", self.num_tokens)):
            if value is not None and value < 1:
                raise UsageError(f"{option} = {value}: wanted at least 1; give the engine more memory or fewer slots")
