"""Lines that move within their memory against lines that are written anew, and rows copied with little or no room."""

from __future__ import annotations

import itertools

import pytest
import torch

from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_moves import relay
from podsrl.generate.engine.kv_pool import KVPool, Layout

LAYOUT = Layout(keys=((2, 4),), values=((2, 4),), dtype=torch.float32, device=torch.device("cpu"))
"""A token takes 16 numbers, or 64 bytes."""


@pytest.mark.parametrize("room", [0, 2 * 4 * 4, 10_000])
def test_lines_move_to_their_new_places_and_keep_what_they_hold(room: int) -> None:
    """All strides up to twelve, with room for nothing, for a line or two, and for all."""
    for num_lines, old, new in itertools.product(range(1, 9), range(1, 13), range(1, 13)):
        store = torch.arange(2 * 8 * 12, dtype=torch.float32).view(2, -1)
        before, account = store.clone(), Account(room)
        relay(store, num_lines, old, new, account)
        for i in range(num_lines):
            kept = before[:, i * old : i * old + min(old, new)]
            assert torch.equal(store[:, i * new : i * new + min(old, new)], kept), (num_lines, old, new, i)
        assert account.held == 0 and account.peak <= room


@pytest.mark.parametrize("spare", [0, 1, 5, 1000])
def test_memory_that_is_held_is_divided_anew_and_no_more_is_taken_than_there_is_room_for(spare: int) -> None:
    account = Account(64 * (120 + spare))
    pool = KVPool(LAYOUT, max_tokens=120, account=account)
    pool.hold(120)
    pool.reserve(3, 16)
    expected = [torch.randn_like(tensor) for tensor in (*pool.keys, *pool.values)]
    for tensor, numbers in zip((*pool.keys, *pool.values), expected, strict=True):
        tensor.copy_(numbers)
    for rows, capacity, kept in ((3, 21, 3), (5, 22, 3), (2, 60, 2), (9, 13, 2)):
        pool.reserve(rows, capacity)
        assert pool.rows >= rows and pool.capacity >= capacity and pool.rows * pool.capacity <= 120
        for tensor, numbers in zip((*pool.keys, *pool.values), expected, strict=True):
            length = min(16, pool.capacity)
            assert torch.equal(tensor[:kept, :, :length], numbers[:kept, :, :length])
            assert tensor.isfinite().all()
    assert account.held == 64 * 120 and account.peak <= 64 * (120 + spare)


@pytest.mark.parametrize("num_pairs", [1, 12])
@pytest.mark.parametrize("spare", [1, 5, 40, 1000])
def test_rows_change_places_and_are_copied_within_the_room_there_is(num_pairs: int, spare: int) -> None:
    account = Account(64 * (24 * 16 + spare))
    pool = KVPool(LAYOUT, account=account)
    pool.reserve(24, 16)
    for tensor in (*pool.keys, *pool.values):
        tensor.copy_(torch.randn_like(tensor))
    keys = pool.keys[0].clone()
    first, second = torch.arange(num_pairs), torch.arange(23, 23 - num_pairs, -1)
    pool.swap_rows(first, second, 9)
    assert torch.equal(pool.keys[0][first, :, :9], keys[second, :, :9])
    assert torch.equal(pool.keys[0][second, :, :9], keys[first, :, :9])
    assert torch.equal(pool.keys[0][:, :, 9:], keys[:, :, 9:])
    pool.copy_rows(torch.zeros(20, dtype=torch.int64), torch.arange(1, 21), 9)
    assert torch.equal(pool.keys[0][1:21, :, :9], pool.keys[0][:1, :, :9].expand(20, -1, -1, -1))
    assert account.held == pool.num_bytes and account.peak <= 64 * (24 * 16 + spare)


def test_where_there_is_no_room_for_a_token_rows_keep_their_places() -> None:
    pool = KVPool(LAYOUT, account=Account(64 * 32 + 63))
    pool.reserve(2, 16)
    assert not pool.can_swap() and KVPool(LAYOUT, account=Account(64)).can_swap()
