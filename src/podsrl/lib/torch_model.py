"""Helpers for torch models that several stages use: evaluation mode in a context, end tokens, reach of positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn


class Limit(NamedTuple):
    """A bound of prompt and completion together."""

    tokens: int
    name: str
    """What the bound is, with its number: "the model's window of 64"."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the context; afterwards each module has its own mode again."""
    with own_modes(model):
        model.eval()
        yield


@contextmanager
def own_modes(model: nn.Module) -> Iterator[None]:
    """Restore the mode of each module when the context ends."""
    before = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def end_token_ids(model: Any, tokenizer: Any = None) -> tuple[int, ...]:
    """The tokenizer's end token and all that the model's generation config names, ascending: chat models have several.

    Example:
        >>> from types import SimpleNamespace
        >>> model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=[7, 5]))
        >>> end_token_ids(model), end_token_ids(model, SimpleNamespace(eos_token_id=2))
        ((5, 7), (2, 5, 7))
    """
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = {getattr(tokenizer, "eos_token_id", None), *(named if isinstance(named, list) else [named])}
    return tuple(sorted(ids - {None}))


def batch_limit(config: Any) -> Limit | None:
    """Largest row length for which a row's numbers do not depend on the other rows of its batch; None: no bound.

    Rotary positions of type "dynamic" and "longrope" choose one set of frequencies for a whole batch, from its longest
    row. As long as no row exceeds the window that the model was first trained on, that is always the same set.

    Example:
        >>> from transformers import LlamaConfig
        >>> batch_limit(LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0})).tokens
        2048
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    ropes = [parameters] if "rope_type" in parameters else [each for each in parameters.values() if each]
    limits = [limit for rope in ropes if (limit := _rope_limit(config, rope)) is not None]
    kept = getattr(config, "keep_window_size", None)
    if kept is not None:  # Doge: beyond it a layer attends to some tokens only, perhaps to those behind a row's end
        limits.append(Limit(kept, f"the {kept} tokens (keep_window_size) from which it attends to some of them only"))
    return min(limits, default=None)


def _rope_limit(config: Any, rope: Mapping[str, Any]) -> Limit | None:
    kind = rope.get("rope_type", "default")
    if kind != "longrope" and "dynamic" not in kind:
        return None
    tokens = rope["original_max_position_embeddings"] if kind == "longrope" else config.max_position_embeddings
    return Limit(tokens, f"the {tokens} tokens from which its rotary positions ({kind}) change for the whole batch")


def text_config(model: Any) -> Any:
    """The configuration of a model's text part; None where the model has none."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config
