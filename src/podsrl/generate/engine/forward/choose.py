"""Which decode step runs, and the check that it computes what the model does.

The engine decodes rows of different lengths together. That is exact only where a model takes each row's place from
`position_ids` and what a row sees from the mask. Models that count from the cache's length, or from the longest row,
would sample from another distribution without any error. So every decode step is compared once with the model's plain
forward: two rows, a few tokens, five small forwards in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from podsrl.errors import UsageError, is_out_of_memory, one_line
from podsrl.generate.engine.forward.base import Forward, Step
from podsrl.generate.engine.forward.fast import FastForward, why_not_fast
from podsrl.generate.engine.forward.graph import GraphForward, why_not_graph
from podsrl.generate.engine.forward.model import ModelForward
from podsrl.generate.engine.forward.prefill import head_input, maskable_attention
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.limits import row_limit
from podsrl.lib.devices import avoid_cudnn_attention, is_device_error
from podsrl.lib.torch_model import evaluating

_CURE = "use a decoder that takes positions from `position_ids`, such as Qwen, Llama or Mistral (docs/families.md)"
_STEPS = 2
_LONG, _SHORT = 11, 5
"""Tokens of the two rows, of which the last `_STEPS` are decoded."""
_TOLERANCE, _ROUGH = {torch.float64: 1e-5, torch.float32: 1e-3}, 0.1
"""Largest difference of a token's states by their norm; `_ROUGH` where products are rounded to 16 bits or so.

In float64, which the hand-written step takes on a GPU only: its norms are float64, transformers' are float32.
"""
_REASONS: WeakKeyDictionary[nn.Module, dict[str, str | None]] = WeakKeyDictionary()


Name = Literal["graph", "fast", "model"]
_FAILED: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""What the graph of a model failed with, in one line."""


def choose_forward(model: Any, name: Name | None = None) -> Forward:
    """The fastest decode step that computes exactly what the model does; or `name`.

    UsageError: another name, or one that does not cover the model; or see `new_prompt_cache` and `checked`.
    """
    if name not in (None, "graph", "fast", "model"):
        raise UsageError(f"forward = {name!r}: wanted 'graph', 'fast', 'model', or None to choose")
    avoid_cudnn_attention(model.device)
    if name == "graph" or (name is None and why_no_graph(model) is None):
        try:
            return checked(model, "graph", lambda: GraphForward(model))
        except Exception as error:  # of any type: Triton's own, the compiler's, the driver's
            if name is not None or is_out_of_memory(error):
                raise
            _FAILED[model] = f"it failed with {type(error).__name__}: {one_line(str(error), 300)}"
    is_fast = name == "fast" or (name is None and why_not_fast(model) is None)
    step = FastForward if is_fast else ModelForward
    return checked(model, step.name, lambda: step(model))


def why_no_graph(model: Any) -> str | None:
    """The reason why the decode step of a model is no CUDA graph, or was found not to be; None: it is one."""
    return _FAILED.get(model) or why_not_graph(model)


def checked(model: Any, name: str, make: Callable[[], Forward]) -> Forward:
    """Make a decode step, and compare it with the model's plain forward if this has not been done before.

    UsageError: it computes something else, or the model fails in it. Each module keeps its own mode.
    """
    reasons = _REASONS.setdefault(model, {})
    with evaluating(model):
        plain = _plain_states(model) if name not in reasons else None
        with _told(model, "its forward fails at a decode step of rows of different lengths"):
            forward = make()
            if plain is not None:
                reasons[name] = _difference(forward, model, plain)
    reason = reasons[name]
    if reason is not None:
        raise UsageError(f"model {type(model).__name__} cannot be sampled from by this engine: {reason}: {_CURE}")
    return forward


@contextmanager
def _told(model: Any, what: str) -> Iterator[None]:
    """What a model raises at arguments that it does not know becomes one line; what the device raises stays."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # of any type: the library's own, or torch's at shapes that do not fit
        if is_device_error(error):
            raise
        line = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]}"
        raise UsageError(
            f"model {type(model).__name__} cannot be sampled from by this engine: {what} ({line}): {_CURE}"
        ) from error


def _difference(forward: Forward, model: Any, plain: Tensor) -> str | None:
    """How the decode step differs from the plain states; None: it does not."""
    if not plain.isfinite().all():
        return None  # broken weights, of which nothing can be told
    gaps = (_decoded_states(forward, _made_up_rows(model)) - plain).norm(dim=-1) / plain.norm(dim=-1).clamp(min=1e-30)
    is_exact = plain.dtype != torch.float32 or not _is_rounded()
    tolerance = _TOLERANCE.get(plain.dtype, _ROUGH) if is_exact else _ROUGH
    # In 16 bits a mixture of experts may send a single token elsewhere: one of the steps must agree.
    gap = float((gaps.amax() if tolerance < _ROUGH else gaps.amin(dim=0).amax()).nan_to_num(torch.inf))
    if gap <= tolerance:
        return None
    return f"its decode step on rows of different lengths is not its plain forward (states differ by {gap:.1g} of 1)"


def _made_up_rows(model: Any) -> list[list[int]]:
    """A long row and a short one; shorter ones where the model's window is that short."""
    words = len(model.get_input_embeddings().weight)
    sliding = [getattr(layer, "sliding_window", _LONG) for layer in DynamicCache(config=model.config).layers]
    limit = row_limit(model)
    longest = max(_STEPS + 1, min(_LONG, *sliding, _LONG if limit is None else limit.tokens))
    lengths = longest, max(_STEPS + 1, min(_SHORT, longest - 2))
    return [[(5 + i + 7 * place) % words for place in range(length)] for i, length in enumerate(lengths)]


@torch.inference_mode()
def _plain_states(model: Any) -> Tensor:
    """[_STEPS, rows, D], what the head reads at each row's last tokens, from forwards of whole rows without a cache."""
    states = []
    for row in _made_up_rows(model):
        tokens = torch.tensor([row] * _STEPS, device=model.device)
        last = torch.arange(len(row) - _STEPS, len(row), device=model.device)
        with (
            _told(model, "its forward fails at a few tokens"),
            maskable_attention(model),
            head_input(model, last) as seen,
        ):
            model(input_ids=tokens, use_cache=False)
        states.append(seen[0])
    return torch.stack(states, dim=1)


def _decoded_states(forward: Forward, rows: Sequence[Sequence[int]]) -> Tensor:
    """[_STEPS, rows, D]: all but the last tokens are read, and these decoded one by one."""
    device, states, longest = forward.layout.device, list[Tensor](), max(map(len, rows))
    pool = KVPool(forward.layout)
    pool.reserve(len(rows), longest)
    forward.read([row[:-_STEPS] for row in rows], pool, range(len(rows)))
    for left in range(_STEPS, 0, -1):
        tokens = torch.tensor([row[-left] for row in rows], device=device)
        positions = torch.tensor([len(row) - left for row in rows], device=device)
        output = forward(Step(tokens, positions, longest - left + 1, want_hidden=True), pool)
        assert output.hidden is not None
        states.append(output.hidden)
    return torch.stack(states)


def _is_rounded() -> bool:
    """Whether float32 products may be rounded to fewer digits."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # torch's newer settings are in use, which this one cannot put in a word
        return True
