"""A decode step by the model's own forward: for any Hugging Face decoder with full attention."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from podsrl.generate.engine.forward.base import Forward, Step, StepOutput
from podsrl.generate.engine.forward.prefill import head_input, maskable_attention
from podsrl.generate.engine.kv_pool import KVPool


class ModelForward(Forward):
    """The model's own forward; its attention reads and writes the pool through a cache object."""

    name = "model"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._config = model.config.get_text_config()

    def refresh(self) -> None:
        """Nothing: the model's weights are used in place."""

    @torch.inference_mode()
    def __call__(self, step: Step, pool: KVPool) -> StepOutput:
        rows = torch.arange(len(step.tokens), device=step.tokens.device)
        layers = zip(pool.keys, pool.values, strict=True)
        cache = Cache(layers=[_PoolLayer(keys, values, rows, step.positions, step.length) for keys, values in layers])
        mask = None if step.is_even else self._mask(step.positions, step.length)
        with maskable_attention(self._model), head_input(self._model) if step.want_hidden else nullcontext() as seen:
            output = self._model(
                input_ids=step.tokens[:, None],
                attention_mask=mask,
                position_ids=step.positions[:, None],
                past_key_values=cache,
            )
        return StepOutput(output.logits[:, -1], None if seen is None else seen[0])

    def _mask(self, positions: Tensor, length: int) -> Tensor:
        """[R, 1, 1, length]: four dimensions reach the attention as they are. Only sdpa reads booleans."""
        mask = torch.arange(length, device=positions.device) <= positions[:, None]
        if self._config._attn_implementation == "eager":
            dtype = self.layout.dtype
            mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
        return mask[:, None, None, :]


class _PoolLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped here
    """One layer of the pool, as the model's attention sees it for one step."""

    is_sliding = False

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, positions: Tensor, length: int) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self._rows, self._positions, self._length = rows, positions, length
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the memory exists from the start."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write each row's token at its own position and show all rows up to the longest."""
        self.keys[self._rows, :, self._positions] = key_states[:, :, 0]
        self.values[self._rows, :, self._positions] = value_states[:, :, 0]
        num_rows = len(self._rows)
        return self.keys[:num_rows, :, : self._length], self.values[:num_rows, :, : self._length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._length, 0

    def get_seq_length(self) -> int:
        return self._length - 1

    def get_max_length(self) -> int:
        return int(self.keys.shape[2])

    get_max_cache_shape = get_max_length
    """Its name in the first releases of transformers 5."""
