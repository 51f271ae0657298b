"""Where the tokens of a micro-batch lie in one row without padding, and which of them attend to which.

The row is made of segments. Without sharing, a segment is a prompt with its completion. With sharing, the prompts come
first, once per group, and then the completions, whose positions continue from their prompt's. The last token of a
completion predicts nothing, so it is left out; the first one is predicted by the prompt's last.

Only attention needs segments side by side: in blocks, padded to their longest.

N places in the row; R segments of a block, L its length, C columns of the prompts before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Segments of about the same length; attention is causal within each."""

    places: Tensor
    """[R, L] int64: place in the row of each token; 0 where a segment has ended."""
    ended: Tensor | None
    """[R, L, 1, 1] bool: where it has; None where all have one length."""
    prompt: Tensor | None = None
    """[R] int64: which prompt comes before; None where segments begin with their own."""
    prompt_lengths: Tensor | None = None
    """[R] int64; [1] where all are the same."""
    keys: Tensor | None = None
    """[R, C + L] int64: places of the prompt, then of the segment."""
    keeps_mask: bool = False
    """Whether `mask` is small enough to be kept for all layers."""
    kept_mask: Tensor | None = None
    """The mask, once `Layout.with_masks` has made it."""

    def mask(self, dtype: torch.dtype) -> Tensor | None:
        """[R or 1, 1, L, C + L]: 0 where a place of the segment sees a key, else -inf; None: plainly causal."""
        if self.keys is None or self.prompt_lengths is None:
            return None
        if self.kept_mask is not None:
            return self.kept_mask.to(dtype)
        length, device = self.places.shape[1], self.places.device
        columns = self.keys.shape[1] - length
        prompt = torch.arange(columns, device=device) < self.prompt_lengths[:, None]  # [R, C]
        own = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        sizes = len(prompt), 1, length
        seen = torch.cat([prompt[:, None, None].expand(*sizes, columns), own.expand(*sizes, length)], -1)
        return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The segments as the ranges that kernels for sequences of different lengths want; none is empty."""

    own: Tensor
    """[S + 1] int32: where each segment begins, and where the last one ends."""
    longest: int
    prompts: Tensor | None = None
    """[P + 1] int32: where each shared prompt begins and ends; None where segments begin with their own."""
    groups: Tensor | None = None
    """[P + 1] int32: where the completions of each begin and end, counted from the first completion."""
    longest_prompt: int = 0
    longest_group: int = 0
    num_shared: int = 0
    """Tokens of all shared prompts."""

    @classmethod
    def of(cls, prompts: Array, lengths: Array, owner: Array) -> Spans | None:
        """From the lengths of shared prompts [P], perhaps none, of completions or whole rows, and the prompt of each.

        None: there is no token, or a prompt has no completion with one.
        """
        groups = np.bincount(owner, lengths, len(prompts)).astype(np.int64) if len(prompts) else prompts
        own = np.concatenate([prompts, lengths[lengths > 0]])
        if not len(own) or (groups == 0).any():
            return None
        if not len(prompts):
            return cls(own=_ends(own), longest=int(own.max()))
        return cls(
            own=_ends(own),
            longest=int(own.max()),
            prompts=_ends(prompts),
            groups=_ends(groups),
            longest_prompt=int(prompts.max()),
            longest_group=int(groups.max()),
            num_shared=int(prompts.sum()),
        )


def _ends(lengths: Array) -> Tensor:
    return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One row, for the model and for its attention.

    Example: the prompt (5, 6) with the completions (7, 8) and (9, 2, 3), shared; its 6 predicts both 7 and 9:

        token        5  6  7  9  2
        position     0  1  2  2  3
        predicts        7  8  2  3
                        9
    """

    source: Tensor
    """[N] int64: where each token stands in the flattened padded rows [B * T]."""
    positions: Tensor
    """[N] int64."""
    predicts: Tensor
    """[n] int64: place that predicts each target, in the order of the padded rows."""
    where: Tensor
    """[N] int64: where each place stands in all blocks, flattened, one behind the other; fillers: after the last."""
    blocks: tuple[Block, ...]
    spans: Spans | None = None
    """None where no kernel takes them."""
    prompt_cells: Tensor | None = None
    """[tokens of all prompts] int64: where the first places, which are theirs, stand in a table [P, longest prompt]."""
    prompt_table: tuple[int, int] = (0, 0)
    """P and the longest prompt."""

    def with_masks(self, dtype: torch.dtype) -> Layout:
        """With the masks that are kept, in the type of a model's states."""
        blocks = (replace(block, kept_mask=block.mask(dtype)) if block.keeps_mask else block for block in self.blocks)
        return replace(self, blocks=tuple(blocks))
