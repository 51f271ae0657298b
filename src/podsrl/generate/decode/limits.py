"""How long rows of a model may get in this engine."""

from __future__ import annotations

from typing import Any

from podsrl.torch_model import Limit, model_limits

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
    sizes = [getattr(config, name, None) for name in _LOCAL_WINDOWS]
    local = [Limit(size, f"its local attention's window of {size}") for size in sizes if size is not None]
    return min([*model_limits(model), *local], key=lambda limit: limit.tokens, default=None)
