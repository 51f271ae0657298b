"""Options that lower a run's memory, from what costs least to what costs most.

    nothing in the result, little time      smaller micro-batches, fewer rows of logits at once, less key-value memory
    time, nothing in the result             weights or optimizer state shared out (several processes), checkpointing
    precision                               8-bit moments, bfloat16
    what is trained                         adapters, then a 4-bit base
    what is learned                         shorter completions

Fewer kept rollouts are no step: the update holds one micro-batch of them at a time, so that with the first step taken
they lower nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.plan.estimate import estimate, kv_bytes_per_token, work
from podsrl.run.model_shape import ModelShape

MIB = 1 << 20
LEAST_CHUNK_TOKENS = 128
"""Of `optim.logprob_chunk_tokens`: the head's product is slow with fewer rows."""
LEAST_NEW_TOKENS = 32
"""Of `rollouts.max_new_tokens`: no answer with its reasoning is shorter."""
LEAST_RANK = 8
ADAPTER_RANK = 64
"""The schema's default, and the paper's."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One option that lowers memory, and its values."""

    key: str
    cost: str
    """What changing it costs, in words."""
    values: Callable[[RunConfig, ModelShape, int], Iterator[Any]]
    """From the mildest to the strongest; none where the option is at its end or means nothing here."""


def _halves(start: int, least: int) -> Iterator[int]:
    """Smaller numbers by a factor of two, down to the least itself."""
    size = start // 2
    while size > least:
        yield size
        size //= 2
    if least < start:
        yield least


def _micro_batches(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[int]:
    todo = work(config, num_processes)
    return _halves(todo.micro_batch_tokens, todo.row_tokens)


def _chunks(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[int]:
    now = min(config.optim.logprob_chunk_tokens, work(config, num_processes).micro_batch_tokens)
    return _halves(now, LEAST_CHUNK_TOKENS)


def _kv_sizes(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[str]:
    """Powers of two, one and a half of them, and what one row takes; in MiB, under what is held now."""
    held = next((p.num_bytes for p in estimate(config, shape, num_processes) if p.name == "key-values"), 0)
    least = -(-work(config, num_processes).row_tokens * kv_bytes_per_token(config, shape) // MIB)
    sizes = {least, *(1 << exponent for exponent in range(40)), *(3 << exponent for exponent in range(40))}
    for mebibytes in sorted(sizes, reverse=True):
        if least <= mebibytes < held / MIB:
            yield _size_text(mebibytes)


def _size_text(mebibytes: int) -> str:
    return f"{mebibytes // 1024}GiB" if mebibytes % 1024 == 0 else f"{mebibytes}MiB"


def _strategies(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[str]:
    order = ("ddp", "zero2", "fsdp2")
    return iter(order[order.index(config.scale.strategy) + 1 :] if num_processes > 1 else ())


def _checkpointing(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[bool]:
    return iter([] if config.model.gradient_checkpointing else [True])


def _moments(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[str]:
    return iter([] if config.optim.name == "adamw_8bit" else ["adamw_8bit"])


def _dtypes(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[str]:
    return iter(["bfloat16"] if config.model.dtype == "float32" else [])


def _adapters(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[int]:
    return iter([ADAPTER_RANK] if config.lora is None else _halves(config.lora.rank, LEAST_RANK))


def _four_bits(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[bool]:
    return iter([True] if config.lora is not None and not config.model.load_in_4bit else [])


def _lengths(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[int]:
    return _halves(config.rollouts.max_new_tokens, LEAST_NEW_TOKENS)


NOTHING = "nothing in the result; a little time"
LADDER = (
    Rung("optim.micro_batch_tokens", NOTHING, _micro_batches),
    Rung("optim.logprob_chunk_tokens", NOTHING, _chunks),
    Rung("rollouts.kv_cache_bytes", "nothing in the result; fewer rollouts run at once", _kv_sizes),
    Rung("scale.strategy", "nothing in the result; time to exchange what is shared out", _strategies),
    Rung(
        "model.gradient_checkpointing", "nothing in the result; about a third more time in the update", _checkpointing
    ),
    Rung("optim.name", "precision of the optimizer's moments; needs bitsandbytes and a GPU", _moments),
    Rung("model.dtype", "precision of weights and activations", _dtypes),
    Rung("lora.rank", "adapters of this rank are trained instead; they want an optim.lr of their own", _adapters),
    Rung("model.load_in_4bit", "precision of the frozen weights; needs bitsandbytes and a GPU", _four_bits),
    Rung("rollouts.max_new_tokens", "longer answers are cut, so other things are learned", _lengths),
)
"""From what costs least to what costs most."""
LAST = LADDER[-1]
