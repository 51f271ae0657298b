"""How long rows of a model may get in this engine."""

from __future__ import annotations

from typing import Any

from podsrl.lib.torch_model import Limit, batch_limit

_LOCAL_WINDOWS = ("window_size",)
"""Options of transformers' configs that bound what a layer sees, but that its cache does not tell of."""


def row_limit(model: Any) -> Limit | None:
    """The most tokens that prompt and completion may have together; None: no bound.

    Within a local window all layers see the whole row; beyond it such a model counts the window from the longest row
    of the batch. Sliding windows are told by the cache's layers, see `new_prompt_cache`.

    Args:
        model: a Hugging Face causal language model.
    """
    config = model.config.get_text_config()
    window = getattr(config, "max_position_embeddings", None)
    limits = [Limit(window, f"the model's window of {window}")] if window and window > 0 else []
    if (alone := batch_limit(config)) is not None:
        limits.append(alone)
    sizes = [size for name in _LOCAL_WINDOWS if (size := getattr(config, name, None)) is not None]
    limits += [Limit(size, f"its local attention's window of {size}") for size in sizes]
    return min(limits, key=lambda limit: limit.tokens, default=None)
