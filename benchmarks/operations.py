"""What torch computes: every operation with its CPU seconds, and every matrix product with its shape."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from podsrl.lib.matmul import is_available, onednn

Part = Literal["generate", "update"]
Kind = Literal["products", "attention", "sampling", "optimizer", "moves", "elementwise"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "linear", "_linear_pointwise"), "products"),
    **dict.fromkeys(("log_softmax", "cumsum", "searchsorted"), "sampling"),
    **dict.fromkeys(("_fused_adamw_", "_foreach_norm", "_foreach_mul_"), "optimizer"),
    **dict.fromkeys(("embedding", "embedding_dense_backward", "gather", "masked_scatter_"), "moves"),
    **dict.fromkeys(("cat", "index", "index_select", "index_copy_", "index_add_", "index_put"), "moves"),
    **dict.fromkeys(("clone", "copy_", "_to_copy", "take", "scatter_add_", "roll"), "moves"),
}
_ATTENTION = ("scaled_dot_product", "_scaled_dot_product", "softmax", "_softmax")
_PRODUCTS_OF_ATTENTION = {"": 2, "_backward": 5}
"""Scores and sums of values; the backward pass makes the scores again, and four gradients."""


@dataclass(frozen=True, slots=True)
class Product:
    """[batch, rows, inner] times [batch, inner, columns]."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.rows * self.inner * self.columns


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Within it every operation of this thread is timed, in CPU seconds, those of a backward pass too.

    What no other kind names is "elementwise": norms, activations, and views, which compute nothing. An operation is
    somewhat slower when it is timed. Operations under `torch.inference_mode` count as the part "generate", all others
    as "update".

    Example:
        >>> with Operations() as found:
        ...     _ = torch.ones(2, 3) @ torch.ones(3, 5)
        >>> found.products
        Counter({('update', Product(batch=1, rows=2, inner=3, columns=5)): 1})
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.seconds: Counter[tuple[Part, Kind]] = Counter()
        self.products: Counter[tuple[Part, Product]] = Counter()
        self.num_calls: Counter[Part] = Counter()

    def share(self, kind: Kind) -> float:
        """Of the seconds of all operations, 0 .. 1."""
        return sum(seconds for (_, each), seconds in self.seconds.items() if each == kind) / sum(self.seconds.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        part: Part = "generate" if torch.is_inference_mode_enabled() else "update"
        start = time.process_time()
        result = func(*args, **(kwargs or {}))
        taken = time.process_time() - start
        name = func.overloadpacket.__name__
        self.num_calls[part] += 1
        self.seconds[part, _kind(name)] += taken  # type: ignore[assignment]  # seconds are no counts
        for product, count in _products(name, args).items():
            self.products[part, product] += count
        return result


def _kind(name: str) -> Kind:
    if name.startswith(_ATTENTION):
        return "attention"
    return _KINDS.get(name, "elementwise")


def _products(name: str, args: Any) -> Mapping[Product, int]:
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        left, right = args[-2:] if name in ("mm", "bmm") else args[1:3]
        batch = len(left) if left.ndim == 3 else 1
        rows, inner = left.shape[-2:]
        return {Product(batch, rows, inner, right.shape[-1]): 1}
    if name in ("linear", "_linear_pointwise"):
        num_out, num_in = args[1].shape
        return {Product(1, args[0].numel() // num_in, num_in, num_out): 1}
    if "scaled_dot_product" in name:
        is_backward = name.endswith("_backward")
        query, key = args[1:3] if is_backward else args[:2]
        batch, heads, rows, size = query.shape
        count = _PRODUCTS_OF_ATTENTION["_backward" if is_backward else ""]
        return {Product(batch * heads, rows, size, key.shape[2]): count}
    return {}


class Floor:
    """CPU seconds of products alone, each shape measured once."""

    def __init__(self) -> None:
        self._seconds: dict[Product, float] = {}

    def seconds(self, products: Mapping[Product, int]) -> float:
        """Of all products together."""
        return sum(count * self._of(product) for product, count in products.items())

    def _of(self, product: Product) -> float:
        if product not in self._seconds:
            self._seconds[product] = fastest(product)
        return self._seconds[product]


def fastest(product: Product) -> float:
    """CPU seconds of a product by the faster library: the median of several calls."""
    with torch.inference_mode():
        left = torch.full((product.batch, product.rows, product.inner), 0.5)
        right = torch.full((product.batch, product.inner, product.columns), 0.5)
        if product.batch > 1:
            return _median(torch.bmm, left, right)
        flat, weight = left[0], right[0].t().contiguous()
        by_mkl = _median(torch.mm, flat, weight.t())
        return min(by_mkl, _median(onednn, flat, weight)) if is_available() else by_mkl


def peak_rate() -> float:
    """Operations per second of a product of 1,024 by 1,024 numbers, by the faster library."""
    product = Product(1, 1024, 1024, 1024)
    return product.operations / fastest(product)


def _median(function: Any, left: Tensor, right: Tensor, calls: int = 5) -> float:
    function(left, right)  # compiles its kernel
    found = []
    for _ in range(calls):
        start = time.process_time()
        function(left, right)
        found.append(time.process_time() - start)
    return statistics.median(found)
