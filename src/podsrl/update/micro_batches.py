"""Cut a batch into micro-batches by a token budget. The cut changes memory and time, never the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.update.batch import Batch

Rows = Literal["padded", "packed", "shared"]


def micro_batches(batch: Batch, max_tokens: int, layout: Rows = "padded") -> list[Batch]:
    """Cut a batch into pieces of at most `max_tokens` tokens (a longer row goes alone), each forwarded at once.

    The longest rows come first: this needs the least padding, and what does not fit in memory fails at once. With
    shared prompts, groups are ordered by their longest row. Only a group that is larger than a whole piece is cut; its
    prompt is then forwarded once per piece. Each piece leaves out the columns that it does not need.

    What counts as a token depends on the layout. padded: rows × longest row. packed: all but a row's last token, which
    predicts nothing. shared: likewise, with a group's prompt counted once per piece.

    Example: rows of 5, 2 and 3 tokens with max_tokens = 6 become [5] and [3, 2].
    """
    return [batch.rows(rows) for rows in cuts(batch, max_tokens, layout)]


def cuts(batch: Batch, max_tokens: int, layout: Rows = "padded") -> list[Tensor]:
    """The rows [K] int64 of each piece that `micro_batches` makes."""
    if max_tokens < 1:
        raise UsageError(f"micro_batch_tokens = {max_tokens}; want at least 1")
    return list(_CUTS[layout](batch, max_tokens)) if batch.num_sequences else []


def num_forwarded(batch: Batch, *, shared: bool) -> int:
    """Tokens of a batch's rows without padding and without their last tokens, each group's prompt once if `shared`."""
    prompts, own = _lengths(batch)
    if shared:
        prompts = prompts[_first(batch)]
    return int(prompts.sum() + own.sum())


def _lengths(batch: Batch) -> tuple[Tensor, Tensor]:
    """[B] tokens of each prompt, and of each completion but its last, on the CPU."""
    completions = batch.completion_mask.sum(-1).cpu()
    return batch.attention_mask.sum(-1).cpu() - completions, (completions - 1).clamp(min=0)


def _first(batch: Batch) -> Tensor:
    """[B] bool: the first row of a group."""
    group = batch.group.cpu()
    return torch.cat([group.new_ones(1), group.diff()]) != 0


def _padded(batch: Batch, max_tokens: int) -> Iterator[Tensor]:
    lengths = batch.attention_mask.sum(-1).cpu()
    order = lengths.argsort(descending=True, stable=True)
    longest_first, start = lengths[order].tolist(), 0
    while start < len(longest_first):
        count = max(1, max_tokens // max(1, longest_first[start]))
        yield order[start : start + count]
        start += count


def _packed(batch: Batch, max_tokens: int) -> Iterator[Tensor]:
    prompts, own = _lengths(batch)
    order = (prompts + own).argsort(descending=True, stable=True)
    while len(order):
        count = _fitting((prompts + own)[order], max_tokens)
        yield order[:count]
        order = order[count:]


def _shared(batch: Batch, max_tokens: int) -> Iterator[Tensor]:
    """Pieces that are filled with whole groups; only a group that is larger than a piece is cut.

    Example: max_tokens = 10, and two groups:

        A: a prompt of 2 tokens, rows of 7, 3 and 1 own tokens      2 + 11 = 13 in all
        B: a prompt of 3 tokens, rows of 4 and 2 own tokens         3 + 6 = 9 in all

    A has the longest row, so it comes first. It is larger than a piece: its prompt and the row of 7 make the first
    piece, 9 tokens. Its prompt again and the rows of 3 and 1 make the second, 6 tokens. B does not fit into the 4 that
    are left, so it makes the third.
    """
    prompts, own = _lengths(batch)
    piece: list[Tensor] = []
    room = max_tokens
    for remaining in _groups(batch, prompts + own):
        prompt = int(prompts[remaining[0]])
        while len(remaining):
            if piece and prompt + int(own[remaining].sum()) > room:
                yield torch.cat(piece)
                piece, room = [], max_tokens
            count = _fitting(own[remaining], room - prompt)
            taken, remaining = remaining[:count], remaining[count:]
            piece.append(taken)
            room -= prompt + int(own[taken].sum())
    yield torch.cat(piece)


def _groups(batch: Batch, lengths: Tensor) -> list[Tensor]:
    """The rows of each group, longest first; the groups by their longest row."""
    starts = _first(batch).nonzero().squeeze(-1).tolist()
    edges = pairwise([*starts, batch.num_sequences])
    groups = [start + lengths[start:stop].argsort(descending=True, stable=True) for start, stop in edges]
    return sorted(groups, key=lambda rows: -int(lengths[rows[0]]))


def _fitting(tokens: Tensor, budget: int) -> int:
    """How many of the first rows fit; at least one."""
    return max(1, int((tokens.cumsum(0) <= budget).sum()))


_CUTS: dict[Rows, Callable[[Batch, int], Iterator[Tensor]]] = {"padded": _padded, "packed": _packed, "shared": _shared}
"""Which rows go into each piece."""
