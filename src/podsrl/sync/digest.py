"""A short digest of weights: the same weights give the same digest in every process and on every device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor

NUM_SAMPLES = 64
"""Elements that are sampled per tensor; of a tensor with at most four times as many, all."""
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 / golden ratio: its multiples spread evenly over any length, whatever the tensor's shape."""


def weights_digest(named_tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Digest weights by a fixed sample of every tensor's elements.

    A step of any optimizer changes nearly every element of what it trains, so a sample of 64 per tensor tells weights
    before it from those after it, or merged matrices from unmerged ones. It is no checksum: one altered element may go
    unseen.

    Args:
        named_tensors: whole tensors with their names, in any order; each may be let go before the next is made.

    Returns:
        16 hexadecimal digits, of names, shapes and sampled values.

    Example:
        >>> weights_digest([("a", torch.zeros(2)), ("b", torch.ones(3))])
        'bdaf4db4072c6544'
        >>> weights_digest([("b", torch.ones(3)), ("a", torch.zeros(2))])
        'bdaf4db4072c6544'
    """
    return Samples(named_tensors).digest()


class Samples:
    """Sampled elements of tensors that need not exist any more.

    Args:
        named_tensors: looked at at once; more come by `add`.
    """

    def __init__(self, named_tensors: Iterable[tuple[str, Tensor]] = ()) -> None:
        self._found: dict[str, tuple[tuple[int, ...], Tensor]] = {}
        for name, tensor in named_tensors:
            self.add(name, tensor)

    def add(self, name: str, tensor: Tensor, dtype: torch.dtype | None = None) -> None:
        """Sample one tensor, converted to `dtype` if that is given."""
        taken = torch.take(tensor.detach(), _places(tensor.numel(), tensor.device))
        self._found[name] = (tuple(tensor.shape), taken if dtype is None else taken.to(dtype))

    def digest(self) -> str:
        """See `weights_digest`."""
        names = sorted(self._found)
        shapes = [(name, self._found[name][0]) for name in names]
        result = hashlib.blake2b(repr(shapes).encode(), digest_size=8)
        if names:
            values = [self._found[name][1] for name in names]
            if len({each.dtype for each in values}) > 1:  # which `torch.cat` would bring to one by rounding
                values = [each.to(torch.float64) for each in values]
            whole = torch.cat(values).cpu()  # one transfer from the device
            result.update(whole.to(torch.float64).numpy().tobytes())
        return result.hexdigest()

    def differing(self, other: Samples) -> list[str]:
        """Names that are missing in one of the two, or whose samples differ in any bit."""
        names = sorted(set(self._found) | set(other._found))
        return [name for name in names if not _same(self._found.get(name), other._found.get(name))]


def _same(one: tuple[tuple[int, ...], Tensor] | None, other: tuple[tuple[int, ...], Tensor] | None) -> bool:
    if one is None or other is None or one[0] != other[0]:
        return False
    bits, other_bits = (values.cpu().to(torch.float64).view(torch.int64) for values in (one[1], other[1]))
    return torch.equal(bits, other_bits)


@lru_cache(maxsize=1024)
def _places(count: int, device: torch.device) -> Tensor:
    """[NUM_SAMPLES or `count`] int64, distinct: which elements of a tensor of `count` are sampled."""
    if count <= 4 * NUM_SAMPLES:  # from three times on, no two of the golden places are alike
        return torch.arange(count, device=device)
    return torch.tensor([((i + 1) * _GOLDEN % 2**64) * count >> 64 for i in range(NUM_SAMPLES)], device=device)
