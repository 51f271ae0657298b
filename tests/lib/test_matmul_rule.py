"""From timings to a rule, by hand; and that both libraries compute the same product."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from podsrl.lib.matmul import (
    FIXED,
    NEVER,
    SHAPES,
    OnednnLinear,
    Rule,
    Timing,
    Use,
    is_available,
    measure,
    rule_from,
    rule_of,
)

INTEL = {(512, 64, 64): (76, 50), (512, 64, 160): (89, 69), (256, 256, 704): (97, 84), (2000, 256, 704): (96, 81)}
AMD = {(512, 64, 64): (86, 114), (512, 64, 160): (91, 151), (256, 256, 704): (95, 200), (2000, 256, 704): (87, 178)}
"""Rows, in, out -> GFLOP/s of MKL and of oneDNN: Sapphire Rapids and Zen 5, one core."""


def timing(use: Use, work: int, mkl: float, onednn: float) -> Timing:
    return Timing(use=use, work=work, mkl_seconds=mkl, onednn_seconds=onednn)


def from_rates(use: Use, rates: dict[tuple[int, int, int], tuple[int, int]]) -> list[Timing]:
    works = {shape: math.prod(shape) for shape in rates}
    return [
        timing(use, works[shape], works[shape] / mkl, works[shape] / other) for shape, (mkl, other) in rates.items()
    ]


def test_where_mkl_is_faster_everything_is_mkls() -> None:
    few = from_rates("few_rows", {(16, 896, 4864): (38, 41)})  # oneDNN is 8 % faster: within the margin
    timings = [*from_rates("many_rows", INTEL), *from_rates("update", INTEL), *few]
    assert rule_of(timings) == NEVER and str(NEVER) == "MKL"


def test_where_onednn_is_faster_it_computes_from_the_smallest_size_at_which_it_is() -> None:
    small = timing("many_rows", 1_048_576, 28.5, 32.4)  # 0.88: MKL is faster there
    few = from_rates("few_rows", {(16, 896, 4864): (45, 80)})
    rule = rule_of([small, *from_rates("many_rows", AMD), *few])
    assert rule == Rule(few_rows=16 * 896 * 4864, many_rows=512 * 64 * 64, update=math.inf)
    assert str(rule) == (
        "MKL; oneDNN for products of at least 69,730,304 (up to 32 rows), 2,097,152 (more rows) multiplications"
    )


def test_the_order_of_timings_does_not_matter_and_uses_do_not_mix() -> None:
    timings = [
        timing("update", 1, 1, 2),
        timing("update", 3, 3, 1),
        timing("update", 2, 2, 1),
        timing("few_rows", 9, 1, 9),
    ]
    for found in (timings, timings[::-1]):
        assert rule_of(found) == Rule(few_rows=math.inf, many_rows=math.inf, update=2)


def test_one_disturbed_shape_does_not_decide_alone() -> None:
    # Ratios from the largest down: 2, 0.9 (disturbed), 2, 0.5. Logs less the margin's: 0.60, -0.20, 0.60, -0.79.
    ratios = {8: 2.0, 4: 0.9, 2: 2.0, 1: 0.5}
    assert rule_of(timing("many_rows", work, ratio, 1.0) for work, ratio in ratios.items()).many_rows == 2
    # The largest disturbed: -0.51, 0.60, 0.60 still gain; with one winner less they do not.
    assert rule_of(timing("many_rows", work, ratio, 1.0) for work, ratio in ((8, 0.66), (4, 2), (2, 2))).many_rows == 2
    assert rule_of(timing("many_rows", work, ratio, 1.0) for work, ratio in ((8, 0.5), (4, 2))) == NEVER


def test_within_the_margin_mkl_stays() -> None:
    assert rule_of([timing("update", 10, 1.09, 1.0)]) == NEVER
    assert rule_of([timing("update", 10, 1.11, 1.0)]).update == 10


@pytest.mark.parametrize("rule", [NEVER, FIXED["onednn"], Rule(few_rows=0, many_rows=math.inf, update=7)])
def test_a_rule_comes_back_from_json(rule: Rule) -> None:
    assert rule_from(rule.to_json()) == rule


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {},
        {"few_rows": 1, "many_rows": 1},
        {"few_rows": 1, "many_rows": 1, "update": 1, "more": 1},
        {"few_rows": "1", "many_rows": 1, "update": 1},
        {"few_rows": True, "many_rows": 1, "update": 1},
        {"few_rows": -1, "many_rows": 1, "update": 1},
        {"few_rows": math.nan, "many_rows": 1, "update": 1},
    ],
)
def test_what_is_no_rule_is_none(stored: Any) -> None:
    assert rule_from(stored) is None


@pytest.mark.skipif(not is_available(), reason="no oneDNN for this processor")
def test_every_shape_is_timed_on_both_without_a_random_number() -> None:
    state = torch.get_rng_state()
    with torch.inference_mode():
        timings = measure()
    assert torch.equal(torch.get_rng_state(), state)
    assert [(t.use, t.work) for t in timings] == [(use, math.prod(s)) for use, shapes in SHAPES.items() for s in shapes]
    assert all(0 < seconds < 60 for t in timings for seconds in (t.mkl_seconds, t.onednn_seconds))
    forward, update = ({t.work: t for t in timings if t.use == use} for use in ("many_rows", "update"))
    for work in forward.keys() & update.keys():  # the same shape: one product against three
        assert update[work].mkl_seconds > forward[work].mkl_seconds
        assert update[work].onednn_seconds > forward[work].onednn_seconds


def spread(rows: int, columns: int) -> Tensor:
    """Of both signs, with magnitudes over some orders."""
    return torch.randn(rows, columns) * torch.exp(2 * torch.randn(rows, columns))


def assert_product(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """x @ weight.T + bias as float32 may give it, whatever the order of its additions.

    |error| ≤ γ (|x| |weight| + |bias|) with γ = k u / (1 - k u), for k roundings on the way of a term and u = 2^-24
    (Higham 2002, section 3.1).
    """
    x, weight = x.detach().double(), weight.detach().double()
    added = torch.zeros(1, dtype=torch.float64) if bias is None else bias.detach().double()
    k, unit = x.shape[1] + 1, 2.0**-24
    bound = k * unit / (1 - k * unit) * (x.abs() @ weight.abs().T + added.abs())
    assert ((found.detach().double() - (x @ weight.T + added)).abs() <= bound).all()


@pytest.mark.skipif(not is_available(), reason="no oneDNN for this processor")
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("rows", "num_in", "num_out"), [(1, 64, 64), (16, 96, 64), (37, 64, 96), (300, 64, 160)])
def test_both_libraries_give_product_and_gradients_within_float32s_bound(
    rows: int, num_in: int, num_out: int, has_bias: bool
) -> None:
    torch.manual_seed(rows)
    x, weight, above = spread(rows, num_in), spread(num_out, num_in), spread(rows, num_out)
    bias = spread(1, num_out)[0].requires_grad_() if has_bias else None
    inputs = [tensor for tensor in (x.requires_grad_(), weight.requires_grad_(), bias) if tensor is not None]
    for layer in (F.linear, OnednnLinear.apply):
        y = layer(x, weight, bias)
        for_x, for_weight, *for_bias = torch.autograd.grad(y, inputs, above)
        assert_product(y, x, weight, bias)
        assert_product(for_x, above, weight.T)
        assert_product(for_weight, above.T, x.T)
        if for_bias:
            assert_product(for_bias[0][:, None], above.T, torch.ones(1, rows))
