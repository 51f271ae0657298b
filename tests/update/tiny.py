"""Tiny models and batches."""

import random
from typing import Any

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from made import sample
from podsrl.update import Batch, make_batch
from small_models import in_float64

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


def make_model(kind: str = "qwen2", dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> Any:
    """Its weights are the same each time; the dropout is that of attention."""
    torch.manual_seed(0)
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True, attention_dropout=dropout))
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SIZES))
    else:
        config = Gemma2Config(**SIZES, final_logit_softcapping=3.0, attn_implementation="eager")
        model = Gemma2ForCausalLM(config)
    return (in_float64(model) if dtype == torch.float64 else model.to(dtype)).eval()


def make_rows(num_rows: int = 12, advantages: list[float] | None = None) -> Batch:
    """Rows of 1 to 4 prompt tokens and 1 to 9 completion tokens, the same each time."""
    draw = random.Random(7)
    prompts = [[draw.randrange(1, 11) for _ in range(draw.randint(1, 4))] for _ in range(num_rows)]
    rows = []
    for _ in range(num_rows):
        tokens = [draw.randrange(1, 11) for _ in range(draw.randint(1, 9))]
        rows.append((tokens, tuple(-3.0 * draw.random() for _ in tokens)))
    values = advantages or [draw.uniform(-2, 2) for _ in range(num_rows)]
    samples = [
        sample(prompt, tokens, value, logprobs=logprobs)
        for prompt, (tokens, logprobs), value in zip(prompts, rows, values, strict=True)
    ]
    return make_batch(samples, pad_token_id=0)
