"""Options of `pods pretrain`. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from podsrl.config.bounds import Digits, OneOrSeveralShares, PathText, Positive, Steps
from podsrl.config.schema import Section


class PretrainConfig(Section):
    """How a small base model is trained from scratch on a mixture of ways to solve additions (`pods pretrain`)."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the initial weights and of all training texts."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 1
    """CPU threads of torch; the same number of threads gives the same weights."""
    careful: OneOrSeveralShares = 0.03
    """Share of solutions in the second phase that go digit by digit and are right; the others guess a wrong answer. One
    number, or digits of the addends -> share, for a model that finds some sums harder than others."""
    digits: dict[Digits, Positive] = {2: 0.7, 3: 0.3}  # noqa: RUF012 (pydantic copies it)
    """Digits of the addends -> share of the texts."""
    start: PathText | None = None
    """Model folder (or "builtin:NAME") to start from instead of random weights; the sizes below are then those of this
    model."""
    hidden_size: Annotated[int, Field(ge=1, le=2**16)] = 64
    """Width of the model."""
    num_layers: Annotated[int, Field(ge=1, le=1024)] = 3
    """Transformer blocks."""
    num_heads: Annotated[int, Field(ge=1, le=1024)] = 4
    """Attention heads."""
    num_kv_heads: Annotated[int, Field(ge=1, le=1024)] = 2
    """Key-value heads."""
    intermediate_size: Annotated[int, Field(ge=1, le=2**18)] = 160
    """Width of the feed-forward part."""
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 128
    """Training texts per step."""
    skill_steps: Steps = 1800
    """Steps of the first phase, with as many careful as careless solutions, in which the model learns to carry."""
    mixture_steps: Steps = 300
    """Steps of the second phase, with the share `careful`, in which careful solutions become rare."""
    lr: Positive = 3e-3
    """Peak learning rate of the first phase (linear warm-up, cosine decay); the second phase uses a tenth."""

    def careful_share(self, digits: int) -> float:
        """`careful` for sums of so many digits."""
        return self.careful[digits] if isinstance(self.careful, dict) else self.careful

    @model_validator(mode="after")
    def _check_careful(self) -> Self:
        if isinstance(self.careful, dict) and self.careful.keys() != self.digits.keys():
            given, wanted = (sorted(table) for table in (self.careful, self.digits))
            raise ValueError(
                f"careful has shares for {given} digits, but digits = {wanted}: give one for each of these"
            )
        return self

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.skill_steps + self.mixture_steps == 0:
            raise ValueError("skill_steps and mixture_steps are both 0, so nothing would be trained: set one of them")
        return self
