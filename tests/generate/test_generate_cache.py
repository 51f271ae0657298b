"""Rows of the key-value block move as a naive list of rows does, and only models it can serve are accepted."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.generate.cache import RowLayer, new_prompt_cache

HEADS, WIDTH = 2, 3


def states(rows: int, length: int) -> Tensor:
    return torch.randn(rows, HEADS, length, WIDTH)


def test_rows_start_as_copies_of_their_prompts_with_room_behind() -> None:
    keys, values = states(2, 4), states(2, 4)
    layer = RowLayer(keys, values, torch.tensor([1, 0, 1]), 6)
    assert (layer.get_seq_length(), layer.get_max_length(), layer.get_mask_sizes(1)) == (4, 6, (5, 0))
    assert layer.num_bytes == 2 * 3 * HEADS * 6 * WIDTH * 4
    shown_keys, shown_values = layer.update(new := states(3, 1), -new)
    assert torch.equal(shown_keys, torch.cat([keys[[1, 0, 1]], new], dim=2))
    assert torch.equal(shown_values, torch.cat([values[[1, 0, 1]], -new], dim=2))


@pytest.mark.parametrize("seed", range(30))
def test_moved_rows_equal_a_naive_twin_under_random_finish_patterns(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    prompt_of_row = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
    prompts = states(3, 2), states(3, 2)
    layer = RowLayer(*prompts, torch.tensor(prompt_of_row), 12)
    twin = [[kind[i] for kind in prompts] for i in prompt_of_row]
    for _ in range(10):
        new = states(len(twin), 1), states(len(twin), 1)
        shown = layer.update(*new)
        twin = [[torch.cat([a, b[i]], dim=1) for a, b in zip(row, new, strict=True)] for i, row in enumerate(twin)]
        for kind in (0, 1):
            assert torch.equal(shown[kind], torch.stack([row[kind] for row in twin]))
        done = [rng.random() < 0.25 for _ in twin]
        num_live = done.count(False)
        holes = [i for i in range(num_live) if done[i]]
        movers = [i for i in range(num_live, len(twin)) if not done[i]]
        layer.move_rows(torch.tensor(movers, dtype=torch.int64), torch.tensor(holes, dtype=torch.int64), num_live)
        for mover, hole in zip(movers, holes, strict=True):
            twin[hole] = twin[mover]
        twin = twin[:num_live]
        if not twin:
            break


def test_moving_rows_copies_nothing_when_only_the_last_ones_leave() -> None:
    layer = RowLayer(states(1, 2), states(1, 2), torch.zeros(5, dtype=torch.int64), 4)
    before = layer.update(states(5, 1), states(5, 1))[0].data_ptr()
    none = torch.empty(0, dtype=torch.int64)
    layer.move_rows(none, none, 2)
    shown, _ = layer.update(states(2, 1), states(2, 1))
    assert shown.shape == (2, HEADS, 4, WIDTH) and shown.data_ptr() == before


def test_a_model_with_linear_attention_is_refused_by_the_name_of_its_layer() -> None:
    from transformers import Qwen3NextConfig

    model = SimpleNamespace(config=Qwen3NextConfig(num_hidden_layers=4))
    with pytest.raises(UsageError, match=r"LinearAttention.*, wanted full attention over 10 tokens"):
        new_prompt_cache(model, 10)


@pytest.mark.parametrize("family", ["qwen2", "mistral"])
def test_a_sliding_window_is_accepted_up_to_its_size_and_refused_beyond(
    make_model: Callable[..., Any], family: str
) -> None:
    changes = {"use_sliding_window": True, "max_window_layers": 1} if family == "qwen2" else {}
    model = make_model(family, sliding_window=16, **changes)
    assert len(new_prompt_cache(model, 16).layers) == 2
    with pytest.raises(UsageError, match=r"DynamicSlidingWindowLayer.*over 17 tokens.*shorter limit under its window"):
        new_prompt_cache(model, 17)
