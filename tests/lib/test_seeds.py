"""Every stream is a function of (seed, name, step), the same on every machine and in every release."""

from __future__ import annotations

import random

import numpy as np
import torch

from podsrl.lib.seeds import derive, hash_bits, seed_globals, selection_generator


def test_seeds_never_change_from_one_release_to_the_next() -> None:
    found = [derive(0, "data"), derive(0, "sampling"), derive(1, "data"), derive(0, "selection", 7)]
    assert found == [7541626262678432639, 6458357011904759093, 3719999915161826386, 1650250442162144748]


def test_seed_name_and_step_each_give_another_stream_of_63_bits() -> None:
    names = ("data", "sampling", "selection", "update")
    found = {derive(seed, name, step) for seed in range(20) for name in names for step in range(20)}
    assert len(found) == 1600
    assert all(0 <= value < 2**63 for value in found)
    assert max(found).bit_length() == 63


def draw_globals() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))


def test_the_global_generators_of_python_numpy_and_torch_restart_at_each_step() -> None:
    seed_globals(3, 5)
    first = draw_globals()
    draw_globals()
    seed_globals(3, 5)
    assert draw_globals() == first
    for seed, step in ((3, 6), (4, 5)):
        seed_globals(seed, step)
        assert not set(draw_globals()) & set(first)


def test_the_selection_generator_is_its_own_and_leaves_the_global_one_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = torch.rand(4, generator=selection_generator(1, 2))
    assert torch.equal(draws, torch.rand(4, generator=selection_generator(1, 2)))
    assert not torch.equal(draws, torch.rand(4, generator=selection_generator(1, 3)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_place_may_be_a_name_and_numpy_s_lowest_bits_are_those_of_the_hash() -> None:
    assert derive(5, "adapters", "model.layers.0.q_proj") == 754191100458368448
    assert hash_bits(b"abc") == 6455300059550759896
    assert hash_bits(b"abc", 4) == 1214419043
