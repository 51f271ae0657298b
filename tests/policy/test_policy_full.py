"""A policy whose weights are all trained: one model for update and generator; checkpoints come back exactly."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from policies import Folders, policy_of, teach
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from podsrl.config.schema import RunConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.generate import Engine
from podsrl.policy import AdaptedPolicy, Policy, load_policy

IDS = torch.tensor([[5, 9, 17, 30, 4, 8]])


def test_update_and_generator_are_one_model(family_folder: Path) -> None:
    policy = policy_of(family_folder)
    assert policy.generator_model is policy.model and not isinstance(policy, AdaptedPolicy)
    sampled = dict(policy.sampled_weights())
    own = dict(policy.model.named_parameters())
    assert sampled.keys() == own.keys()
    assert all(sampled[name].data_ptr() == own[name].data_ptr() and not sampled[name].requires_grad for name in own)


def test_the_description_counts_tied_weights_once(folders: Folders) -> None:
    head = 99 * 32
    # a layer: norms 2·32; q, o 32·32; k, v 32·16; three of 32·64. Besides: the last norm, the embedding
    layer = 2 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64
    whole = 2 * layer + 32 + head
    assert policy_of(folders["llama", True]).description == f"all {whole:,} weights are trained"
    assert policy_of(folders["llama", False]).description == f"all {whole + head:,} weights are trained"


def test_sharded_parameters_are_made_whole_on_the_way(folders: Folders) -> None:
    policy = policy_of(folders["qwen2", True])
    for name, tensor in policy.sampled_weights(full=lambda shard: shard * 2):
        assert torch.equal(tensor, policy.model.get_parameter(name).detach() * 2)


def test_a_saved_policy_loads_in_plain_transformers_with_equal_logits(family_folder: Path, tmp_path: Path) -> None:
    policy = policy_of(family_folder)
    teach(policy)
    policy.save(tmp_path / "saved")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert torch.equal(plain(IDS).logits, policy.model(IDS).logits)
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").encode("1+2") == policy.tokenizer.encode("1+2")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_saved_policy_comes_back_bit_for_bit_into_the_same_memory(
    family_folder: Path, tmp_path: Path, dtype: str
) -> None:
    policy, other = policy_of(family_folder, dtype=dtype), policy_of(family_folder, dtype=dtype)
    teach(policy)
    policy.save(tmp_path)
    places = [tensor.data_ptr() for tensor in other.weights().values()]
    other.load(tmp_path)
    assert [tensor.data_ptr() for tensor in other.weights().values()] == places
    for name, tensor in policy.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_whole_tensors_from_elsewhere_are_saved_in_place_of_the_live_ones(folders: Folders, tmp_path: Path) -> None:
    policy = policy_of(folders["qwen2", True])
    policy.save(tmp_path, {name: tensor + 1 for name, tensor in policy.weights().items()})
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == policy.weights().keys()
    assert torch.equal(saved["model.norm.weight"], policy.model.model.norm.weight.detach() + 1)


def test_a_family_whose_files_have_other_names_comes_back_too(
    make_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    config = RunConfig.model_validate({"model": {"path": "unused", "device": "cpu"}})
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
    policy, other = (load_policy(config, tokenizer, model=make_model("qwen3_moe", **sizes)) for _ in range(2))
    teach(policy)
    policy.save(tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() != policy.weights().keys()
    other.load(tmp_path)
    assert all(torch.equal(tensor, other.weights()[name]) for name, tensor in policy.weights().items())


DAMAGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda weights: weights.pop("model.norm.weight"), "lacks 1 of its weights .model.norm.weight"),
    (lambda weights: weights.update({"model.norm.weight": torch.zeros(31)}), "has shape .31,., the model's .32,."),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_checkpoint_changes_nothing(
    folders: Folders, tmp_path: Path, damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    policy = policy_of(folders["qwen2", True])
    before = {name: tensor.clone() for name, tensor in policy.weights().items()}
    folder = Path(shutil.copytree(folders["qwen2", False], tmp_path / "other"))
    folder = Path(shutil.copytree(folders["qwen2", True], tmp_path / "damaged"))
    weights = {name: tensor + 1 for name, tensor in load_file(folder / "model.safetensors").items()}
    damage(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        policy.load(folder)
    with pytest.raises(CheckpointError, match=r"'model.embed_tokens.weight' is missing"):
        policy.load(tmp_path / "nowhere")
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.weights().items())


def test_a_tokenizer_with_tokens_beyond_the_model_is_refused(make_model: Callable[..., Any], tokenizer: Any) -> None:
    with pytest.raises(UsageError, match=r"its tokenizer does not match: '.' is token 98, but the model has 98 tokens"):
        load_policy(RunConfig(), tokenizer, model=make_model("qwen2", vocab_size=98))


# --- gradient checkpointing ---


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    policy.model.train()
    policy.model(IDS, labels=IDS).loss.backward()
    policy.model.eval()
    return {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}


def num_kept(policy: Policy) -> int:
    """Elements that a training forward keeps for its backward."""
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    policy.model.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.model(IDS)
    policy.model.eval()
    return sum(kept)


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_gradient_checkpointing_keeps_less_and_gives_the_same_gradients(
    family_folder: Path, lora: dict[str, Any] | None
) -> None:
    found = []
    for is_on in (False, True):
        policy = policy_of(family_folder, lora, gradient_checkpointing=is_on)
        teach(policy)
        found.append((gradients(policy), num_kept(policy)))
    (plain, kept), (again, kept_again) = found
    assert plain.keys() == again.keys() and len(plain) >= 14
    assert all(torch.equal(plain[name], again[name]) for name in plain)
    assert kept_again < kept / 2


def test_gradient_checkpointing_leaves_the_generator_its_fast_step(folders: Folders) -> None:
    for lora in (None, {"rank": 4}):
        policy = policy_of(folders["qwen2", True], lora, gradient_checkpointing=True)
        assert Engine(policy.generator_model).forward.name == "fast"


def test_a_model_that_cannot_checkpoint_is_refused(make_model: Callable[..., Any], tokenizer: Any) -> None:
    model = make_model("qwen2")
    model.supports_gradient_checkpointing = False
    config = RunConfig.model_validate({"model": {"gradient_checkpointing": True}})
    with pytest.raises(UsageError, match=r"model.gradient_checkpointing: Qwen2ForCausalLM does not support it"):
        load_policy(config, tokenizer, model=model)
