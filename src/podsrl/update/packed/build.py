"""Padded rows become a `Layout`: the arithmetic of places, in numpy, whose calls take few microseconds.

B rows, T their width, S segments, P prompts; the other letters are those of `layout.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from podsrl.update.batch import Batch
from podsrl.update.packed.layout import Block, Layout

SHRINK = 0.7
"""A block ends where segments are shorter than this share of its longest …"""
MIN_ROWS = 8
"""… but has at least so many, because a call costs some microseconds."""
MASK_ELEMENTS = 1 << 20
"""A larger mask is made again in each layer instead of kept, and a block is cut where its rows need one each."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segments:
    """Stretches of padded rows that will lie one behind the other; [S] each."""

    row: Array
    start: Array
    """First column."""
    length: Array
    prompt: Array
    """Which of the first segments comes before; -1: none."""

    @property
    def offset(self) -> Array:
        """Place of the first token."""
        return np.cumsum(self.length) - self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """Segments side by side."""

    ids: Array
    """[R], the longest first."""
    places: Array
    """[R, L]."""
    alive: Array
    """[R, L] bool."""


def lay_out(rows: Batch, *, shared: bool, round_up: bool = False) -> Layout:
    """Find the place of every token.

    Args:
        rows: on the CPU, right-padded, B ≥ 1; rows of one group are neighbours.
        shared: each group's prompt once.
        round_up: fill the row and the targets up to one of few lengths, by less than 1/32 of them (or to 32), for
            libraries that compile a kernel a shape. A filler attends to nothing, and nothing of it is read.

    Returns:
        The layout, on the CPU; with `round_up` it may have more `predicts` than there are targets.
    """
    target_mask, group = rows.target_mask.numpy(), rows.group.numpy()
    targets = target_mask.sum(-1)
    prompts = rows.attention_mask.numpy().sum(-1) - targets
    first = np.concatenate([[True], group[1:] != group[:-1]])
    segments = _shared(first, prompts, targets) if shared else _whole(prompts + targets)
    source, positions = _tokens(segments, target_mask.shape[1])
    stacks = list(_stacks(segments))
    fill = _filled if round_up else _as_they_are
    layout = Layout(
        source=torch.from_numpy(fill(source)),
        positions=torch.from_numpy(fill(positions)),
        predicts=torch.from_numpy(fill(_predicts(target_mask, source, first if shared else np.ones_like(first)))),
        where=torch.from_numpy(_where(stacks, len(source), len(fill(source)))),
        blocks=tuple(_block(stack, segments) for stack in stacks),
    )
    return _with_table(layout, segments) if shared else layout


def _whole(lengths: Array) -> _Segments:
    """Rows without their last tokens."""
    count = len(lengths)
    nothing = np.zeros(count, np.int64)
    return _Segments(row=np.arange(count), start=nothing, length=np.maximum(lengths - 1, 0), prompt=nothing - 1)


def _shared(first: Array, prompts: Array, targets: Array) -> _Segments:
    """The prompts of the rows that are `first` of their group, then all completions without their last tokens."""
    owner = np.flatnonzero(first)
    nothing = np.zeros(len(owner), np.int64)
    return _Segments(
        row=np.concatenate([owner, np.arange(len(first))]),
        start=np.concatenate([nothing, prompts]),
        length=np.concatenate([prompts[owner], np.maximum(targets - 1, 0)]),
        prompt=np.concatenate([nothing - 1, np.cumsum(first) - 1]),
    )


def _tokens(segments: _Segments, width: int) -> tuple[Array, Array]:
    """[N] where each token stands in the flattened padded rows, and its position, which is its column there."""
    shift = np.repeat(segments.start - segments.offset, segments.length)
    column = np.arange(len(shift)) + shift
    return np.repeat(segments.row, segments.length) * width + column, column


def _predicts(target_mask: Array, source: Array, first: Array) -> Array:
    """[n] the place before each target; before a completion's first token that is in the row that keeps the prompt."""
    width = target_mask.shape[1]
    owner = np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))
    before = np.flatnonzero(target_mask) - 1
    row, column = before // width, before % width
    row = np.where(target_mask[row, column], row, owner[row])
    place = np.zeros(target_mask.size, np.int64)
    place[source] = np.arange(len(source))
    found: Array = place[row * width + column]
    return found


def _stacks(segments: _Segments) -> Iterator[_Stack]:
    """Segments that are not empty in blocks of about one length: prompts apart from what follows them."""
    for follows in (False, True):
        ids = np.flatnonzero((segments.length > 0) & ((segments.prompt >= 0) == follows))
        ids = ids[np.argsort(-segments.length[ids], kind="stable")]
        while len(ids):
            count = _count(segments, ids)
            yield _stack(segments, ids[:count])
            ids = ids[count:]


def _count(segments: _Segments, ids: Array) -> int:
    """How many of the segments, the longest first, make the next block."""
    lengths = segments.length[ids]
    count = int((lengths >= SHRINK * lengths[0]).sum())
    count = max(count, min(MIN_ROWS, len(ids)))
    before = segments.length[segments.prompt[ids[:count]]]
    if segments.prompt[ids[0]] < 0 or (before == before[0]).all():
        return count
    return min(count, max(1, MASK_ELEMENTS // int(lengths[0] * (lengths[0] + before.max()))))


def _stack(segments: _Segments, ids: Array) -> _Stack:
    alive = np.arange(segments.length[ids].max()) < segments.length[ids, None]
    return _Stack(ids=ids, places=_places(segments, ids, alive), alive=alive)


def _places(segments: _Segments, ids: Array, alive: Array) -> Array:
    """[R, L] place of each token of some segments; 0 where there is none."""
    return np.where(alive, segments.offset[ids, None] + np.arange(alive.shape[1]), 0)


def _where(stacks: list[_Stack], size: int, filled: int) -> Array:
    end, slots = 0, np.zeros(filled, np.int64)
    for stack in stacks:
        slots[stack.places[stack.alive]] = end + np.flatnonzero(stack.alive)
        end += stack.alive.size
    slots[size:] = end
    return slots


def _block(stack: _Stack, segments: _Segments) -> Block:
    ended = None if stack.alive.all() else torch.from_numpy(~stack.alive)[:, :, None, None]
    block = Block(places=torch.from_numpy(stack.places), ended=ended)
    prompt = segments.prompt[stack.ids]
    if prompt[0] < 0:
        return block
    lengths = segments.length[prompt]
    alive = np.arange(lengths.max()) < lengths[:, None]
    keys = np.concatenate([_places(segments, prompt, alive), stack.places], 1)
    different = lengths if (lengths != lengths[0]).any() else lengths[:1]
    return replace(
        block,
        prompt=torch.from_numpy(prompt),
        prompt_lengths=torch.from_numpy(different),
        keys=torch.from_numpy(keys),
        keeps_mask=len(different) * stack.alive.shape[1] * keys.shape[1] <= MASK_ELEMENTS,
    )


def _with_table(layout: Layout, segments: _Segments) -> Layout:
    """Say where the prompts' tokens stand in a table of a row a prompt."""
    lengths = segments.length[segments.prompt < 0]
    alive = np.arange(lengths.max()) < lengths[:, None]
    return replace(layout, prompt_slots=torch.from_numpy(np.flatnonzero(alive)), prompt_table=alive.shape)


def _as_they_are(values: Array) -> Array:
    return values


def _filled(values: Array) -> Array:
    """With zeros at its end, to a length of which there are at most 32 an octave."""
    step = max(32, 1 << max(len(values).bit_length() - 6, 0))
    return np.pad(values, (0, -len(values) % step))
