"""Attention by the kernels for sequences of different lengths. Here their contract is computed by plain products."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from test_update_packing import assert_equal, batch_of, new_model, ours, plain, random_batch
from torch import Tensor

from podsrl.update.packed import attention, flash
from podsrl.update.packed.build import lay_out
from podsrl.update.packed.layout import Spans
from podsrl.update.token_logprobs import TokenLogprobs


def pairs(queries: Tensor, keys: Tensor, query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> Any:
    """Per sequence its ranges, and its scores and values [H, q, k], [H, k, D]."""
    repeats = query.shape[1] // key.shape[1]
    for (a, b), (c, d) in zip(queries.unfold(0, 2, 1).tolist(), keys.unfold(0, 2, 1).tolist(), strict=True):
        k, v = (each[c:d].repeat_interleave(repeats, 1).transpose(0, 1) for each in (key, value))
        scores = scale * query[a:b].transpose(0, 1) @ k.transpose(1, 2)
        if causal:
            scores = scores.masked_fill(~torch.ones(b - a, d - c, dtype=torch.bool).tril(), -torch.inf)
        yield slice(a, b), slice(c, d), scores, k, v


def forward(query: Any, key: Any, value: Any, queries: Any, keys: Any, *rest: Any, scale: float | None) -> Any:
    """As `aten._flash_attention_forward`."""
    scale, causal = scale or query.shape[-1] ** -0.5, rest[3]
    output, sums = torch.full_like(query, torch.nan), query.new_full((query.shape[1], len(query)), torch.nan)
    for own, _, scores, _, v in pairs(queries, keys, query, key, value, causal, scale):
        output[own] = (scores.softmax(-1) @ v).transpose(0, 1)
        sums[:, own] = scores.logsumexp(-1)
    return output, sums, torch.zeros(2), torch.zeros(0), torch.zeros(0)


def backward(
    above: Any,
    query: Any,
    key: Any,
    value: Any,
    output: Any,
    sums: Any,
    queries: Any,
    keys: Any,
    *rest: Any,
    scale: Any,
) -> Any:
    """As `aten._flash_attention_backward`: from the result and log-sum-exp that it is given, not its own."""
    scale, causal, groups = scale or query.shape[-1] ** -0.5, rest[3], key.shape[1]
    of_query, of_key, of_value = (torch.full_like(each, torch.nan) for each in (query, key, value))
    for own, seen, scores, k, v in pairs(queries, keys, query, key, value, causal, scale):
        p, g = (scores - sums[:, own, None]).exp(), above[own].transpose(0, 1)
        slope = p * (g @ v.transpose(1, 2) - (above[own] * output[own]).sum(-1).t()[..., None]) * scale
        of_query[own] = (slope @ k).transpose(0, 1)
        of_k, of_v = slope.transpose(1, 2) @ query[own].transpose(0, 1), p.transpose(1, 2) @ g
        of_key[seen] = of_k.unflatten(0, (groups, -1)).sum(1).transpose(0, 1)
        of_value[seen] = of_v.unflatten(0, (groups, -1)).sum(1).transpose(0, 1)
    return of_query, of_key, of_value


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "_forward", forward)
    monkeypatch.setattr(flash, "_backward", backward)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_segments_attend_as_in_blocks(is_shared: bool, scaling: float | None) -> None:
    draw = random.Random(1)
    layout = lay_out(batch_of([(5, [1, 9, 4]), (3, [2, 1])], draw), shared=is_shared)
    assert layout.spans is not None and (layout.spans.groups is not None) == is_shared
    generator = torch.Generator().manual_seed(0)
    sizes = [(len(layout.source), heads, 4) for heads in (6, 2, 2, 6)]
    *states, above = (torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    results = []
    functions: list[Any] = [
        lambda *given: flash.flash(*given, layout.spans, scaling),
        lambda *given: attention._any_attention(*given, layout, scaling, 0.0),
    ]
    for function in functions:
        leaves = [each.clone().requires_grad_() for each in states]
        output = function(*leaves)
        output.backward(above)
        results.append([output, *(leaf.grad for leaf in leaves)])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("sharing", ["on", "off"])
def test_a_model_has_the_log_probs_and_gradients_of_single_rows(sharing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = new_model("qwen2")
    forward = TokenLogprobs(model, packing="on", prefix_sharing=sharing)
    monkeypatch.setattr(attention, "_cpu_flash", None)
    taken = []
    monkeypatch.setattr(attention, "runs_flash", lambda *kind: taken.append(kind) or True)
    for seed in range(12):
        batch = random_batch(seed)
        assert_equal(ours(forward, batch), plain(model, batch))
    assert len(taken) > 6 * 2 and set(taken) == {(torch.device("cpu"), torch.float64, 4, 2, 8)}


@pytest.mark.usefixtures("kernels")
def test_the_trial_takes_kernels_that_are_right_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = torch.device("cpu"), torch.float64, 6, 2, 8
    assert flash._why_not(*kind) is None
    monkeypatch.setattr(flash, "_backward", lambda *given, **more: [1.1 * each for each in backward(*given, **more)])
    assert flash._why_not(*kind) == "FlashAttention gives other numbers here"
    monkeypatch.undo()
    reason = flash._why_not(*kind)  # torch's own kernel, which no CPU has
    assert reason is not None and reason.startswith("FlashAttention fails here (")
    assert not flash.runs_flash(*kind)


def test_spans_leave_out_what_is_empty() -> None:
    spans = Spans.of(np.array([5, 3]), np.array([7, 0, 4]), np.array([0, 0, 1]))
    assert spans is not None and spans.prompts is not None and spans.groups is not None
    assert [each.tolist() for each in (spans.own, spans.prompts, spans.groups)] == [
        [0, 5, 8, 15, 19],
        [0, 5, 8],
        [0, 7, 11],
    ]
    assert (spans.longest, spans.longest_prompt, spans.longest_group, spans.num_shared) == (7, 5, 7, 8)
    assert Spans.of(np.array([5, 3]), np.array([7, 0]), np.array([0, 1])) is None  # kernels and empty groups do not mix
    assert Spans.of(np.array([], int), np.array([0]), np.array([-1])) is None
