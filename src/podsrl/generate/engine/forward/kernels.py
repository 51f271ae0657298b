"""Triton kernels of a decode step on a GPU: what lies between its matrix products, one launch each.

    add_norm    the residual sum and its norm
    turn        queries and keys take their positions; keys and values go to the pool
    attend      each row's query over its own keys and values
    gate        silu(gate) * up

They read the pool by the three numbers of `Place`, from the device's memory, so that a CUDA graph of them stays right
when the pool moves. A row computes the same whatever the other rows are. A row whose position is below 0 is nobody's:
it writes nothing into the pool, and attends to nothing.

Sources: root mean square norm, Zhang & Sennrich 2019; rotary positions, Su et al. 2021 (RoFormer); softmax in one pass
over tiles, Milakov & Gimelshein 2018; SwiGLU, Shazeer 2020.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 64
"""Positions whose keys are read at once."""


def add_norm(x: Tensor, change: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `change` [R, D] to x [R, D] in place, and return the root mean square norm of the sum, [R, D]."""
    out = torch.empty_like(x)
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    _add_norm[(rows,)](
        x, x if change is None else change, weight, out, width, eps, HAS_CHANGE=change is not None, BLOCK=block
    )
    return out


def turn(
    joined: Tensor,
    angles: Tensor,
    positions: Tensor,
    place: Tensor,
    layer: int,
    heads: tuple[int, int],
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
) -> Tensor:
    """The turned queries, [R, query heads, head_dim]; keys and values are written at their positions.

    Args:
        joined: [R, (query heads + 2 * kv heads) * head_dim], queries before keys before values.
        angles: [positions, head_dim], the cosines of a position before its sines.
        positions: [R] int64.
        place: see `Place`.
        layer: whose keys and values they are.
        heads: the query heads and the kv heads.
        norms: weights [head_dim] of the norms of queries and keys, where the model has them.
        eps: of these norms.
    """
    num_queries, num_keys = heads
    head_dim = angles.shape[1]
    out = torch.empty(len(joined), num_queries, head_dim, dtype=joined.dtype, device=joined.device)
    query_norm, key_norm = norms or (joined, joined)
    _turn[(len(joined),)](
        joined,
        out,
        angles,
        positions,
        place,
        layer,
        query_norm,
        key_norm,
        eps,
        QUERIES=num_queries,
        KEYS=num_keys,
        HALF=head_dim // 2,
        HEADS=triton.next_power_of_2(num_queries + 2 * num_keys),
        HAS_NORMS=norms is not None,
    )
    return out


def attend(queries: Tensor, positions: Tensor, place: Tensor, layer: int, num_keys: int, scaling: float) -> Tensor:
    """Queries [R, query heads, head_dim] over positions 0 .. positions[r] of their rows -> [R, heads * head_dim]."""
    rows, num_queries, head_dim = queries.shape
    out = torch.empty(rows, num_queries * head_dim, dtype=queries.dtype, device=queries.device)
    sharing = num_queries // num_keys
    _attend[(rows, num_keys)](
        queries,
        out,
        positions,
        place,
        layer,
        scaling / math.log(2),
        KEYS=num_keys,
        SHARING=sharing,
        SHARED=max(16, triton.next_power_of_2(sharing)),  # a tensor core's product has at least 16 rows
        DIM=head_dim,
        TILE=_TILE,
        IS_EXACT=queries.dtype == torch.float32,
    )
    return out


def gate(joined: Tensor) -> Tensor:
    """[R, 2 * D], gates before what they let through -> silu(gates) * the others, [R, D]."""
    rows, width = len(joined), joined.shape[1] // 2
    out = torch.empty(rows, width, dtype=joined.dtype, device=joined.device)
    _gate[(rows, triton.cdiv(width, 1024))](joined, out, width, BLOCK=1024)
    return out


@triton.jit
def _add_norm(x, change, weight, out, width, eps, HAS_CHANGE: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    is_inside = column < width
    at = tl.program_id(0).to(tl.int64) * width + column
    total = tl.load(x + at, mask=is_inside, other=0.0)
    kind = total.dtype
    if HAS_CHANGE:
        more = tl.load(change + at, mask=is_inside, other=0.0)
        total = (total.to(tl.float32) + more.to(tl.float32)).to(kind)
        tl.store(x + at, total, mask=is_inside)
    exact = total.to(tl.float32)
    normed = (exact * tl.rsqrt(tl.sum(exact * exact, axis=0) / width + eps)).to(kind)
    scale = tl.load(weight + column, mask=is_inside, other=0.0)
    tl.store(out + at, (normed.to(tl.float32) * scale.to(tl.float32)).to(kind), mask=is_inside)


@triton.jit
def _tensor_of(place, tensor, row, HEADS: tl.constexpr, DIM: tl.constexpr, kind: tl.constexpr):
    """Where row `row` begins in keys (tensor = 2 * layer) or values (the next one), and the elements of a head."""
    address = tl.multiple_of(tl.load(place).to(tl.pointer_type(kind)), 16)
    capacity = tl.load(place + 1)
    num_tokens = tl.load(place + 2)
    return address + (tensor * num_tokens + row * capacity) * (HEADS * DIM), capacity * DIM


@triton.jit(do_not_specialize=["layer"])
def _turn(
    joined,
    out,
    angles,
    positions,
    place,
    layer,
    query_norm,
    key_norm,
    eps,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    HAS_NORMS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dim: tl.constexpr = 2 * HALF
    kind: tl.constexpr = out.dtype.element_ty
    given = tl.load(positions + row)
    position = tl.maximum(given, 0)
    head = tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, HALF)[None, :]
    everywhere = column >= 0
    first_value = QUERIES + KEYS
    is_inside = (head < first_value + KEYS) & everywhere
    source = joined + row * ((first_value + KEYS) * dim) + head * dim + column
    low = tl.load(source, mask=is_inside, other=0.0).to(tl.float32)
    high = tl.load(source + HALF, mask=is_inside, other=0.0).to(tl.float32)
    plain_low, plain_high = low, high
    if HAS_NORMS:
        mean = (tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1))[:, None] / dim
        factor = tl.rsqrt(mean + eps)
        is_query = (head < QUERIES) & everywhere
        scale_low = tl.where(is_query, tl.load(query_norm + column), tl.load(key_norm + column)).to(tl.float32)
        scale_high = tl.where(is_query, tl.load(query_norm + HALF + column), tl.load(key_norm + HALF + column)).to(
            tl.float32
        )
        low = ((low * factor).to(kind).to(tl.float32) * scale_low).to(kind).to(tl.float32)
        high = ((high * factor).to(kind).to(tl.float32) * scale_high).to(kind).to(tl.float32)
    cos = tl.load(angles + position * dim + column).to(tl.float32)
    sin = tl.load(angles + position * dim + HALF + column).to(tl.float32)
    turned_low = (low * cos - high * sin).to(kind)
    turned_high = (high * cos + low * sin).to(kind)
    target = out + row * (QUERIES * dim) + head * dim + column
    is_query = (head < QUERIES) & everywhere
    tl.store(target, turned_low, mask=is_query)
    tl.store(target + HALF, turned_high, mask=is_query)
    last_key = tl.where(given >= 0, first_value, 0)  # nobody's row has neither keys nor values
    last_value = tl.where(given >= 0, first_value + KEYS, 0)
    keys, per_head = _tensor_of(place, 2 * layer, row, KEYS, dim, kind)
    at_key = keys + (head - QUERIES) * per_head + position * dim + column
    is_key = (head >= QUERIES) & (head < last_key) & everywhere
    tl.store(at_key, turned_low, mask=is_key)
    tl.store(at_key + HALF, turned_high, mask=is_key)
    values, per_head = _tensor_of(place, 2 * layer + 1, row, KEYS, dim, kind)
    at_value = values + (head - first_value) * per_head + position * dim + column
    is_value = (head >= first_value) & (head < last_value) & everywhere
    tl.store(at_value, plain_low.to(kind), mask=is_value)
    tl.store(at_value + HALF, plain_high.to(kind), mask=is_value)


@triton.jit(do_not_specialize=["layer"])
def _attend(
    queries,
    out,
    positions,
    place,
    layer,
    scaling,
    KEYS: tl.constexpr,
    SHARING: tl.constexpr,
    SHARED: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    IS_EXACT: tl.constexpr,
):
    """One row and kv head per program; `scaling` is for powers of 2."""
    row = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    kind: tl.constexpr = out.dtype.element_ty
    precision: tl.constexpr = "ieee" if IS_EXACT else "tf32"
    length = tl.load(positions + row) + 1
    member = tl.arange(0, SHARED)[:, None]
    column = tl.arange(0, DIM)[None, :]
    token = tl.arange(0, TILE)[:, None]
    is_member = (member < SHARING) & (column >= 0)
    at = ((row * KEYS + key_head) * SHARING + member) * DIM + column
    query = tl.load(queries + at, mask=is_member, other=0.0)
    keys, per_head = _tensor_of(place, 2 * layer, row, KEYS, DIM, kind)
    values, per_head = _tensor_of(place, 2 * layer + 1, row, KEYS, DIM, kind)
    keys += key_head * per_head
    values += key_head * per_head
    total = tl.zeros([SHARED, DIM], tl.float32)
    largest = tl.full([SHARED], float("-inf"), tl.float32)
    mass = tl.zeros([SHARED], tl.float32)
    for start in range(0, length, TILE):
        is_seen = (start + token < length) & (column >= 0)
        key = tl.load(keys + (start + token) * DIM + column, mask=is_seen, other=0.0)
        value = tl.load(values + (start + token) * DIM + column, mask=is_seen, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision=precision) * scaling
        scores = tl.where((start + tl.arange(0, TILE) < length)[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        fading = tl.exp2(largest - new)
        mass = mass * fading + tl.sum(weights, 1)
        total = total * fading[:, None] + tl.dot(weights.to(kind), value, input_precision=precision)
        largest = new
    result = total / tl.where(mass > 0, mass, 1.0)[:, None]
    tl.store(out + at, result.to(kind), mask=is_member)


@triton.jit
def _gate(joined, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < width
    kind: tl.constexpr = out.dtype.element_ty
    gates = tl.load(joined + row * 2 * width + column, mask=is_inside, other=0.0).to(tl.float32)
    others = tl.load(joined + (row * 2 + 1) * width + column, mask=is_inside, other=0.0).to(tl.float32)
    opened = (gates / (1.0 + tl.exp(-gates))).to(kind).to(tl.float32)
    tl.store(out + row * width + column, (opened * others).to(kind), mask=is_inside)
