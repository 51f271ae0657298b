"""The decode step on a GPU: the kernels of `kernels.py` between matrix products, recorded as CUDA graphs.

Started one by one, the 600 to 900 operations of a step keep the host busy for several times as long as the GPU. Here
each number of rows (rounded up, so that there are few) has a graph of about 220, which one call starts. A graph reads
its inputs and the place of keys and values from fixed memory, so it stays right while rows change, rollouts fork and
the pool moves; weights are the model's own, in place. Projections that read the same input are one product: their
weights lie behind one another in memory, and the model's parameters are views of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podsrl.generate.engine.forward.base import Forward, Step, StepOutput
from podsrl.generate.engine.forward.fast import is_hooked, require_covered, why_not_fast
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.lib.devices import why_no_kernels

Affine = tuple[Tensor, Tensor | None]
"""Weight [out, in] and bias [out]."""
_NOBODY = -1
"""The position of rows that only fill up a graph's number of rows."""
_ANGLES = 4096
"""Positions whose angles are computed at first; longer rows double it."""


class _Layer(NamedTuple):
    norm: Tensor
    projections: Affine
    """Of queries, keys and values."""
    norms: tuple[Tensor, Tensor] | None
    """Of queries and keys."""
    out: Affine
    mlp_norm: Tensor
    gate_up: Affine
    down: Affine


class GraphForward(Forward):
    """For the models that `why_not_graph` accepts. UsageError: another model."""

    name = "graph"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        attention, config = model.model.layers[0].self_attn, model.config
        self._heads = config.num_attention_heads, config.num_key_value_heads
        self._head_dim, self._scaling, self._eps = attention.head_dim, attention.scaling, config.rms_norm_eps
        self._addresses: tuple[int, ...] = ()
        self._size = 0
        """Rows that the inputs and the logits have memory for."""
        self._angles = self._new_angles(_ANGLES)
        self._place = torch.zeros(3, dtype=torch.int64, device=model.device)
        self._known_place: tuple[int, ...] = ()
        self._forget()
        self.refresh()

    def refresh(self) -> None:
        """Join the weights that are not, and drop the graphs if weights lie elsewhere than before."""
        require_covered(self._model, "graph", why_not_graph)
        with torch.inference_mode(False), torch.no_grad():
            self._layers = [_read_layer(layer) for layer in self._model.model.layers]
        self._embedding = self._model.model.embed_tokens.weight
        self._norm = self._model.model.norm.weight
        head = self._model.lm_head
        self._head = head.weight.detach(), head.bias
        addresses = tuple(parameter.data_ptr() for parameter in self._model.parameters())
        if addresses != self._addresses:
            self._addresses = addresses
            self._forget()

    @torch.inference_mode()
    def __call__(self, step: Step, pool: KVPool) -> StepOutput:
        rows, padded = len(step.tokens), graph_rows(len(step.tokens))
        self._make_room(padded, pool)
        self._tokens[:rows].copy_(step.tokens)
        self._positions[:rows].copy_(step.positions)
        self._positions[rows:padded].fill_(_NOBODY)
        hidden = self._replay(padded)[:rows]
        logits = self._logits[:rows]  # the next step's will be written there
        return StepOutput(logits.clone(), hidden.clone()) if step.want_hidden else StepOutput(logits, None)

    def _replay(self, rows: int) -> Tensor:
        """Run the step for the first rows of the inputs; the head's input [rows, D]."""
        if not self._tokens.is_cuda:  # Triton's interpreter
            return self._run(rows)
        if rows not in self._graphs:
            with torch.cuda.device(self._tokens.device):
                self._graphs[rows] = self._record(rows)
        graph, hidden = self._graphs[rows]
        graph.replay()
        return hidden

    def _record(self, rows: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A graph of the step. It is run before, which compiles kernels; what that writes is what the graph will."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run(rows)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory, stream=stream, capture_error_mode="thread_local"):
            hidden = self._run(rows)
        return graph, hidden

    def _run(self, rows: int) -> Tensor:
        from podsrl.generate.engine.forward import kernels

        positions, place, change = self._positions[:rows], self._place, None
        x = F.embedding(self._tokens[:rows], self._embedding)
        for i, layer in enumerate(self._layers):
            y = kernels.add_norm(x, change, layer.norm, self._eps)
            y = F.linear(y, *layer.projections)
            queries = kernels.turn(y, self._angles, positions, place, i, self._heads, layer.norms, self._eps)
            y = kernels.attend(queries, positions, place, i, self._heads[1], self._scaling)
            y = kernels.add_norm(x, F.linear(y, *layer.out), layer.mlp_norm, self._eps)
            change = F.linear(kernels.gate(F.linear(y, *layer.gate_up)), *layer.down)
        x = kernels.add_norm(x, change, self._norm, self._eps)
        weight, bias = self._head
        if bias is None:
            torch.mm(x, weight.t(), out=self._logits[:rows])
        else:
            torch.addmm(bias, x, weight.t(), out=self._logits[:rows])
        return x

    def _make_room(self, rows: int, pool: KVPool) -> None:
        """Memory for so many rows, angles for the pool's longest, and where the pool is now."""
        if rows > self._size:
            rows = max(rows, graph_rows(pool.max_rows or rows))  # at once: graphs of other memory are lost
            device, words = self._model.device, len(self._head[0])
            self._tokens = torch.zeros(rows, dtype=torch.int64, device=device)
            self._positions = torch.full((rows,), _NOBODY, device=device)
            self._logits = torch.empty(rows, words, dtype=self.layout.dtype, device=device)
            self._forget()
            self._size = rows
        if pool.capacity > len(self._angles):
            self._angles = self._new_angles(max(pool.capacity, 2 * len(self._angles)))
            self._forget()
        place = pool.place
        if place != self._known_place:
            self._place.copy_(torch.tensor(place))
            self._known_place = place

    def _new_angles(self, length: int) -> Tensor:
        """[length, head_dim]: cosines of each position before its sines."""
        rotary = self._model.model.rotary_emb
        angles = torch.arange(length, device=self._model.device).float()[:, None] * rotary.inv_freq.float()
        scale = rotary.attention_scaling
        return torch.cat([angles.cos() * scale, angles.sin() * scale], dim=-1).to(self.layout.dtype)

    def _forget(self) -> None:
        """Drop all graphs; their memory goes with the last."""
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        is_cuda = self._model.device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if is_cuda else None


def graph_rows(rows: int) -> int:
    """The rows of the graph that does a step of so many: at most a fourth more, or 7.

    Example:
        >>> [graph_rows(rows) for rows in (1, 9, 65, 130, 512, 513)]
        [8, 16, 80, 160, 512, 640]
    """
    step = max(8, (1 << (rows - 1).bit_length()) // 8)
    return -(-rows // step) * step


def why_not_graph(model: Any) -> str | None:
    """The reason why a model's decode step is not recorded as CUDA graphs; None: it is.

    Example:
        >>> why_not_graph(torch.nn.Linear(1, 1))
        'Linear is none of Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM'
    """
    reason = why_not_fast(model)
    if reason is not None:
        return reason
    if type(model.lm_head) is not nn.Linear or is_hooked(model.lm_head):
        return f"its head is a {type(model.lm_head).__name__}, or has a hook"
    head_dim = model.model.layers[0].self_attn.head_dim
    if head_dim < 16 or head_dim & (head_dim - 1):
        return f"its heads have {head_dim} numbers, no power of 2 from 16 on"
    if model.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it is {model.dtype}"
    return why_no_kernels(model.device.type)


def _read_layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    query_norm, key_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    return _Layer(
        norm=layer.input_layernorm.weight,
        projections=_joined(attention.q_proj, attention.k_proj, attention.v_proj),
        norms=None if query_norm is None or key_norm is None else (query_norm.weight, key_norm.weight),
        out=_joined(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_joined(mlp.gate_proj, mlp.up_proj),
        down=_joined(mlp.down_proj),
    )


def _joined(*modules: nn.Linear) -> Affine:
    """The modules as one, [sum of outs, in]."""
    biases = [module.bias for module in modules if module.bias is not None]
    return _in_a_row([module.weight for module in modules]), _in_a_row(biases) if biases else None


def _in_a_row(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor of which these are consecutive parts; they are moved if they are not yet."""
    ends = [parameter.data_ptr() + parameter.nbytes for parameter in parameters]
    starts = [parameter.data_ptr() for parameter in parameters]
    storages = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    if len(storages) > 1 or starts[1:] != ends[:-1]:
        joined, first = torch.cat([parameter.data for parameter in parameters]), 0
        for parameter in parameters:
            parameter.data = joined[first : first + len(parameter)]
            first += len(parameter)
    whole = parameters[0].detach()
    return whole.as_strided((sum(map(len, parameters)), *whole.shape[1:]), whole.stride())
