"""Tiny models and batches for the tests of this folder."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from podsrl.types import Completion, Sample
from podsrl.update import Batch, make_batch

SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.5,
}


@pytest.fixture
def make_model() -> Callable[..., nn.Module]:
    """kind, dtype, attention dropout -> a model whose weights are the same each time."""

    def build(kind: str = "qwen2", dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> nn.Module:
        torch.manual_seed(0)
        if kind == "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True, attention_dropout=dropout))
        elif kind == "llama":
            model = LlamaForCausalLM(LlamaConfig(**SIZES))
        else:
            config = Gemma2Config(**SIZES, final_logit_softcapping=3.0, attn_implementation="eager")
            model = Gemma2ForCausalLM(config)
        return model.to(dtype).eval()

    return build


@pytest.fixture
def make_rows() -> Callable[..., Batch]:
    """Number of rows, advantages -> rows of 1 to 4 prompt tokens and 1 to 9 completion tokens, the same each time."""

    def build(num_rows: int = 12, advantages: list[float] | None = None) -> Batch:
        draw = random.Random(7)
        prompts = [[draw.randrange(1, 11) for _ in range(draw.randint(1, 4))] for _ in range(num_rows)]
        completions = []
        for index in range(num_rows):
            count = draw.randint(1, 9)
            completions.append(
                Completion(
                    request_id="r",
                    index=index,
                    token_ids=tuple(draw.randrange(1, 11) for _ in range(count)),
                    logprobs=tuple(-3.0 * draw.random() for _ in range(count)),
                    finish_reason="stop",
                    version=0,
                )
            )
        values = advantages or [draw.uniform(-2, 2) for _ in range(num_rows)]
        samples = [
            Sample(group_id="g", prompt_ids=tuple(prompt), completion=done, advantage=value)
            for prompt, done, value in zip(prompts, completions, values, strict=True)
        ]
        return make_batch(samples, pad_token_id=0)

    return build
