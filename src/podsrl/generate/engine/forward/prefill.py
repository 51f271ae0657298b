"""Read prompts by the model's own forward: every distinct one once, in batches of similar length.

Prompts are padded on the right. Attention is causal, so no token of a prompt sees the padding: no mask is needed, and
keys and values have the positions that they have in the pool. Each layer writes its own straight into the pool, so that
a prompt is never held twice. The head runs on each prompt's last token only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from podsrl.errors import UsageError
from podsrl.generate.engine.kv_pool import KVPool, Layout

_BATCH_TOKENS = 8192
"""Padded tokens (prompts times longest) read at once: bounds the memory of activations."""


@dataclass(frozen=True, slots=True)
class Read:
    """The model's outputs after P prompts."""

    logits: Tensor
    """[P, V] after each prompt's last token."""
    hidden: Tensor
    """[P, D], the head's input at each prompt's last token."""


def read_prompts(
    model: Any,
    prompts: Sequence[Sequence[int]],
    pool: KVPool,
    rows: Sequence[int],
    *,
    batch_tokens: int = _BATCH_TOKENS,
) -> Read:
    """Read P prompts, perhaps with the tokens that a resumed rollout has so far, into P rows of a pool with room.

    At least `batch_tokens` padded tokens are read at once; a longer prompt is read alone. UsageError: see
    `new_prompt_cache` and `head_input`.
    """
    longest = max(map(len, prompts))
    logits: list[Tensor] = []
    hidden: list[Tensor] = []
    order: list[int] = []
    with torch.inference_mode(), maskable_attention(model):
        for members in _batches(list(map(len, prompts)), batch_tokens):
            cache = _writing(new_prompt_cache(model, longest), pool, [rows[i] for i in members])
            last = torch.tensor([len(prompts[i]) - 1 for i in members], device=model.device)
            with head_input(model, last) as seen:
                output = model(input_ids=_padded(prompts, members, model.device), past_key_values=cache)
            logits.append(output.logits[:, -1])
            hidden.append(seen[0])
            order += members
        places = torch.tensor(order, device=model.device).argsort()
        return Read(torch.cat(logits)[places], torch.cat(hidden)[places])


class _WritingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """One layer of an empty cache: what the model gives it goes into the pool, and none of it stays here."""

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, is_sliding: bool) -> None:
        super().__init__()
        self.is_sliding = is_sliding
        self._keys, self._values, self._rows, self._length = keys, values, rows, 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Attention gets contiguous copies, as from the layer this stands for: the same sums."""
        key_states, value_states = key_states.contiguous(), value_states.contiguous()
        self._length = key_states.shape[2]
        for own, states in ((self._keys, key_states), (self._values, value_states)):
            own[:, :, : self._length].index_copy_(0, self._rows, states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        """The first releases of transformers 5 give the query's positions [T] instead of their number."""
        return self._length + (query_length if isinstance(query_length, int) else len(query_length)), 0

    def get_seq_length(self) -> int:
        return self._length


def _writing(cache: DynamicCache, pool: KVPool, rows: Sequence[int]) -> DynamicCache:
    """The same cache, with layers that write into these rows."""
    places = torch.tensor(rows, device=pool.device)
    layers = zip(cache.layers, pool.keys, pool.values, strict=True)
    cache.layers = [_WritingLayer(keys, values, places, layer.is_sliding) for layer, keys, values in layers]
    return cache


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
        if type(layer) is not DynamicSlidingWindowLayer:
            raise UsageError(
                f"model {type(model).__name__} has cache layers of type {type(layer).__name__}, wanted full attention: "
                "use another model (docs/families.md)"
            )
        if total_length > layer.sliding_window:  # within the window, sliding and full attention are the same
            raise UsageError(
                f"model {type(model).__name__} has cache layers of type {type(layer).__name__}, wanted full attention "
                f"over {total_length} tokens (prompt and completion): use another model, or a shorter limit under its "
                f"window of {layer.sliding_window}"
            )
    return cache


def read_layout(model: Any) -> Layout:
    """Learn from one token what the model keeps in every layer."""
    with torch.inference_mode(), maskable_attention(model):
        cache = new_prompt_cache(model, 1)
        model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device), past_key_values=cache)
    return Layout.of([layer.keys for layer in cache.layers], [layer.values for layer in cache.layers])


@contextmanager
def head_input(model: Any, last: Tensor | None = None) -> Iterator[list[Tensor]]:
    """Collect what the head reads, [R, D]; `last` [R] int64 narrows it to one position per row.

    A hook on the head and not an option of the model, so that logits stay whatever the model makes of its head
    (scaled, capped), and rows may end at different positions.

    Raises:
        UsageError: the model computes logits without calling its head as a module.
    """
    seen: list[Tensor] = []

    def hook(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = args[0]
        place = torch.arange(len(hidden), device=hidden.device)
        seen.append(hidden[:, -1] if last is None else hidden[place, last])
        return (seen[0][:, None], *args[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(hook)
    try:
        yield seen
    finally:
        handle.remove()
    if len(seen) != 1:
        raise UsageError(
            f"model {type(model).__name__}: its output embeddings were called {len(seen)} times in a forward, wanted "
            "once: use a causal language model whose head is a module"
        )


@contextmanager
def maskable_attention(model: Any) -> Iterator[None]:
    """Run attentions that take no four-dimensional mask (flash, flex) as sdpa: the same sums."""
    config = model.config.get_text_config()
    chosen = config._attn_implementation
    if chosen in ("sdpa", "eager"):
        yield
        return
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation = chosen


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Cut prompts, longest first, wherever the next would exceed the budget."""
    members: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if members and (len(members) + 1) * lengths[members[0]] > batch_tokens:
            yield members
            members = []
        members.append(i)
    yield members


def _padded(prompts: Sequence[Sequence[int]], members: Sequence[int], device: torch.device) -> Tensor:
    longest = max(len(prompts[i]) for i in members)
    return torch.tensor([[*prompts[i], *[0] * (longest - len(prompts[i]))] for i in members], device=device)
