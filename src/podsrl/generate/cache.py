"""The key-value memory of the rows being generated: one block a layer, allocated once, compacted in place.

A layer holds keys and values as [rows, kv_heads, max_length, head_dim]. All rows of a batch stand at the same length
(shorter prompts are padded on the left), so a step writes one slice and reads a view. A finished row gives its place to
the last live one, which moves one row's keys and values and never copies the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from podsrl.errors import UsageError


class RowLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped here
    """One layer's block, as the model's own attention sees it."""

    is_sliding = False

    def __init__(self, prompt_keys: Tensor, prompt_values: Tensor, prompt_of_row: Tensor, max_length: int) -> None:
        super().__init__()
        self.length = prompt_keys.shape[2]
        self._keys = _expand(prompt_keys, prompt_of_row, max_length)
        self._values = _expand(prompt_values, prompt_of_row, max_length)
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the block exists from the start."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new tokens behind the others and show all up to them."""
        end = self.length + key_states.shape[2]
        self._keys[:, :, self.length : end] = key_states
        self._values[:, :, self.length : end] = value_states
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return int(self._keys.shape[2])

    def move_rows(self, source: Tensor, target: Tensor, num_rows: int) -> None:
        """Copy the rows `source` over the rows `target`, then keep the first `num_rows`."""
        if len(source) > 0:
            self._keys[target, :, : self.length] = self._keys[source, :, : self.length]
            self._values[target, :, : self.length] = self._values[source, :, : self.length]
        self._keys, self._values = self._keys[:num_rows], self._values[:num_rows]

    @property
    def num_bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes


def new_prompt_cache(model: Any, total_length: int) -> DynamicCache:
    """The cache that a prompt is read into.

    Raises:
        UsageError: a layer keeps something else than all its keys and values (linear attention, or a sliding window
            shorter than `total_length`), which this engine cannot share among rollouts.
    """
    cache = DynamicCache(config=model.config)
    for layer in cache.layers:
        if type(layer) is DynamicLayer:
            continue
        if isinstance(layer, DynamicSlidingWindowLayer) and total_length <= layer.sliding_window:
            continue  # within the window, sliding and full attention are the same
        raise UsageError(
            f"model {type(model).__name__} has cache layers of type {type(layer).__name__}, wanted full attention over "
            f"{total_length} tokens (prompt and completion): use another model, or a shorter limit under its window"
        )
    return cache


def rows_from_prompts(prompts: DynamicCache, prompt_of_row: Tensor, max_length: int) -> Cache:
    """Give every row a copy of its prompt's keys and values, with room for `max_length` tokens in all.

    Args:
        prompts: filled by one forward over R prompts padded on the left.
        prompt_of_row: [B] int64, which of the R prompts each row continues.
        max_length: tokens a row, prompt included.
    """
    return Cache(layers=[RowLayer(layer.keys, layer.values, prompt_of_row, max_length) for layer in prompts.layers])


def _expand(prompt: Tensor, prompt_of_row: Tensor, max_length: int) -> Tensor:
    _, heads, length, head_dim = prompt.shape
    block = torch.empty(len(prompt_of_row), heads, max_length, head_dim, dtype=prompt.dtype, device=prompt.device)
    block[:, :, :length] = prompt.index_select(0, prompt_of_row)
    return block
