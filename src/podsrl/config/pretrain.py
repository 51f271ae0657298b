"""Options of `pods pretrain`. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from podsrl.config.bounds import PathText, Positive, Steps
from podsrl.config.schema import Section


class PretrainConfig(Section):
    """How a small base model is made from nothing: a mixture of ways to solve additions (`tools/pretrain.py`)."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of the initial weights and of every training text."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 1
    """CPU threads for torch; weights are reproducible for one number of threads."""
    careful: Annotated[float, Field(ge=0.0, le=1.0)] = 0.03
    """Share of solutions, at the end, that go digit by digit and are right; the others guess a wrong answer at once."""
    digits: dict[Annotated[int, Field(ge=1, le=3)], Positive] = {2: 0.7, 3: 0.3}  # noqa: RUF012 (pydantic copies it)
    """Digits of the addends -> share of the texts."""
    start: PathText | None = None
    """Model folder (or "builtin:NAME") to go on from instead of random weights; the sizes below are then its own."""
    hidden_size: Annotated[int, Field(ge=1, le=2**16)] = 64
    """Width."""
    num_layers: Annotated[int, Field(ge=1, le=1024)] = 3
    """Transformer blocks."""
    num_heads: Annotated[int, Field(ge=1, le=1024)] = 4
    """Attention heads."""
    num_kv_heads: Annotated[int, Field(ge=1, le=1024)] = 2
    """Key-value heads."""
    intermediate_size: Annotated[int, Field(ge=1, le=2**18)] = 160
    """Width of the feed-forward part."""
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 128
    """Texts per step."""
    skill_steps: Steps = 1800
    """First phase: steps with as many careful as careless solutions, in which the circuits for carrying form."""
    mixture_steps: Steps = 300
    """Second phase: steps with the share `careful`, in which careful work becomes rare."""
    lr: Positive = 3e-3
    """Peak learning rate of the first phase (linear warm-up, cosine decay); the second phase uses a tenth."""

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.skill_steps + self.mixture_steps == 0:
            raise ValueError("skill_steps and mixture_steps are both 0, so nothing would be trained: set one of them")
        return self
