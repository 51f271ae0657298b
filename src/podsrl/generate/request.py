"""What is asked of a generator: a prompt, how many completions, and how to sample them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from podsrl.errors import UsageError
from podsrl.generate.stats import EngineStats
from podsrl.types import Completion

MIN_TEMPERATURE = 1e-6
"""Below it logits divided by it overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. Filters apply in the order temperature, top-k, top-p, min-p, as in Hugging Face `generate`.

    Raises:
        UsageError: a value outside its range.

    Example:
        >>> Sampling(temperature=0.7, max_new_tokens=8).top_p
        1.0
    """

    temperature: float = 1.0
    """Softmax temperature, at least `MIN_TEMPERATURE`."""
    top_p: float = 1.0
    """Nucleus: smallest set of tokens with at least this probability, in (0, 1]; 1 keeps all."""
    top_k: int = 0
    """The k likeliest tokens; 0 keeps all."""
    min_p: float = 0.0
    """Tokens with at least this fraction of the likeliest one's probability, in [0, 1); 0 keeps all."""
    max_new_tokens: int = 64
    """Token limit, at least 1."""
    stop_token_ids: tuple[int, ...] = ()
    """A completion ends with, and includes, the first of these."""
    stop_strings: tuple[str, ...] = ()
    """A completion ends with, and includes, the token that completes one of these in its text, wherever in the token
    that happens; the prompt's text does not count. The engine needs a tokenizer for them (stop.py)."""

    def __post_init__(self) -> None:
        is_positive = math.isfinite(self.temperature) and self.temperature >= MIN_TEMPERATURE
        wanted = f"a number of at least {MIN_TEMPERATURE:g} (for greedy decoding set top_k = 1)"
        _require(is_positive, "temperature", self.temperature, wanted)
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "a number in (0, 1]")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (all tokens) or more")
        _require(0 <= self.min_p < 1, "min_p", self.min_p, "a number in [0, 1)")
        _require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        ids: Any = self.stop_token_ids
        strings: Any = self.stop_strings
        is_list = isinstance(ids, Iterable)
        _require(is_list, "stop_token_ids", repr(ids), "a tuple of token ids, also for a single one")
        is_list = isinstance(strings, Iterable) and not isinstance(strings, str)
        _require(is_list, "stop_strings", repr(strings), "a tuple of strings, also for a single one")
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        object.__setattr__(self, "stop_strings", tuple(self.stop_strings))
        _require(
            "" not in self.stop_strings, "stop_strings", self.stop_strings, "no empty string: it would stop at once"
        )

    @property
    def shape(self) -> tuple[float, float, int, float]:
        """What the distribution depends on: temperature, top-p, top-k, min-p."""
        return self.temperature, self.top_p, self.top_k, self.min_p


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the completions wanted for it.

    Raises:
        UsageError: no prompt tokens, tokens that are no integers (of Python's or NumPy's), or fewer than one rollout.
    """

    id: str
    """Unique among the requests alive. With the engine's seed it decides the random numbers; reuse repeats a draw."""
    prompt_ids: tuple[int, ...]
    num_rollouts: int = 1
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        ids, option = tuple(self.prompt_ids), f"prompt_ids of request {self.id!r}"
        _require(len(ids) > 0, option, "no tokens", "at least one token")
        for kind in set(map(type, ids)):
            is_integer = issubclass(kind, (int, np.integer)) and kind is not bool
            _require(is_integer, option, f"{ids[:8]} (with a {kind.__name__})", "integers (token ids)")
        object.__setattr__(self, "prompt_ids", tuple(map(int, ids)))
        _require(self.num_rollouts >= 1, f"num_rollouts of request {self.id!r}", self.num_rollouts, "at least 1")


class Generator(Protocol):
    """The seam: whatever turns requests into completions. It never needs to know what a reward is."""

    version: int
    """Stamped on what is generated next."""
    peak_kv_bytes: int
    """Largest key-value memory held since it was set to 0, in bytes; 0 where that is not known."""
    stats: EngineStats
    """Counts since it was last replaced; zeros where nothing is counted."""

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Yield every completion as it finishes, in any order."""
        ...

    def abort(self, ids: Iterable[str]) -> None:
        """End these requests' unfinished completions with finish reason "aborted"."""
        ...

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Sample from these weights from now on, and stamp completions with `version`.

        Each tensor is lent until the next is asked for. A generator that shows its torch module as `model` is looked at
        afterwards: its parameters must then be these, by name and value.
        """
        ...


def _require(is_ok: bool, option: str, got: object, wanted: str) -> None:
    if not is_ok:
        raise UsageError(f"{option} = {got}: wanted {wanted}")
