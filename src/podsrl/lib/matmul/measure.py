"""Time both libraries, in turns, on a few shapes of decoding and of updates; this takes tens of milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from podsrl.lib.matmul.onednn import onednn, outer
from podsrl.lib.matmul.rule import Timing, Use

SHAPES: dict[Use, tuple[tuple[int, int, int], ...]] = {
    "few_rows": ((16, 256, 256), (16, 256, 704), (16, 896, 896)),
    "many_rows": ((256, 64, 64), (512, 64, 64), (512, 64, 160), (128, 256, 704)),
    "update": ((256, 64, 64), (512, 64, 64), (512, 64, 160), (256, 128, 256)),
}
"""Rows, in, out."""
_ROUNDS = 7
"""Each product is timed once per round, so that a busy moment of the machine affects all of them."""

Product = Callable[[], object]


def measure() -> list[Timing]:
    """Time every shape with torch's current number of threads. Draws no random number."""
    shapes = [(use, shape) for use, shapes in SHAPES.items() for shape in shapes]
    with torch.inference_mode():
        products = [_products(use, *shape) for use, shape in shapes]
        seconds = iter(_shortest([product for both in products for library in both for product in library]))
    timings = []
    for (use, (rows, num_in, num_out)), both in zip(shapes, products, strict=True):
        mkl, other = (sum(next(seconds) for _ in library) for library in both)
        timings.append(Timing(use=use, work=rows * num_in * num_out, mkl_seconds=mkl, onednn_seconds=other))
    return timings


def _products(use: Use, rows: int, num_in: int, num_out: int) -> tuple[list[Product], list[Product]]:
    """The products of a linear layer with MKL and with oneDNN: forward, and in an update also both gradients."""
    x, weight, above = (
        torch.full(shape, 0.5, dtype=torch.float32, device="cpu")
        for shape in ((rows, num_in), (num_out, num_in), (rows, num_out))
    )
    mkl: list[Product] = [lambda: F.linear(x, weight), lambda: above @ weight, lambda: above.t() @ x]
    other: list[Product] = [lambda: onednn(x, weight), lambda: onednn(above, weight.t()), lambda: outer(above, x)]
    num = 3 if use == "update" else 1
    return mkl[:num], other[:num]


def _shortest(products: list[Product]) -> list[float]:
    """The shortest seconds of each: other programs can only make a call slower."""
    for product in products:
        product()  # compiles its kernel
    rounds = [[_seconds(product) for product in products] for _ in range(_ROUNDS)]
    return [min(found) for found in zip(*rounds, strict=True)]


def _seconds(product: Product) -> float:
    start = time.perf_counter()
    product()
    return time.perf_counter() - start
