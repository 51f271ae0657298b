"""What more than one stage asks of a torch model: evaluation mode for a while, and how far its positions reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn


class Limit(NamedTuple):
    """A bound of prompt and completion together."""

    tokens: int
    name: str
    """What is exceeded beyond it, with the number: "the model's window of 64"."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and back to each module's own afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def rope_limit(config: Any) -> Limit | None:
    """How long rows may be before their rotary frequencies depend on the other rows of the batch; None: no bound.

    "dynamic" and "longrope" choose one set of frequencies for a whole batch, from its longest row. As long as no row
    passes the window that the model was first trained on, that is always the same set.

    Args:
        config: of the model's text part.

    Example:
        >>> from transformers import LlamaConfig
        >>> rope_limit(LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0})).tokens
        2048
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    ropes = [parameters] if "rope_type" in parameters else [each for each in parameters.values() if each]
    limits = []
    for rope in ropes:
        kind = rope.get("rope_type", "default")
        if kind == "longrope":
            limits.append((rope["original_max_position_embeddings"], kind))
        elif "dynamic" in kind:
            limits.append((config.max_position_embeddings, kind))
    if not limits:
        return None
    tokens, kind = min(limits)
    return Limit(tokens, f"the {tokens} tokens from which its rotary positions ({kind}) change for the whole batch")


def model_limits(model: Any) -> list[Limit]:
    """What bounds a model's rows, in the update as in generation."""
    config = model.config.get_text_config()
    window = getattr(config, "max_position_embeddings", None)
    limits = [] if window is None else [Limit(window, f"the model's window of {window}")]
    rope = rope_limit(config)
    return limits if rope is None else [*limits, rope]
