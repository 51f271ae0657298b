"""Whether a model can forward rows without padding, found once per model by a trial.

Packed and shared rows bring their own attention, so the model must leave attention to transformers' interface, and its
attention must be plainly causal over whole rows; everything else in it must look at one token at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from podsrl.lib.devices import is_device_error
from podsrl.lib.torch_model import evaluating, text_config
from podsrl.update.batch import Batch
from podsrl.update.logprobs import HeadPath, device_of, head_path
from podsrl.update.packed.attention import KEYWORD, NAME, Unsupported, register
from podsrl.update.packed.build import lay_out
from podsrl.update.packed.layout import Layout
from podsrl.update.transfer import move

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest difference of the probe's states by the largest state; 16 bits: 0.1."""
_REASONS: WeakKeyDictionary[nn.Module, str | None] = WeakKeyDictionary()


def why_not_packed(model: nn.Module) -> str | None:
    """What keeps this model from rows without padding; None: nothing."""
    if model not in _REASONS:
        _REASONS[model] = _probe(model)
    return _REASONS[model]


def run_packed(path: HeadPath, model: nn.Module, tokens: Tensor, layout: Layout) -> tuple[Tensor, Any]:
    """As `HeadPath.run`, for rows that go through the model as one of N tokens: states [1, N, ·], and the head."""
    return path.run(model, tokens[None], position_ids=layout.positions[None], **{KEYWORD: layout})


@contextmanager
def packed_attention(model: nn.Module) -> Iterator[None]:
    """Within it every layer of `model` attends by layout, in the forward and in a backward that repeats it."""
    register()
    found: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = list({id(config): config for config in found if hasattr(config, "_attn_implementation")}.values())
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = NAME
    try:
        yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation = implementation


def _probe(model: nn.Module) -> str | None:
    kinds = set(getattr(text_config(model), "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}"
    rows = _made_up_rows(model)
    path = head_path(model)
    try:
        with evaluating(model), torch.no_grad():
            plain = path.run(model, rows.input_ids.to(device_of(model)))[0]
            before = plain.flatten(0, 1)[(rows.target_mask.flatten().nonzero().squeeze(-1) - 1).to(plain.device)]
            for shared in (False, True):
                layout = lay_out(rows, shared=shared)
                layout, tokens = move((layout, rows.input_ids.flatten()[layout.source]), plain.device)
                with packed_attention(model):
                    states = run_packed(path, model, tokens, layout.with_masks(plain.dtype))[0]
                gap = (states[0, layout.predicts] - before).abs().max() / before.abs().max().clamp(min=1e-30)
                if not gap < _TOLERANCE.get(before.dtype, 0.1):
                    return "its forward gives other numbers for them"
    except Unsupported as error:
        return str(error)
    except Exception as error:  # whatever a model of any kind may raise at arguments it does not know
        if is_device_error(error):  # padded rows would meet it too, and later
            raise
        first_line = str(error).partition("\n")[0][:100]
        return f"its forward fails on them ({type(error).__name__}: {first_line})"
    return None


def _made_up_rows(model: Any) -> Batch:
    """Two groups of three and two rows, with prompts of 5 tokens and 1, and completions of 1 to 9."""
    words = len(model.get_input_embeddings().weight)
    prompts, targets = torch.tensor([5, 5, 5, 1, 1])[:, None], torch.tensor([2, 9, 1, 4, 6])[:, None]
    column = torch.arange(14)
    words_of_group = column + torch.tensor([0, 0, 0, 3, 3])[:, None]
    own = column + 7 * torch.arange(1, 6)[:, None]
    real = column < prompts + targets
    return Batch(
        input_ids=torch.where(column < prompts, words_of_group, own) % words,
        attention_mask=real,
        target_mask=real & (column >= prompts),
        behaviour_logprobs=torch.zeros(5, 14),
        advantages=torch.zeros(5),
        group=torch.tensor([0, 0, 0, 1, 1]),
        row_weights=torch.ones(5),
        minibatch=torch.zeros(5, dtype=torch.int64),
    )
