"""4-bit weights under adapters: what is trained, what is sampled and what is saved, run on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from policies import teach
from transformers import AutoModelForCausalLM

from podsrl.config.schema import ModelConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine
from podsrl.policy import Policy, check_model_options, load_model, load_policy, load_tokenizer
from podsrl.policy.quantized import is_4bit
from podsrl.sync import sync_weights

pytestmark = pytest.mark.slow  # its import takes longer than the tests

bitsandbytes = pytest.importorskip("bitsandbytes")
IDS = torch.tensor([[5, 9, 17, 30, 4, 8]])


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def wide_folder(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_model: Callable[..., Any],
    tokenizer: Any,
) -> Path:
    """Wide enough for blocks of 64 weights."""
    folder = tmp_path_factory.mktemp("wide") / request.param
    model = make_model(request.param, hidden_size=64, intermediate_size=128, head_dim=16, initializer_range=0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def policy(wide_folder: Path) -> Policy:
    config = RunConfig.model_validate(
        {"model": {"path": str(wide_folder), "device": "cpu", "load_in_4bit": True}, "lora": {"rank": 4, "alpha": 8}}
    )
    check_model_options(config)
    return load_policy(config, load_tokenizer(config.model))


def test_the_base_is_in_4_bits_and_the_generator_is_a_plain_model(policy: Policy) -> None:
    four_bit = [name for name, module in policy.model.named_modules() if is_4bit(module)]
    assert len(four_bit) == 14
    assert not any(is_4bit(module) for module in policy.generator_model.modules())
    assert Engine(policy.generator_model).forward.name == "fast"
    assert "on 14 modules in 4 bits" in policy.description
    whole = sum(parameter.numel() for parameter in policy.generator_model.parameters())
    trained = sum(tensor.numel() for tensor in policy.weights().values())
    assert f"{trained:,} of {whole + trained:,} weights" in policy.description


def test_the_dequantised_weights_are_near_the_originals_and_on_sixteen_levels(
    policy: Policy, wide_folder: Path
) -> None:
    plain = AutoModelForCausalLM.from_pretrained(wide_folder)
    name = "model.layers.0.mlp.up_proj.weight"
    ours, original = dict(policy.sampled_weights())[name], plain.get_parameter(name).detach()
    blocks = ours.reshape(-1, 64)
    levels = {len(block.unique()) for block in blocks}
    assert 4 < max(levels) <= 16
    # the widest gap between NF4's levels is 0.304 of a block's largest weight
    bound = 0.16 * original.reshape(-1, 64).abs().amax(1, keepdim=True)
    assert ((blocks - original.reshape(-1, 64)).abs() <= bound).all()


def test_generator_and_update_agree_before_and_after_training(policy: Policy) -> None:
    engine = Engine(policy.generator_model)
    assert torch.allclose(policy.model(IDS).logits, policy.generator_model(IDS).logits, atol=1e-4)
    with torch.no_grad():
        base = policy.model(IDS).logits
    teach(policy)
    sync_weights(policy.sampled_weights(), engine, version=1)
    assert (policy.model(IDS).logits - base).abs().max() > 0.01
    assert torch.allclose(policy.model(IDS).logits, policy.generator_model(IDS).logits, atol=1e-3)
    with policy.reference() as reference, torch.no_grad():
        assert torch.equal(reference(IDS).logits, base)


def test_a_forward_in_evaluation_leaves_the_stored_weights_as_they_are(policy: Policy) -> None:
    before = {name: tensor.clone() for name, tensor in policy.sampled_weights()}
    with torch.inference_mode(), policy.reference() as reference:
        reference(IDS)
        policy.model(IDS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.sampled_weights())


def test_adapters_get_the_gradient_that_the_dequantised_model_gives(
    policy: Policy, wide_folder: Path, tmp_path: Path
) -> None:
    teach(policy)
    policy.save(tmp_path)
    found = []
    options: list[dict[str, Any]] = [{"load_in_4bit": True}, {}]
    for option in options:
        config = RunConfig.model_validate(
            {"model": {"path": str(wide_folder), "device": "cpu", **option}, "lora": {"rank": 4, "alpha": 8}}
        )
        whole = None if option else load_dequantised(policy)
        other = load_policy(config, load_tokenizer(config.model), model=whole)
        other.load(tmp_path)
        other.model(IDS, labels=IDS).loss.backward()
        found.append([p.grad for p in other.model.parameters() if p.requires_grad])
    assert len(found[0]) == len(found[1]) == 28
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, atol=1e-5, rtol=1e-3)


def load_dequantised(policy: Policy) -> Any:
    """A plain model with the base's dequantised weights."""
    for tensor in (weights := policy.weights()).values():
        tensor.zero_()
    plain = policy.generator_model
    sync_weights(policy.sampled_weights(), Engine(plain), version=0)
    assert weights
    return plain.requires_grad_(True)


def test_4_bits_of_a_folder_of_adapters_are_refused(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    with pytest.raises(UsageError, match="holds adapters, which cannot be merged into 4-bit weights"):
        load_model(ModelConfig(path=str(tmp_path), device="cpu", load_in_4bit=True))
