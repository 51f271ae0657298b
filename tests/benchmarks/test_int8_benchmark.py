"""`python -m benchmarks int8`: products with 8-bit weights in the engine's decode step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks import int8
from podsrl.generate import Engine


def test_a_row_does_not_depend_on_its_companions_and_is_near_the_float32_product() -> None:
    torch.manual_seed(0)
    layer, rows = torch.nn.Linear(48, 40), torch.randn(5, 48)
    rows[3] *= 1000
    rounded = int8.Int8Linear(layer)
    with torch.no_grad():
        found, exact = rounded(rows), layer(rows)
        assert all(torch.equal(rounded(rows[i : i + 1])[0], found[i]) for i in range(5))
    error = (found - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert 0 < error.max() < 0.03


def test_float32_products_have_no_gap_but_rounding_and_rounded_ones_have(
    make_model: Callable[..., Any],
) -> None:
    model = make_model("llama").eval()
    prompts = [(5, 6, 7), (8, 9, 10)]
    Engine(model, forward="fast")
    exact = int8.gap(model, prompts, int8.generate(model, prompts, 3, 5))
    with int8.int8_products(model):
        rounded = int8.gap(model, prompts, int8.generate(model, prompts, 3, 5))
    assert exact["max"] < 1e-4 < rounded["mean"]
    assert exact["sample_size"] == pytest.approx(1.0)
    assert int8.gap(model, prompts, int8.generate(model, prompts, 3, 5)) == exact
