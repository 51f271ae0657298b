"""KVPool against plain indexing, with numbers that say where they come from."""

from __future__ import annotations

import pytest
import torch

from podsrl.errors import UsageError
from podsrl.generate.engine.kv_pool import KVPool, Layout

CPU = torch.device("cpu")
EQUAL = Layout(keys=((2, 4), (2, 4)), values=((2, 4), (2, 4)), dtype=torch.float32, device=CPU)
UNEQUAL = Layout(keys=((1, 6), (2, 4)), values=((1, 4), (2, 4)), dtype=torch.float64, device=CPU)
"""Keys wider than values in its first layer, another shape in its second."""


def filled(layout: Layout, rows: int, capacity: int) -> KVPool:
    """Every number of the pool differs from every other."""
    pool = KVPool(layout)
    pool.reserve(rows, capacity)
    start = 0
    for tensor in (*pool.keys, *pool.values):
        tensor.copy_(torch.arange(start, start + tensor.numel()).view(tensor.shape))
        start += tensor.numel()
    return pool


def contents(pool: KVPool) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in (*pool.keys, *pool.values)]


@pytest.mark.parametrize("layout", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_growing_keeps_what_was_there_and_zeroes_the_rest(layout: Layout) -> None:
    pool = filled(layout, 3, 16)
    before = contents(pool)
    pool.reserve(4, 17)
    assert pool.rows >= 4 and pool.capacity >= 17
    for old, new in zip(before, contents(pool), strict=True):
        assert torch.equal(new[:3, :, :16], old)
        assert new.sum() == old.sum()


def test_rows_that_grow_one_by_one_seldom_need_new_memory() -> None:
    pool = KVPool(EQUAL)
    sizes = set()
    for n in range(1, 129):
        pool.reserve(n, n)
        assert pool.rows >= n and pool.capacity >= n
        sizes.add((pool.rows, pool.capacity))
    assert len(sizes) < 24 and pool.rows < 256 and pool.capacity <= 256


def test_growth_takes_no_more_than_will_ever_be_needed() -> None:
    pool = KVPool(EQUAL, max_rows=10, max_capacity=20)
    for rows, capacity in ((9, 15), (10, 17), (10, 20)):
        pool.reserve(rows, capacity)
        assert rows <= pool.rows <= 10 and capacity <= pool.capacity <= 20


def test_growth_stays_under_the_bound_of_tokens() -> None:
    pool = KVPool(EQUAL, max_tokens=200)
    for rows, capacity in ((6, 16), (7, 17), (10, 17), (10, 20)):
        pool.reserve(rows, capacity)
        assert pool.rows >= rows and pool.capacity >= capacity and pool.rows * pool.capacity <= 200
    with pytest.raises(UsageError, match=r"11 rows of 20 tokens do not fit in key-value memory of 200 tokens"):
        pool.reserve(11, 20)


@pytest.mark.parametrize("layout", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_copied_rows_equal_their_source_up_to_the_length_and_nothing_else_changes(layout: Layout) -> None:
    pool = filled(layout, 6, 16)
    expected = contents(pool)
    for tensor in expected:
        for source, target in ((1, 0), (1, 4), (1, 3), (5, 2)):
            for position in range(7):
                tensor[target, :, position] = tensor[source, :, position]
    pool.copy_rows(torch.tensor([1, 1, 1, 5]), torch.tensor([0, 4, 3, 2]), 7)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(contents(pool), expected, strict=True))


@pytest.mark.parametrize("layout", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_swapped_rows_change_places_up_to_the_length_and_nothing_else_changes(layout: Layout) -> None:
    pool = filled(layout, 6, 16)
    expected = contents(pool)
    for tensor in expected:
        for one, other in ((4, 0), (2, 5)):
            saved = tensor[one, :, :7].clone()
            tensor[one, :, :7] = tensor[other, :, :7]
            tensor[other, :, :7] = saved
    pool.swap_rows(torch.tensor([4, 2]), torch.tensor([0, 5]), 7)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(contents(pool), expected, strict=True))


def test_a_cleared_row_holds_zeros_and_its_neighbours_stay() -> None:
    pool = filled(EQUAL, 3, 16)
    before = contents(pool)
    pool.keys[1][1, 0, 3] = float("nan")
    pool.clear_rows(torch.tensor([1]))
    for old, new in zip(before, contents(pool), strict=True):
        assert torch.equal(new[1], torch.zeros_like(new[1]))
        assert torch.equal(new[[0, 2]], old[[0, 2]])
