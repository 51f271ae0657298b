"""Reading prompts: every distinct one once, in batches of about the same length, by the model's own forward.

Prompts are padded on the right. Attention is causal, so no token of a prompt sees the padding: no mask is needed, and
keys and values come out where the pool wants them. The head runs on each prompt's last token only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from podsrl.errors import UsageError
from podsrl.generate.decode.pool import KVPool, Layout

_BATCH_TOKENS = 8192
"""Padded tokens (prompts times longest) read at once: bounds the memory of activations."""


@dataclass(frozen=True, slots=True)
class _Batch:
    prompts: list[int]
    """Which prompts, S of them."""
    lengths: list[int]
    """Their tokens."""
    blocks: list[Tensor]
    """Their keys and values, of `Layout.pack`."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """P prompts that have been read."""

    logits: Tensor
    """[P, V] after each prompt's last token."""
    hidden: Tensor
    """[P, D], the head's input at each prompt's last token."""
    _batches: list[_Batch] = field(repr=False)

    @property
    def num_bytes(self) -> int:
        """Bytes of the keys and values held until this record is let go."""
        return sum(block.nbytes for batch in self._batches for block in batch.blocks)

    def write(self, pool: KVPool, rows: Tensor, prompt_of_row: Tensor) -> None:
        """Copy prompts' keys and values into a pool that has room for the longest of them.

        Args:
            pool: to be written.
            rows: [K] int64, its rows.
            prompt_of_row: [K] int64 in 0 .. P-1, the prompt that each row starts with.
        """
        wanted = list(zip(prompt_of_row.tolist(), rows.tolist(), strict=True))
        for batch in self._batches:
            place = {prompt: i for i, prompt in enumerate(batch.prompts)}
            mine = [(place[prompt], row) for prompt, row in wanted if prompt in place]
            if mine:
                sources, targets = torch.tensor(mine).unbind(1)
                length = max(batch.lengths[i] for i, _ in mine)
                pool.fill_rows(batch.blocks, sources.to(pool.device), targets.to(pool.device), length)


def prefill(model: Any, prompts: Sequence[Sequence[int]], *, batch_tokens: int = _BATCH_TOKENS) -> Prefilled:
    """Read prompts, or prompts with the tokens that a resumed rollout has so far.

    Args:
        model: a Hugging Face causal language model.
        prompts: P token lists, none empty; best without repeats.
        batch_tokens: padded tokens read at once, at least; a longer prompt is read alone.

    Raises:
        UsageError: see `new_prompt_cache` and `head_input`.
    """
    longest = max(map(len, prompts))
    logits: list[Tensor] = []
    hidden: list[Tensor] = []
    batches: list[_Batch] = []
    with torch.inference_mode(), maskable_attention(model):
        for members in _batches(list(map(len, prompts)), batch_tokens):
            cache = new_prompt_cache(model, longest)
            last = torch.tensor([len(prompts[i]) - 1 for i in members], device=model.device)
            with head_input(model, last) as seen:
                output = model(input_ids=_padded(prompts, members, model.device), past_key_values=cache)
            logits.append(output.logits[:, -1])
            hidden.append(seen[0])
            keys, values = _contents(cache)
            lengths = [len(prompts[i]) for i in members]
            batches.append(_Batch(members, lengths, Layout.of(keys, values).pack(keys, values)))
        order = torch.tensor([i for batch in batches for i in batch.prompts], device=model.device).argsort()
        return Prefilled(torch.cat(logits)[order], torch.cat(hidden)[order], batches)


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
    return Layout.of(*_contents(cache))


@contextmanager
def head_input(model: Any, last: Tensor | None = None) -> Iterator[list[Tensor]]:
    """Collect what the head reads, [R, D]; `last` [R] int64 narrows it to one position a row.

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


def _contents(cache: DynamicCache) -> tuple[list[Tensor], list[Tensor]]:
    return [layer.keys for layer in cache.layers], [layer.values for layer in cache.layers]


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
