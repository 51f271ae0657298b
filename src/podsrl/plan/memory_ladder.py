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

from collections.abc import Iterable, Iterator
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.plan.estimate import estimate, kv_bytes_per_token
from podsrl.run.before.model_shape import ModelShape
from podsrl.run.before.sizes import work

MIB = 1 << 20
LEAST_CHUNK_TOKENS = 128
"""Of `optim.logprob_chunk_tokens`: the head's product is slow with fewer rows."""
LEAST_NEW_TOKENS = 32
"""Of `rollouts.max_new_tokens`: no answer with its reasoning is shorter."""
LEAST_RANK = 8
ADAPTER_RANK = 64
"""The schema's default, and the paper's."""
_LITTLE_TIME = "nothing in the result; a little time"
LADDER = {
    "optim.micro_batch_tokens": _LITTLE_TIME,
    "optim.logprob_chunk_tokens": _LITTLE_TIME,
    "rollouts.kv_cache_bytes": "nothing in the result; fewer rollouts run at once",
    "scale.strategy": "nothing in the result; time to exchange what is shared out",
    "model.gradient_checkpointing": "nothing in the result; about a third more time in the update",
    "optim.name": "precision of the optimizer's moments; needs bitsandbytes and a GPU",
    "model.dtype": "precision of weights and activations",
    "lora.rank": "adapters of this rank are trained instead; they want an optim.lr of their own",
    "model.load_in_4bit": "precision of the frozen weights; needs bitsandbytes and a GPU",
    "rollouts.max_new_tokens": "longer answers are cut, so other things are learned",
}
"""Option -> what changing it costs, in words; from what costs least to what costs most."""
LAST = "rollouts.max_new_tokens"


def values_of(key: str, config: RunConfig, shape: ModelShape, num_processes: int) -> Iterable[Any]:
    """Values of an option that lower memory, from the mildest to the strongest; none at its end, or where idle."""
    optim, model, lora, todo = config.optim, config.model, config.lora, work(config, num_processes)
    match key:
        case "optim.micro_batch_tokens":
            return _halves(todo.micro_batch_tokens, todo.row_tokens)
        case "optim.logprob_chunk_tokens":
            return _halves(min(optim.logprob_chunk_tokens, todo.micro_batch_tokens), LEAST_CHUNK_TOKENS)
        case "rollouts.kv_cache_bytes":
            return _kv_sizes(config, shape, num_processes)
        case "scale.strategy":
            order = ("ddp", "zero2", "fsdp2")
            return order[order.index(config.scale.strategy) + 1 :] if num_processes > 1 else ()
        case "model.gradient_checkpointing":
            return () if model.gradient_checkpointing else (True,)
        case "optim.name":
            return () if optim.name == "adamw_8bit" else ("adamw_8bit",)
        case "model.dtype":
            return ("bfloat16",) if model.dtype == "float32" else ()
        case "lora.rank":
            return (ADAPTER_RANK,) if lora is None else _halves(lora.rank, LEAST_RANK)
        case "model.load_in_4bit":
            return (True,) if lora is not None and not model.load_in_4bit else ()
    return _halves(config.rollouts.max_new_tokens, LEAST_NEW_TOKENS)


def _halves(start: int, least: int) -> Iterator[int]:
    """Smaller numbers by a factor of two, down to the least itself."""
    size = start // 2
    while size > least:
        yield size
        size //= 2
    if least < start:
        yield least


def _kv_sizes(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[str]:
    """Powers of two, one and a half of them, and what one row takes; in MiB, under what is held now."""
    held = next((p.num_bytes for p in estimate(config, shape, num_processes) if p.name == "key-values"), 0)
    least = -(-work(config, num_processes).row_tokens * kv_bytes_per_token(config, shape) // MIB)
    sizes = {least, *(1 << exponent for exponent in range(40)), *(3 << exponent for exponent in range(40))}
    for mebibytes in sorted(sizes, reverse=True):
        if least <= mebibytes < held / MIB:
            yield f"{mebibytes // 1024}GiB" if mebibytes % 1024 == 0 else f"{mebibytes}MiB"
