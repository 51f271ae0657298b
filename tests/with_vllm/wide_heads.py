"""The package's own model with attention heads of 32: vLLM's kernels for CPUs have none for its heads of 16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podsrl.config.schema import ModelConfig
from podsrl.policy import load_tokenizer
from podsrl.policy.weights import load_model

WIDE = 32


def save_widened(folder: Path) -> Path:
    """Write a Llama that computes the same logits as builtin:arithmetic, with the same tokenizer.

    A head's two halves are rotated together by angles that shrink with the place in the half. In a half of twice the
    length every second place has the old angle; the places between are zeros, which add nothing to any product.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    source = ModelConfig(path="builtin:arithmetic", device="cpu")
    narrow = load_model(source)
    config = narrow.config
    width = config.hidden_size // config.num_attention_heads
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names += (
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
    )
    names += ("pad_token_id", "eos_token_id", "bos_token_id")
    shape: dict[str, Any] = {name: getattr(config, name) for name in names}
    wide = LlamaForCausalLM(LlamaConfig(**shape, head_dim=WIDE, attention_bias=True)).eval()
    places = torch.arange(width // 2) * (WIDE // width)
    rotated = torch.cat([places, places + WIDE // 2])
    scale = {"q_proj": (WIDE / width) ** 0.5}  # attention divides by the root of the head's width
    state = narrow.state_dict()
    with torch.no_grad():
        for name, target in wide.state_dict().items():
            _, _, kind = name.rpartition("self_attn.")
            projection = kind.partition(".")[0]
            if name not in state:  # the output projection of a Llama has a bias too
                target.zero_()
            elif projection in ("q_proj", "k_proj", "v_proj"):
                target.copy_(scale.get(projection, 1.0) * spread(state[name], rotated, width))
            elif projection == "o_proj":
                target.copy_(spread(state[name].T, rotated, width).T)
            else:
                target.copy_(state[name])
    wide.save_pretrained(folder)
    load_tokenizer(source).save_pretrained(folder)
    return folder


def spread(weight: Tensor, places: Tensor, width: int) -> Tensor:
    """[heads * width, …] with each head's rows at these places of `WIDE`, and zeros elsewhere."""
    heads = weight.reshape(-1, width, *weight.shape[1:])
    wide = weight.new_zeros(len(heads), WIDE, *weight.shape[1:])
    wide[:, places] = heads
    return wide.reshape(-1, *weight.shape[1:])
