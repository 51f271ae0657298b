"""The decode step of Qwen2, Qwen2.5, Qwen3 and Llama written by hand: about 30 operations per layer, no module calls.

On small models this saves the calls of modules, hooks and attention interfaces, which take most of a step's time. On
larger ones it computes matrix products by the faster of two libraries (`podsrl.lib.matmul`), where torch's own float32
linear layer always uses the same one. Weights are the model's own, in place. Query heads that share a key-value head
are rows of one product, so that keys and values are never repeated. A head that is no plain linear layer (adapters,
another class, a hook) is called as the module that it is. What the step does not compute exactly is left to
the model's own forward (`why_not_fast`).

Sources: rotary positions, Su et al. 2021 (RoFormer); grouped queries, Ainslie et al. 2023 (GQA).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podsrl.errors import UsageError
from podsrl.generate.engine.forward.base import Forward, Step, StepOutput
from podsrl.generate.engine.forward.zones import Zone
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.lib.matmul import Linear

_FAMILIES = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM")
_FIXED_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary types whose frequencies do not depend on the sequence."""


class _Layer(NamedTuple):
    """One layer's weights: the model's own tensors."""

    norm: Tensor
    queries: Linear
    keys: Linear
    values: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


class _Part(NamedTuple):
    """Rows first .. end - 1 and what they attend to."""

    first: int
    end: int
    length: int
    mask: Tensor | None


class FastForward(Forward):
    """For the models that `why_not_fast` accepts. UsageError: another model."""

    name = "fast"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.refresh()
        attention = model.model.layers[0].self_attn
        self._num_queries, self._num_keys = model.config.num_attention_heads, model.config.num_key_value_heads
        self._head_dim, self._scaling = attention.head_dim, attention.scaling
        self._eps = torch.tensor(model.config.rms_norm_eps, dtype=torch.float32)
        self._angles = torch.empty(0)

    def refresh(self) -> None:
        """Look up the weights' tensors again (in-place updates do not need it), and check that the model is covered."""
        require_covered(self._model, "fast", why_not_fast)
        self._layers = [_read_layer(layer) for layer in self._model.model.layers]
        self._embedding = self._model.model.embed_tokens.weight
        self._norm = self._model.model.norm.weight
        head = self._model.lm_head
        self._head = Linear(head) if type(head) is nn.Linear and not is_hooked(head) else head

    @torch.inference_mode()
    def __call__(self, step: Step, pool: KVPool) -> StepOutput:
        num_rows = len(step.tokens)
        parts = self._parts(step.positions, step.zones or ((num_rows, step.length),), step.is_even)
        cos, sin = self._turns(step.positions, pool.capacity)
        lines = pool.line_index(step.positions)
        x = F.embedding(step.tokens, self._embedding)
        for i, layer in enumerate(self._layers):
            queries, keys_values = self._project(rms_norm(x, layer.norm, self._eps), layer, cos, sin)
            pool.lines[i].index_copy_(0, lines, keys_values)
            attended = [self._attend(queries, pool.keys[i], pool.values[i], part) for part in parts]
            x += layer.out((attended[0] if len(parts) == 1 else torch.cat(attended)).view(num_rows, -1))
            y = rms_norm(x, layer.mlp_norm, self._eps)
            x += layer.down(F.silu(layer.gate(y)).mul_(layer.up(y)))
        x = rms_norm(x, self._norm, self._eps)
        return StepOutput(self._head(x), x if step.want_hidden else None)

    def _project(self, x: Tensor, layer: _Layer, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """[R, D] -> queries [R * kv_heads, sharing, head_dim], keys and values [R * 2 * kv_heads, head_dim]."""
        shape = (len(x), -1, self._head_dim)
        values = layer.values(x).view(shape)
        turned = torch.cat([layer.queries(x), layer.keys(x)], dim=1).view(shape)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = turned[:, : self._num_queries], turned[:, self._num_queries :]
            queries = rms_norm(queries, layer.query_norm, self._eps)
            turned = torch.cat([queries, rms_norm(keys, layer.key_norm, self._eps)], dim=1)
        turned = (turned * cos).addcmul_(turned.roll(self._head_dim // 2, -1), sin)
        queries = turned[:, : self._num_queries].reshape(len(x) * self._num_keys, -1, self._head_dim)
        return queries, torch.cat([turned[:, self._num_queries :], values], dim=1).view(-1, self._head_dim)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, part: _Part) -> Tensor:
        """Attend to positions 0 .. length - 1 of [rows, kv_heads, capacity, head_dim] for one part of the rows."""
        queries = queries[part.first * self._num_keys : part.end * self._num_keys]
        keys = keys[part.first : part.end, :, : part.length].flatten(0, 1).transpose(1, 2)
        values = values[part.first : part.end, :, : part.length].flatten(0, 1)
        if part.mask is None:
            scores = torch.bmm(queries, keys).mul_(self._scaling)
        else:
            scores = torch.baddbmm(part.mask, queries, keys, alpha=self._scaling)
        return torch.bmm(torch.softmax(scores, dim=-1), values)

    def _parts(self, positions: Tensor, zones: Sequence[Zone], is_even: bool) -> list[_Part]:
        parts, first = list[_Part](), 0
        for rows, length in zones:
            end = first + rows
            parts.append(_Part(first, end, length, None if is_even else self._mask(positions[first:end], length)))
            first = end
        return parts

    def _mask(self, positions: Tensor, length: int) -> Tensor:
        """[R * kv_heads, 1, length], added to the scores: 0 up to a row's position, then -inf."""
        hidden = torch.arange(length, device=positions.device) > positions.repeat_interleave(self._num_keys)[:, None]
        zeros = torch.zeros(hidden.shape, dtype=self.layout.dtype, device=positions.device)
        return zeros.masked_fill_(hidden, -torch.inf)[:, None]

    def _turns(self, positions: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine of each row, [R, 1, head_dim]; a table serves all positions below `capacity`."""
        if len(self._angles) < capacity:
            rotary = self._model.model.rotary_emb
            angles = torch.arange(capacity, device=positions.device).float()[:, None] * rotary.inv_freq.float()
            cos, sin = angles.cos() * rotary.attention_scaling, angles.sin() * rotary.attention_scaling
            self._angles = torch.cat([cos, cos, -sin, sin], dim=-1).to(self.layout.dtype)
        cos, sin = self._angles.index_select(0, positions)[:, None].chunk(2, dim=-1)
        return cos, sin


def rms_norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """As `F.rms_norm` of x [..., D], weight [D], eps [] float32 on the host; in fewer operations for float32 on a CPU.

    Elsewhere it is that one, which is one kernel on a GPU, and whose sum of squares is float32: in float16 the sum
    overflows from a mean square of 65,504 on.
    """
    if not x.is_cpu or x.dtype != torch.float32:
        return F.rms_norm(x, weight.shape, weight, float(eps))
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (x * torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()).mul_(weight)


def require_covered(model: Any, name: str, why_not: Callable[[Any], str | None]) -> None:
    """UsageError: the decode step of this name does not cover the model."""
    reason = why_not(model)
    if reason is not None:
        raise UsageError(
            f"forward = {name!r} does not cover this model: {reason}: use 'model' or None, or make a new engine if the "
            "model was altered after this one was made"
        )


def _read_layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    query_norm, key_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    return _Layer(
        norm=layer.input_layernorm.weight,
        queries=Linear(attention.q_proj),
        keys=Linear(attention.k_proj),
        values=Linear(attention.v_proj),
        query_norm=None if query_norm is None else query_norm.weight,
        key_norm=None if key_norm is None else key_norm.weight,
        out=Linear(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate=Linear(mlp.gate_proj),
        up=Linear(mlp.up_proj),
        down=Linear(mlp.down_proj),
    )


# --- which models it covers ---


def why_not_fast(model: Any) -> str | None:
    """The reason why the hand-written step does not cover a model; None: it does.

    Example:
        >>> why_not_fast(torch.nn.Linear(1, 1))
        'Linear is none of Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM'
    """
    name = type(model).__name__
    if name not in _FAMILIES or not type(model).__module__.startswith("transformers.models."):
        return f"{name} is none of {', '.join(_FAMILIES)}"
    return _unusual_config(model) or _altered_module(model) or _unusual_parameter(model)


def _unusual_config(model: Any) -> str | None:
    config, rotary = model.config, model.model.rotary_emb
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act!r}, not 'silu'"
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        return "a layer has no full attention"
    if rotary.rope_type not in _FIXED_ROPES or 2 * len(rotary.inv_freq) != model.model.layers[0].self_attn.head_dim:
        return f"its rotary positions of type {rotary.rope_type!r} depend on the length or turn part of a head"
    return None


def _altered_module(model: Any) -> str | None:
    """A module below the head was replaced (quantised, LoRA, compiled) or has a hook."""
    for path, module in model.named_modules():
        if path == "lm_head" or path.startswith("lm_head."):
            continue
        kind = type(module)
        is_own = kind.__module__ == type(model).__module__ or kind.__name__ == "SiLUActivation"
        if not is_own and kind not in (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU):
            return f"its {path} is a {kind.__name__}"
        if is_hooked(module):
            return f"its {path or 'forward'} has a hook or a forward of its own"
    return None


def is_hooked(module: nn.Module) -> bool:
    """Whether a call of the module does more than its class says."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _unusual_parameter(model: Any) -> str | None:
    read = model if type(model.lm_head) is nn.Linear else model.model  # another head reads its own
    tensors = [parameter.data for parameter in read.parameters()]
    if any(type(tensor) is not Tensor for tensor in tensors):
        return "its parameters are sharded or quantised"
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        return "its parameters have different types or devices"
    if model.device.type == "cpu" and model.dtype != torch.float32:
        return f"it is {model.dtype} on a CPU, not float32"
    return None
