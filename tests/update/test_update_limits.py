"""Rows that would get other log-probs in another micro-batch, and modules that keep their mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import make_model, make_rows
from transformers import AutoModelForCausalLM, LlamaConfig, ModernBertDecoderConfig

from made import sample
from podsrl.config.schema import OptimConfig
from podsrl.errors import UsageError
from podsrl.update import ALGORITHMS, Batch, TokenLogprobs, Updater, head_path, make_batch

SIZES = {"vocab_size": 11, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0] * 4,
    "long_factor": [8.0] * 4,
    "original_max_position_embeddings": 8,
}


def rows_of(*lengths: int) -> Batch:
    prompts = [[1 + (3 * place) % 10 for place in range(length - 2)] for length in lengths]
    return make_batch([sample(prompt, (3, 4)) for prompt in prompts], pad_token_id=0)


def longrope_model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        **SIZES,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
        max_position_embeddings=64,
        rope_parameters=dict(LONGROPE),
    )
    return AutoModelForCausalLM.from_config(config).eval()


def test_rows_past_the_original_window_are_refused_because_they_would_change_their_neighbours() -> None:
    forward = TokenLogprobs(longrope_model())
    short = forward(rows_of(6, 8))[0][0]
    assert torch.allclose(forward(rows_of(6))[0][0, :6], short[:6], atol=1e-5)
    with pytest.raises(UsageError, match=r"a row has 12 tokens, which exceeds the 8 tokens from which its rotary"):
        forward(rows_of(6, 12))
    forward._limit = None
    assert (forward(rows_of(6, 12))[0][0, :6] - short[:6]).abs().max() > 1e-3


def test_a_head_that_calls_itself_the_decoder_is_not_taken_for_one() -> None:
    sizes = {**SIZES, "num_attention_heads": 2, "layer_types": ["full_attention"], "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(ModernBertDecoderConfig(**sizes)).eval()
    assert model.get_decoder() is model.get_output_embeddings()
    with pytest.warns(UserWarning, match="all logits are held at once"):
        assert head_path(model).name == "full"


@pytest.mark.parametrize("is_training", [True, False])
def test_an_update_leaves_every_module_in_its_own_mode(is_training: bool) -> None:
    model = make_model().train(is_training)
    model.model.layers[0].eval()
    before, during = [module.training for module in model.modules()], []
    updater = Updater(model, OptimConfig(lr=1e-3), loss=ALGORITHMS["grpo"].loss)
    model.model.layers[0].register_forward_hook(lambda module, *_: during.append(module.training))
    updater.forward_backward(make_rows())
    assert [module.training for module in model.modules()] == before
    assert set(during) == {not is_training}  # frozen by its owner in a model that trains; else trained with the rest
