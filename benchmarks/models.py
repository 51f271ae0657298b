"""Random models of known shapes, and workloads of ragged prompts and skewed lengths.

Three of the 64 tokens end a completion and all tokens are about equally likely, so lengths are geometric with a mean
near 20 in every engine. The model is an ordinary one, without a bias or a wrapper that only some engines would run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from podsrl.errors import UsageError, nearest
from podsrl.types import Rollout, Sample
from podsrl.update import Batch, make_batch


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Qwen2 decoder."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    vocab_size: int = 64
    tie_embeddings: bool = False


SHAPES = {
    "s128": Shape(128, 4, 4, 1, 336),
    "s256": Shape(256, 4, 4, 1, 672),
    "s384": Shape(384, 8, 6, 2, 1024, 4096, True),
    "s512": Shape(512, 8, 8, 2, 1344),
    "0.5b": Shape(896, 24, 14, 2, 4864, 151_936, True),
    "3b": Shape(2048, 36, 16, 2, 11_008, 151_936, True),
}
"""Name -> sizes: four small ones for a CPU, and Qwen2.5's own at 0.5 and 3 billion parameters."""

STOP_TOKEN_IDS = (1, 2, 3)
"""3 of 64 tokens: a completion goes on with probability 0.95."""
MAX_NEW_TOKENS = 128
_WINDOW = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The same requests for every engine.

    Example:
        >>> work = skewed_workload(4, 2)
        >>> work.num_rows, min(map(len, work.prompts)) >= 8
        (8, True)
    """

    prompts: tuple[tuple[int, ...], ...]
    """P prompts of token ids."""
    num_rollouts: int
    """Completions per prompt."""
    max_new_tokens: int = MAX_NEW_TOKENS
    """Token limit of a completion."""
    stop_token_ids: tuple[int, ...] = STOP_TOKEN_IDS
    """Any of them ends a completion; empty: every completion has `max_new_tokens`."""

    @property
    def num_rows(self) -> int:
        """Completions of all prompts together."""
        return len(self.prompts) * self.num_rollouts


def shaped_model(
    name: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu", **changes: Any
) -> Any:
    """A random Qwen2 model of a shape of `SHAPES`, ready to generate.

    Args:
        seed: of the weights.
        changes: of the model's config, such as `vocab_size`.
    """
    if name not in SHAPES:
        raise UsageError(f"model shape {name!r}: no such shape.{nearest(name, SHAPES)}")
    shape = SHAPES[name]
    own = {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "tie_word_embeddings": shape.tie_embeddings,
        "max_position_embeddings": _WINDOW,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
        "dtype": dtype,
    }
    config = Qwen2Config(**{**own, **changes})
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    return model.to(dtype=dtype).eval()


def skewed_workload(num_prompts: int, num_rollouts: int, *, seed: int = 0) -> Workload:
    """Distinct ragged prompts of 8 to 24 tokens; lengths geometric with a mean near 20, cut at 128."""
    draw = random.Random(seed)
    first = max(STOP_TOKEN_IDS) + 1
    last = SHAPES["s128"].vocab_size - 1
    prompts = (tuple(draw.randint(first, last) for _ in range(draw.randint(8, 24))) for _ in range(num_prompts))
    return Workload(prompts=tuple(prompts), num_rollouts=num_rollouts)


def fixed_workload(num_rollouts: int, *, prompt_tokens: int, new_tokens: int, num_prompts: int = 1) -> Workload:
    """Prompts of one length and completions that all run to the limit, so that a bandwidth floor can be computed."""
    draw = random.Random(0)
    last = SHAPES["s128"].vocab_size - 1
    prompts = tuple(tuple(draw.randint(4, last) for _ in range(prompt_tokens)) for _ in range(num_prompts))
    return Workload(prompts=prompts, num_rollouts=num_rollouts, max_new_tokens=new_tokens, stop_token_ids=())


def batch_of(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Rollout],
    advantages: Sequence[float],
    pad_token_id: int = 0,
) -> Batch:
    """The batch of an update on B rows."""
    group_ids = {tuple(prompt): str(i) for i, prompt in enumerate(prompts)}
    samples = [
        Sample(group_id=group_ids[tuple(prompt)], prompt_ids=tuple(prompt), rollout=completion, advantage=advantage)
        for prompt, completion, advantage in zip(prompts, completions, advantages, strict=True)
    ]
    return make_batch(samples, pad_token_id=pad_token_id)


def uniform_completion(index: int, token_ids: Sequence[int]) -> Rollout:
    """A completion of these tokens, with a log-probability of -4 each."""
    return Rollout(
        group_id="benchmark",
        index=index,
        token_ids=tuple(token_ids),
        logprobs=(-4.0,) * len(token_ids),
        finish_reason="length",
        version=0,
    )
