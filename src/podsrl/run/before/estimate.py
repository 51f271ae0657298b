"""Memory of a run by part, from sizes alone; bytes of one process.

Letters: W weights of the model; A weights of the adapters; N trained weights (A with adapters, else W); b bytes of a
number of `model.dtype`; K processes; T tokens of a micro-batch, with each group's prompt once where prompts are shared;
L layers, h width, q and k widths of all query and all key heads, i width of the feed-forward part, r the adapters'
rank; V vocabulary; R rows generated at once.

    weights         W·b; with 4 bit 0.5 + 4/64 bytes per weight of the linear layers; fsdp2: / K
    generator       with adapters b per weight of what they change (4 bit: of every linear layer); fsdp2: W·b
    adapters        A·a, where a is 2 for a bfloat16 model on a GPU, else 4
    reference       W·b, with a KL penalty and without adapters
    gradients       N·b, and N·4 more while those of 16-bit weights are added up over micro-batches, or stepped;
                    likewise of adapters with a = 2, else N·4; zero2 and fsdp2: / K
    optimizer       N·8 for two moments (8 bit: N·2), N·4 for float32 copies of 16-bit weights; zero2, fsdp2: / K
    average         N·4, with correct.proximal = "average"
    activations     T·L·block, or with gradient checkpointing T·(L·b·h + block), where a block keeps
                    8h for its norms (in float32), (2q + 2k)·b for attention, 3i·b for the feed-forward part;
                    its trained norms 2h·b, and its linear layers' inputs (2h + i)·b; with adapters a·r of
                    each adapted layer, and where a is not b its input, 4 bytes, instead of the linear layers'
    heap            with adapters on a CPU as much as the activations: what stays, such as an adapter's r numbers,
                    lies in the holes of what was freed, which then fit nothing as large (SmolLM2-135M, one update
                    of 736 tokens: 1.8 times the activations; all weights: 1.2 times)
    logits          chunk·V·(b + 12), of a micro-batch's completions at most: the head's output, its float32
                    form, its log-softmax and one gradient; on a GPU with Triton the head's output alone, chunk·V·b
    key-values      R·(prompt + completion)·2·k·L·b, at most rollouts.kv_cache_bytes; half more where nothing
                    bounds it, since memory that grows is held old and new for a moment
    kept ones       as many, up to 256 MiB: the engine keeps a small pool for the next step; with order.rest = "run" all
                    key-values, of all rollouts under way, stay
    decode          R·V·(b + 8): a decode step's logits and what the sampler makes of them

Generation and update do not overlap, so the peak is what is always there and the larger of the two. Against what small
models measure (tests/plan/test_estimate.py): weights, gradients and moments are exact, activations within 3 %,
key-values between 0.6 and 1 of the promise; logits took 0.8 to 0.9 of it. Left out is what the libraries and the
allocator keep for themselves. Of models with another block (experts, a gate in the attention) the activations are a
guess. A generator other than this package's own, or in a process of its own, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import Literal, get_args

import torch

from podsrl.config.schema import RunConfig
from podsrl.generate.engine.limits import SPARE_BYTES
from podsrl.policy.lora import adapter_dtype, choose_targets
from podsrl.policy.source import find_device
from podsrl.run.before.model_shape import ModelShape
from podsrl.run.before.sizes import work

Phase = Literal["always", "generate", "update"]
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SHARING = ("llama", "qwen2", "qwen3")
"""Families whose update is known to put a group's completions behind one prompt; of others each row has its own."""
NF4_BYTES = 0.5 + 4 / 64
"""A weight in four bits, and one float32 scale for 64 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One use of memory."""

    name: str
    phase: Phase
    num_bytes: int


def adapted_linears(config: RunConfig, shape: ModelShape) -> dict[str, tuple[int, int]]:
    """The linear layers that get an adapter.

    Raises:
        UsageError: a target that matches none.
    """
    if config.lora is None:
        return {}
    head = f"{shape.head}.weight"
    linears = {**shape.linears, shape.head: shape.parameters.get(head, ())}
    modules = {name[:dot]: "module" for name in shape.parameters for dot, at in enumerate(name) if at == "."}
    is_tied = head not in shape.parameters
    names = choose_targets(config.lora.targets, linears, modules, head=shape.head, is_tied=is_tied)
    return {name: (linears[name][0], linears[name][1]) for name in names}


def num_adapter_weights(config: RunConfig, shape: ModelShape) -> int:
    """A: r · (in + out) of every adapted layer."""
    rank = config.lora.rank if config.lora else 0
    return sum(rank * (out + width) for out, width in adapted_linears(config, shape).values())


def can_share(config: RunConfig, shape: ModelShape) -> bool:
    """Whether the update may forward each group's prompt once."""
    return shape.family in SHARING and "off" not in (config.optim.packing, config.optim.prefix_sharing)


def estimate(config: RunConfig, shape: ModelShape, num_processes: int = 1) -> list[Part]:
    """Memory of one process by part; parts of 0 bytes are left out.

    Raises:
        UsageError: an adapter target that matches no layer.

    Example:
        >>> from podsrl.run.before.model_shape import read_shape
        >>> parts = estimate(RunConfig(), read_shape(RunConfig().model))
        >>> next(part.num_bytes for part in parts if part.name == "optimizer") == 8 * 136192
        True
    """
    sizes: list[tuple[str, Phase, float]] = [
        *_held(config, shape, num_processes),
        *_update(config, shape, num_processes),
        *_generate(config, shape, num_processes),
    ]
    return [Part(name=name, phase=phase, num_bytes=round(size)) for name, phase, size in sizes if size > 0]


def phase_bytes(parts: Sequence[Part]) -> tuple[int, int]:
    """Bytes while generating and in the update, each with what is always there."""
    sums = {phase: sum(part.num_bytes for part in parts if part.phase == phase) for phase in get_args(Phase)}
    return sums["always"] + sums["generate"], sums["always"] + sums["update"]


def peak(parts: Sequence[Part]) -> int:
    """Bytes of the larger phase."""
    return max(phase_bytes(parts))


def _held(config: RunConfig, shape: ModelShape, num_processes: int) -> list[tuple[str, Phase, float]]:
    size, strategy, lora = BYTES[config.model.dtype], config.scale.strategy, config.lora
    whole = shape.num_weights * size
    quantised = shape.num_linear_weights if config.model.load_in_4bit else 0
    weights = whole - quantised * (size - NF4_BYTES)
    is_spread = strategy == "fsdp2" and num_processes > 1
    changed = shape.linears if quantised else adapted_linears(config, shape)
    copied = sum(prod(matrix) for matrix in changed.values()) * size
    trained, has_masters = _trained(config, shape), _trained_size(config) < 4
    moments = 2 if config.optim.name == "adamw_8bit" else 8
    shares = num_processes if strategy != "ddp" else 1
    return [
        ("weights", "always", weights / num_processes if is_spread else weights),
        ("generator's copy", "always", (whole if is_spread else copied) * generates_itself(config)),
        ("adapters", "always", trained * _trained_size(config) if lora else 0),
        ("reference", "always", whole if config.loss.kl_beta > 0 and lora is None else 0),
        ("optimizer", "always", trained * (moments + 4 * has_masters) / shares),
        ("average", "always", 4.0 * trained * (config.correct.proximal == "average")),
    ]


def _trained(config: RunConfig, shape: ModelShape) -> int:
    return num_adapter_weights(config, shape) if config.lora else shape.num_weights


def _trained_size(config: RunConfig) -> int:
    """Bytes of a trained weight."""
    dtype: torch.dtype = getattr(torch, config.model.dtype)
    return (adapter_dtype(dtype, _device(config)) if config.lora else dtype).itemsize


def _update(config: RunConfig, shape: ModelShape, num_processes: int) -> list[tuple[str, Phase, float]]:
    size, todo = BYTES[config.model.dtype], work(config, num_processes, can_share=can_share(config, shape))
    trained = _trained(config, shape)
    a_gradient = 4 if _trained_size(config) == 4 else 2 + 4
    shares = num_processes if config.scale.strategy != "ddp" else 1
    chunk = min(config.optim.logprob_chunk_tokens, todo.target_tokens)
    activations = todo.micro_batch_tokens * activation_bytes(config, shape)
    return [
        ("gradients", "update", trained * a_gradient / shares),
        ("activations", "update", activations),
        ("heap", "update", activations if config.lora and _device(config).type == "cpu" else 0),
        ("logits", "update", chunk * shape.vocabulary * (size + 12 * (not _has_kernels(config)))),
    ]


def _device(config: RunConfig) -> torch.device:
    """Of the model, which need not be on this machine."""
    name = config.model.device
    return find_device(name) if name == "auto" else torch.device(name.partition(":")[0])


def _has_kernels(config: RunConfig) -> bool:
    return _device(config).type == "cuda" and find_spec("triton") is not None


def activation_bytes(config: RunConfig, shape: ModelShape) -> int:
    """What the update's forward keeps for the backward pass, bytes per token (see the module's docstring)."""
    size, layers, hidden = BYTES[config.model.dtype], shape.num_layers, shape.hidden_size
    block = block_bytes(config, shape)
    last_norm = hidden * (4 + (0 if config.lora else size))
    return last_norm + (layers * size * hidden + block if config.model.gradient_checkpointing else layers * block)


def block_bytes(config: RunConfig, shape: ModelShape) -> int:
    """What one block's forward keeps, bytes per token."""
    size, hidden, wide = BYTES[config.model.dtype], shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    normed = 2 * hidden + (queries + keys if shape.has_query_norms else 0)
    kept = 4 * normed + size * (2 * queries + 2 * keys + 3 * wide) + 4 * (shape.num_heads + 2)
    if config.lora is None:
        return kept + size * normed + size * (2 * hidden + wide)
    adapted = adapted_linears(config, shape).values()
    ranks = _trained_size(config) * config.lora.rank * len(adapted) // shape.num_layers
    if size == _trained_size(config):  # the adapters read the layers' own inputs
        return kept + ranks + size * (2 * hidden + wide)
    return kept + ranks + 4 * sum(width for _, width in adapted) // shape.num_layers


def kv_bytes_per_token(config: RunConfig, shape: ModelShape) -> int:
    """Keys and values of one token in all layers."""
    return 2 * shape.num_kv_heads * shape.head_dim * shape.num_layers * BYTES[config.model.dtype]


def generates_itself(config: RunConfig) -> bool:
    """Whether the trainer's process generates, by this package's engine."""
    return config.rollouts.generator == "engine" and config.scale.generators == 0


def _generate(config: RunConfig, shape: ModelShape, num_processes: int) -> list[tuple[str, Phase, float]]:
    if not generates_itself(config):
        return []
    todo, rollouts = work(config, num_processes), config.rollouts
    row = todo.row_tokens * kv_bytes_per_token(config, shape)
    bound = rollouts.kv_cache_bytes or None
    rows = max(todo.num_rows * config.order.steps_under_way, todo.num_eval_rows)
    rows = min(rows, rollouts.num_slots or rows)
    pool = min(rows * row, bound) if bound else rows * row
    rows = min(rows, bound // row if bound else rows)
    keys_values: list[tuple[str, Phase, float]] = [("key-values", "generate", pool if bound else pool * 1.5)]
    if config.order.rest == "run":  # they stay while the update runs
        keys_values = [("key-values", "always", keys_values[0][2])]
    else:
        keys_values.append(("kept key-values", "update", min(pool, SPARE_BYTES)))
    return [
        *keys_values,
        ("decode", "generate", rows * shape.vocabulary * (BYTES[config.model.dtype] + 8)),
    ]
