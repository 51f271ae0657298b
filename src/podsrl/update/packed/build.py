"""Compute the `Layout` of a micro-batch's rows, in numpy, which is faster than torch at these sizes.

B rows, T their width, S segments, P prompts; the other letters are those of `layout.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from podsrl.update.batch import Batch
from podsrl.update.packed.layout import Array, Block, Layout, Spans

SHRINK = 0.7
"""A block ends where segments are shorter than this share of its longest …"""
MIN_ROWS = 8
"""… but has at least so many, because a call costs some microseconds whatever its size."""
MASK_ELEMENTS = 1 << 20
"""A larger mask is made again in each layer instead of kept, and a block is cut where its rows need one each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segments:
    """Stretches of padded rows that will lie one behind the other; each field is [S]."""

    row: Array
    start: Array
    """First column."""
    length: Array
    prompt: Array
    """Which of the first segments comes before; -1: none."""

    @property
    def follows_prompt(self) -> Array:
        follows: Array = self.prompt >= 0
        return follows

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
            libraries that compile one kernel per shape. A filler attends to nothing, and nothing of it is read.

    Returns:
        The layout, on the CPU; with `round_up` it may have more `predicts` than there are targets.
    """
    target_mask, completion_mask, group = rows.target_mask.numpy(), rows.completion_mask.numpy(), rows.group.numpy()
    completions = completion_mask.sum(-1)
    prompts = rows.attention_mask.numpy().sum(-1) - completions
    if shared:
        first = np.concatenate([[True], group[1:] != group[:-1]])
        segments = _shared(first, prompts, completions)
        prompt_rows = np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))
    else:
        segments = _whole(prompts + completions)
        prompt_rows = np.arange(len(prompts))
    source, positions = _tokens(segments, target_mask.shape[1])
    stacks = list(_stacks(segments))
    fill: Callable[[Array], Array] = _filled if round_up else np.asarray
    layout = Layout(
        source=torch.from_numpy(fill(source)),
        positions=torch.from_numpy(fill(positions)),
        predicts=torch.from_numpy(fill(_predicts(target_mask, completion_mask, source, prompt_rows))),
        where=torch.from_numpy(_where(stacks, len(source), len(fill(source)))),
        blocks=tuple(_block(stack, segments) for stack in stacks),
        spans=None if round_up else _spans(segments),
    )
    return _with_table(layout, segments) if shared else layout


def _whole(lengths: Array) -> _Segments:
    """Rows without their last tokens."""
    nothing = np.zeros(len(lengths), np.int64)
    rows = np.arange(len(lengths))
    return _Segments(row=rows, start=nothing, length=np.maximum(lengths - 1, 0), prompt=nothing - 1)


def _shared(first: Array, prompts: Array, completions: Array) -> _Segments:
    """The prompts of the rows that are `first` of their group, then all completions without their last tokens."""
    owner = np.flatnonzero(first)
    nothing = np.zeros(len(owner), np.int64)
    return _Segments(
        row=np.concatenate([owner, np.arange(len(first))]),
        start=np.concatenate([nothing, prompts]),
        length=np.concatenate([prompts[owner], np.maximum(completions - 1, 0)]),
        prompt=np.concatenate([nothing - 1, np.cumsum(first) - 1]),
    )


def _tokens(segments: _Segments, width: int) -> tuple[Array, Array]:
    """[N] where each token stands in the flattened padded rows, and its position, which is its column there."""
    shift = np.repeat(segments.start - segments.offset, segments.length)
    column = np.arange(len(shift)) + shift
    return np.repeat(segments.row, segments.length) * width + column, column


def _predicts(target_mask: Array, completion_mask: Array, source: Array, prompt_rows: Array) -> Array:
    """[n] the place of the token before each target, which predicts it.

    Before a completion's first token stands the prompt's last one, in the row of `prompt_rows` [B].

    Example: the rows (5, 6, 7, 8) and (5, 6, 9, 2) with the prompt (5, 6), shared. The layout is 5 6 7 9, so source is
    0 1 2 6 and prompt_rows is 0 0. The targets 7 8 9 2 stand after 6, 7, 6 and 9: predicts is 1 2 1 3.
    """
    width = target_mask.shape[1]
    before = np.flatnonzero(target_mask) - 1
    row, column = before // width, before % width
    is_in_prompt = ~completion_mask[row, column]
    row = np.where(is_in_prompt, prompt_rows[row], row)
    place_of = np.zeros(target_mask.size, np.int64)  # of each token of the padded rows
    place_of[source] = np.arange(len(source))
    places: Array = place_of[row * width + column]
    return places


def _stacks(segments: _Segments) -> Iterator[_Stack]:
    """Segments that are not empty, in blocks of about one length: those that follow a shared prompt come last."""
    for follows_prompt in (False, True):
        ids = np.flatnonzero((segments.length > 0) & (segments.follows_prompt == follows_prompt))
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
    if not segments.follows_prompt[ids[0]] or (before == before[0]).all():
        return count
    return min(count, max(1, MASK_ELEMENTS // int(lengths[0] * (lengths[0] + before.max()))))


def _stack(segments: _Segments, ids: Array) -> _Stack:
    alive = np.arange(segments.length[ids].max()) < segments.length[ids, None]
    return _Stack(ids=ids, places=_places(segments, ids, alive), alive=alive)


def _places(segments: _Segments, ids: Array, alive: Array) -> Array:
    """[R, L] place of each token of some segments; 0 where there is none."""
    return np.where(alive, segments.offset[ids, None] + np.arange(alive.shape[1]), 0)


def _where(stacks: list[_Stack], num_tokens: int, num_places: int) -> Array:
    """[num_places] where each place stands in all blocks, flattened, one behind the other; fillers after the last.

    Example: a block of the segments 0 1 2 and 3 4 has the cells 0 1 2 / 3 4 5, of which cell 5 is padding; a block of
    the segment 5 has cell 6. With one filler, num_tokens = 6 and num_places = 7: the result is 0 1 2 3 4 6 7.
    """
    start, cells = 0, np.zeros(num_places, np.int64)
    for stack in stacks:
        cells[stack.places[stack.alive]] = start + np.flatnonzero(stack.alive)
        start += stack.alive.size
    cells[num_tokens:] = start
    return cells


def _block(stack: _Stack, segments: _Segments) -> Block:
    ended = None if stack.alive.all() else torch.from_numpy(~stack.alive)[:, :, None, None]
    block = Block(places=torch.from_numpy(stack.places), ended=ended)
    if not segments.follows_prompt[stack.ids[0]]:
        return block
    prompt = segments.prompt[stack.ids]
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


def _spans(segments: _Segments) -> Spans | None:
    follows = segments.follows_prompt
    prompts = segments.length[~follows] if follows.any() else segments.length[:0]
    rest = slice(len(prompts), None)
    return Spans.of(prompts, segments.length[rest], segments.prompt[rest])


def _with_table(layout: Layout, segments: _Segments) -> Layout:
    """Say where the prompts' tokens stand in a table of one row per prompt."""
    lengths = segments.length[~segments.follows_prompt]
    alive = np.arange(lengths.max()) < lengths[:, None]
    return replace(layout, prompt_cells=torch.from_numpy(np.flatnonzero(alive)), prompt_table=alive.shape)


def _filled(values: Array) -> Array:
    """With zeros at its end, to one of at most 32 lengths between two powers of 2."""
    step = max(32, 1 << max(len(values).bit_length() - 6, 0))
    return np.pad(values, (0, -len(values) % step))
