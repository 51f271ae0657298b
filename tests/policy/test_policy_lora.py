"""Adapters: the generator samples from W + (alpha / r) B A, everything else is shared, and PEFT reads what is saved."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from policies import Folders, policy_of, teach
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from made import sample
from podsrl.config.schema import LoraConfig, ModelConfig, OptimConfig, RunConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.policy import AdaptedPolicy, check_model_options, load_model, load_policy, load_tokenizer
from podsrl.policy.lora import find_targets
from podsrl.sync import sync_weights, weights_digest
from podsrl.update import ALGORITHMS, Updater, head_path, make_batch

LORA = {"rank": 4, "alpha": 8.0}
IDS = torch.tensor([[5, 9, 17, 30, 4, 8], [3, 3, 60, 7, 80, 98]])
ADAPTED = {f"{part}_proj" for part in ("q", "k", "v", "o", "gate", "up", "down")}


def greedy(model: Any, num_tokens: int = 12) -> list[int]:
    """Argmax tokens by the model's whole forward, one at a time."""
    ids = IDS[:1]
    for _ in range(num_tokens):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, IDS.shape[1] :].tolist()


def engine_greedy(model: Any, num_tokens: int = 12) -> list[int]:
    sampling = Sampling(temperature=1.0, top_k=1, max_new_tokens=num_tokens, stop_token_ids=())
    (completion,) = Engine(model).generate([Request("a", tuple(IDS[0].tolist()), 1, sampling)])
    return list(completion.token_ids)


# --- what is sampled ---


def test_the_generator_samples_from_the_adapted_weights_after_a_sync(family_folder: Path) -> None:
    policy = policy_of(family_folder, LORA)
    engine = Engine(policy.generator_model)
    base = policy.generator_model(IDS).logits
    assert torch.allclose(policy.model(IDS).logits, base, atol=1e-6)  # the adapters are 0 at first
    teach(policy)
    before = sync_weights(policy.sampled_weights(), engine, version=1)
    adapted = policy.model(IDS).logits
    assert (adapted - base).abs().max() > 0.1
    assert torch.allclose(policy.generator_model(IDS).logits, adapted, atol=1e-3, rtol=1e-4)
    assert engine.forward.name == "fast"
    assert engine_greedy(policy.generator_model) == greedy(policy.model)
    assert before == weights_digest(policy.generator_model.named_parameters())


def test_a_merged_matrix_is_the_base_plus_the_scaled_product(family_folder: Path) -> None:
    policy = policy_of(family_folder, LORA)
    plain = AutoModelForCausalLM.from_pretrained(family_folder)
    teach(policy)
    factors = policy.weights()
    sampled = dict(policy.sampled_weights())
    assert sampled.keys() == dict(plain.named_parameters()).keys()
    for name, weight in plain.named_parameters():
        owner = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{owner}.lora_A.weight" in factors:
            first, second = (factors[f"{owner}.lora_{letter}.weight"].double() for letter in "AB")
            assert name.split(".")[-2] in ADAPTED
            weight = weight.double() + (8.0 / 4) * torch.einsum("or,ri->oi", second, first)
        assert torch.allclose(sampled[name].double(), weight.double(), atol=1e-6), name


def test_only_adapted_matrices_are_held_twice_and_a_sync_leaves_the_base_alone(family_folder: Path) -> None:
    policy = policy_of(family_folder, LORA)
    trained = {parameter.data_ptr() for parameter in policy.model.parameters()}
    own = {name for name, p in policy.generator_model.named_parameters() if p.data_ptr() not in trained}
    assert own == {
        name
        for name, _ in policy.generator_model.named_parameters()
        if name.split(".")[-2] in ADAPTED and "bias" not in name
    }
    base = AutoModelForCausalLM.from_pretrained(family_folder)
    teach(policy)
    sync_weights(policy.sampled_weights(), Engine(policy.generator_model), version=1)
    with policy.reference() as reference:
        assert torch.equal(reference(IDS).logits, base(IDS).logits)


def test_a_sync_merges_one_matrix_at_a_time(folders: Folders) -> None:
    policy = policy_of(folders["qwen2", True], LORA)
    engine = Engine(policy.generator_model)
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    def watched() -> Any:
        nonlocal most
        for name, tensor in policy.sampled_weights():
            if name.split(".")[-2] in ADAPTED and not name.endswith("bias"):
                alive.add(tensor)
            most = max(most, len(alive))
            yield name, tensor

    sync_weights(watched(), engine, version=1)
    assert 1 <= most <= 2  # of fourteen: one in use and the one before it


def test_every_optimizer_step_changes_the_digest_and_the_base_has_another(folders: Folders) -> None:
    policy = policy_of(folders["llama", False], LORA)
    updater = Updater(policy.model, OptimConfig(lr=1e-4), loss=ALGORITHMS["grpo"].loss)
    digests = [weights_digest(policy.sampled_weights())]
    for step in range(3):
        updater.forward_backward(batch(step))
        assert updater.optim_step() > 0
        digests.append(weights_digest(policy.sampled_weights()))
    assert len(set(digests)) == 4


def batch(seed: int = 0) -> Any:
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 99, (4, 5), generator=draw).tolist()
    advantages = (1.0, -1.0, 0.5, -0.5)
    samples = [sample((5, 9, 17), row, a, logprobs=(-3.0,) * 5) for row, a in zip(tokens, advantages, strict=True)]
    return make_batch(samples, pad_token_id=0)


# --- what is trained ---


def test_an_update_moves_adapters_and_nothing_else(family_folder: Path) -> None:
    policy = policy_of(family_folder, LORA)
    names = {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
    assert len(names) == 28 and all(".lora_" in name for name in names)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    updater = Updater(policy.model, OptimConfig(lr=1e-2), loss=ALGORITHMS["grpo"].loss)
    assert head_path(policy.model).name == "chunked"
    for _ in range(2):  # the first step moves B alone, since A's gradient is 0 while B is
        updater.forward_backward(batch())
        updater.optim_step()
    changed = {name for name, p in policy.model.named_parameters() if not torch.equal(p.detach(), before[name])}
    assert changed == names


def test_adapters_of_a_16_bit_model_are_float32_and_the_sum_is_rounded_once(folders: Folders) -> None:
    policy = policy_of(folders["qwen2", True], LORA, dtype="bfloat16")
    teach(policy)
    assert {tensor.dtype for tensor in policy.weights().values()} == {torch.float32}
    name = "model.layers.0.self_attn.q_proj"
    layer = policy.model.get_base_model().get_submodule(name)
    factors = [policy.weights()[f"base_model.model.{name}.lora_{letter}.weight"] for letter in "BA"]
    wanted = (layer.base_layer.weight.float() + 2.0 * factors[0] @ factors[1]).bfloat16()
    assert torch.equal(dict(policy.sampled_weights())[f"{name}.weight"], wanted)
    updater = Updater(policy.model, OptimConfig(lr=1e-3), loss=ALGORITHMS["grpo"].loss)
    assert updater.forward_backward(batch()).num_trained_rows == 4
    assert updater.optim_step() > 0


def test_adapters_of_16_bits_have_float32_copies_and_are_merged_in_float32(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU. A step of 1e-6 is far below the last bit of a weight, and its copy takes it all the same."""
    monkeypatch.setattr("podsrl.policy.lora.adapter_dtype", lambda dtype, device: dtype)
    policy = policy_of(folders["qwen2", True], LORA, dtype="bfloat16")
    teach(policy)
    weights = policy.weights()
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    name = "model.layers.0.self_attn.q_proj"
    base = policy.model.get_base_model().get_submodule(name).base_layer.weight.float()
    second, first = (weights[f"base_model.model.{name}.lora_{letter}.weight"].float() for letter in "BA")
    assert torch.equal(dict(policy.sampled_weights())[f"{name}.weight"], (base + 2.0 * second @ first).bfloat16())
    updater = Updater(policy.model, OptimConfig(lr=1e-6), loss=ALGORITHMS["grpo"].loss)
    updater.forward_backward(batch())
    updater.optim_step()
    masters = {key: value for key, value in updater.state_dict()[0].items() if key.startswith("master/")}
    assert len(masters) == len(weights) and {value.dtype for value in masters.values()} == {torch.float32}
    assert any((value != value.bfloat16()).any() for value in masters.values())


def test_first_values_depend_on_the_seed_and_the_module_alone(
    make_model: Callable[..., Any], tokenizer: Any, folders: Folders
) -> None:
    def first(seed: int, targets: tuple[str, ...]) -> torch.Tensor:
        torch.rand(seed + 1)  # another state of the global generator
        config = RunConfig(seed=seed, lora=LoraConfig(rank=4, targets=targets))
        policy = load_policy(config, tokenizer, model=make_model("qwen2"))
        return policy.weights()["base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight"]

    assert torch.equal(first(0, ("all-linear",)), first(0, ("v_proj", "q_proj")))
    assert not torch.equal(first(0, ("v_proj",)), first(1, ("v_proj",)))
    bound = 1 / 32**0.5  # Kaiming uniform with a = sqrt(5): ± 1 / sqrt(inputs)
    assert bound * 0.9 < first(0, ("v_proj",)).abs().max() <= bound


def test_the_description_counts_what_is_trained(folders: Folders) -> None:
    policy = policy_of(folders["llama", True], {"rank": 4, "alpha": 8.0, "targets": ("q_proj", "v_proj")})
    trained = 2 * (4 * 32 + 32 * 4 + 4 * 32 + 16 * 4)  # two layers: q 32 -> 32, v 32 -> 16
    whole = 2 * (2 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64) + 32 + 99 * 32 + trained
    assert policy.description == (f"LoRA r = 4, alpha = 8 on 4 modules: {trained:,} of {whole:,} weights are trained")


# --- the reference ---


def test_the_reference_is_the_base_and_leaves_the_gradient_as_it_was(family_folder: Path) -> None:
    policy = policy_of(family_folder, LORA)
    teach(policy)

    def gradient(with_reference: bool) -> list[torch.Tensor]:
        policy.model.zero_grad()
        loss = policy.model(IDS, labels=IDS).loss
        if with_reference:
            with policy.reference() as reference, torch.no_grad():
                reference(IDS)
        loss.backward()
        return [p.grad.clone() for p in policy.model.parameters() if p.requires_grad]

    alone, beside = gradient(False), gradient(True)
    assert len(alone) == len(beside) == 28
    assert all(torch.equal(one, other) for one, other in zip(alone, beside, strict=True))


def test_adapters_are_on_again_after_an_error_in_the_reference(folders: Folders) -> None:
    policy = policy_of(folders["qwen2", True], LORA)
    teach(policy)
    adapted = policy.model(IDS).logits
    with pytest.raises(ZeroDivisionError), policy.reference():
        _ = 1 / 0
    assert torch.equal(policy.model(IDS).logits, adapted)


def test_the_kl_penalty_is_measured_from_the_base(folders: Folders) -> None:
    policy = policy_of(folders["qwen2", True], LORA)
    frozen = AutoModelForCausalLM.from_pretrained(folders["qwen2", True])
    teach(policy)
    kls = []
    for reference in ({"reference_context": policy.reference}, {"reference": frozen}):
        updater = Updater(policy.model, OptimConfig(lr=1e-3), loss=ALGORITHMS["grpo"].loss, kl_beta=0.1, **reference)
        kls.append(updater.forward_backward(batch()).kl)
    assert kls[0] == pytest.approx(kls[1], rel=1e-6) and kls[0] > 0.01


# --- checkpoints ---


def test_a_saved_adapter_loads_in_plain_peft_with_equal_logits_and_tokens(family_folder: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    policy = policy_of(family_folder, LORA)
    teach(policy)
    policy.save(tmp_path)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(family_folder), tmp_path).eval()
    assert torch.equal(plain(IDS).logits, policy.model(IDS).logits)
    assert greedy(plain) == greedy(policy.model)
    sync_weights(policy.sampled_weights(), Engine(policy.generator_model), version=1)
    assert engine_greedy(policy.generator_model) == greedy(plain)


def test_saved_files_are_those_of_peft(folders: Folders, tmp_path: Path) -> None:
    from peft.utils.save_and_load import get_peft_model_state_dict

    policy = policy_of(folders["qwen2", False], LORA)
    policy.save(tmp_path / "ours")
    policy.model.save_pretrained(tmp_path / "peft")
    ours, theirs = (load_file(tmp_path / who / "adapter_model.safetensors") for who in ("ours", "peft"))
    assert ours.keys() == theirs.keys() == get_peft_model_state_dict(policy.model).keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    config, other = (json.loads((tmp_path / who / "adapter_config.json").read_text()) for who in ("ours", "peft"))
    assert sorted(config.pop("target_modules")) == sorted(other.pop("target_modules"))
    assert config == other
    assert config["base_model_name_or_path"] == str(folders["qwen2", False])
    assert (config["r"], config["lora_alpha"], config["inference_mode"]) == (4, 8, True)
    assert (tmp_path / "ours" / "tokenizer.json").is_file()


def test_adapters_come_back_bit_for_bit(family_folder: Path, tmp_path: Path) -> None:
    policy, other = (policy_of(family_folder, LORA) for _ in range(2))
    teach(policy)
    policy.save(tmp_path)
    other.load(tmp_path)
    assert torch.equal(policy.model(IDS).logits, other.model(IDS).logits)
    assert weights_digest(policy.sampled_weights()) == weights_digest(other.sampled_weights())


def test_adapters_of_another_rank_change_nothing(folders: Folders, tmp_path: Path) -> None:
    policy_of(folders["qwen2", True], LORA).save(tmp_path)
    policy = policy_of(folders["qwen2", True], {"rank": 2})
    before = weights_digest(policy.sampled_weights())
    with pytest.raises(CheckpointError, match=r"lora_A.weight' has shape \(4, .*, the model's \(2, "):
        policy.load(tmp_path)
    assert weights_digest(policy.sampled_weights()) == before


def test_the_same_adapters_are_the_same_bytes_in_every_process(folders: Folders, tmp_path: Path) -> None:
    policy = policy_of(folders["qwen2", True], {"rank": 4, "targets": ("v_proj", "q_proj", "k_proj", "o_proj")})
    assert isinstance(policy.model.peft_config["default"].target_modules, set)  # its order depends on the process
    policy.save(tmp_path)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())
    assert saved["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]


# --- a folder of adapters as model.path ---


def test_a_folder_of_adapters_loads_as_its_base_with_them_merged(family_folder: Path, tmp_path: Path) -> None:
    policy = policy_of(family_folder, LORA)
    teach(policy)
    policy.save(tmp_path)
    config = ModelConfig(path=str(tmp_path), device="cpu")
    merged = load_model(config)
    assert type(merged) is type(policy.generator_model)
    for name, tensor in policy.sampled_weights():
        assert torch.allclose(merged.get_parameter(name), tensor, atol=1e-6), name
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()  # then its base's
    assert load_tokenizer(config).encode("1+2") == policy.tokenizer.encode("1+2")


def test_adapters_on_the_builtin_model_name_a_folder_that_plain_peft_can_read(tmp_path: Path) -> None:
    from peft import PeftModel

    config = RunConfig.model_validate({"model": {"device": "cpu"}, "lora": LORA})
    load_policy(config, load_tokenizer(config.model)).save(tmp_path)
    base = json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"]
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path)


def test_new_adapters_on_a_folder_of_adapters_are_refused(folders: Folders, tmp_path: Path) -> None:
    """Saved, they would name that folder as their base, and plain PEFT would read them as another model."""
    policy = policy_of(folders["qwen2", True], LORA)
    teach(policy)
    policy.save(tmp_path)
    with pytest.raises(UsageError, match="merge them into their base first"):
        policy_of(tmp_path, LORA)
    options = {"model": {"path": str(tmp_path), "device": "cpu"}, "lora": LORA}
    with pytest.raises(UsageError, match="merge them into their base first"):
        check_model_options(RunConfig.model_validate(options))
    assert not isinstance(policy_of(tmp_path), AdaptedPolicy)  # the merged weights can be trained


def test_the_base_and_its_tokenizer_are_read_at_the_revision_that_adapters_name(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy_of(folders["qwen2", True], LORA, revision="then").save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    seen: dict[str, str | None] = {}
    for auto in (AutoConfig, AutoTokenizer):

        def watched(path: str, *, revision: str | None = None, read: Any = auto.from_pretrained, **options: Any) -> Any:
            seen.setdefault(read.__self__.__name__, revision)
            return read(path, **options)

        monkeypatch.setattr(auto, "from_pretrained", watched)
    load_tokenizer(ModelConfig(path=str(tmp_path), device="cpu"))
    assert seen == {"AutoConfig": "then", "AutoTokenizer": "then"}


def test_a_base_below_the_home_folder_is_named_so_that_peft_finds_it(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = folders["qwen2", True]
    monkeypatch.setenv("HOME", str(base.parent))
    policy_of(Path("~") / base.name, LORA).save(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)


BROKEN: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "adapter_model.safetensors").unlink(), "adapters without their weights"),
    (lambda folder: (folder / "adapter_config.json").write_text("{}"), "names no base_model_name_or_path"),
    (lambda folder: (folder / "adapter_config.json").write_text("{"), "adapter_config.json is damaged"),
    (
        lambda folder: save_file({"a": torch.zeros(1)}, folder / "adapter_model.safetensors", {"format": "pt"}),
        "does not match its base: it also holds 29 adapter weights",
    ),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN)
def test_a_broken_folder_of_adapters_is_refused(
    folders: Folders, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    policy_of(folders["qwen2", True], LORA).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(UsageError, match=message):
        load_model(ModelConfig(path=str(tmp_path), device="cpu"))


def test_a_whole_model_with_adapters_is_refused(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a name on the hub once it is read: transformers puts the adapters on top."""
    policy_of(folders["qwen2", True], LORA).save(tmp_path)
    copytree(folders["qwen2", True], tmp_path, dirs_exist_ok=True)
    for message in ("holds a whole model and adapters: remove", "holds adapters, which transformers put on a base"):
        with pytest.raises(UsageError, match=message):
            load_model(ModelConfig(path=str(tmp_path), device="cpu"))
        monkeypatch.setattr("podsrl.policy.weights.base_of", lambda config: None)


# --- targets ---


def test_all_linear_is_every_linear_layer_but_the_head(tiny_model: Any) -> None:
    found = find_targets(tiny_model, ("all-linear",))
    assert len(found) == 14 and {name.rpartition(".")[2] for name in found} == ADAPTED


def test_targets_are_ends_of_names_at_a_dot(make_model: Callable[..., Any]) -> None:
    model = make_model("qwen2")
    assert find_targets(model, ("1.mlp.up_proj", "k_proj")) == [
        "model.layers.0.self_attn.k_proj",
        "model.layers.1.self_attn.k_proj",
        "model.layers.1.mlp.up_proj",
    ]


WRONG = [
    (("q_porj",), r"'q_porj' matches no module of this model\. Did you mean 'q_proj'\?"),
    (("proj",), r"'proj' matches no module of this model\."),
    (("q_proj", "mlp"), r"'mlp' matches model.layers.0.mlp, a Qwen2MLP; wanted linear layers"),
    (("embed_tokens",), r"'embed_tokens' matches model.embed_tokens, a Embedding; wanted linear layers"),
    (("all-linear", "lm_head"), r"'all-linear' stands for all of them, so it stands alone"),
    (("lm_head",), r"output head, but this model's head is its embedding"),
]


@pytest.mark.parametrize(("targets", "message"), WRONG)
def test_a_target_that_is_none_is_refused(
    make_model: Callable[..., Any], targets: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        find_targets(make_model("qwen2", tie_word_embeddings=True), targets)


def test_a_rank_above_every_smaller_side_is_refused(make_model: Callable[..., Any]) -> None:
    """Queries are 32 × 32, keys 16 × 32, and the feed-forward's matrices 32 × 64."""
    model = make_model("qwen2", hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2)
    assert len(find_targets(model, ("all-linear",), 32)) == 14
    for targets, rank, most in ((("all-linear",), 33, 32), (("k_proj", "v_proj"), 17, 16)):
        with pytest.raises(UsageError, match=rf"lora.rank = {rank}: .*; wanted at most {most}$"):
            find_targets(model, targets, rank)


def test_an_untied_head_can_be_adapted(folders: Folders) -> None:
    policy = policy_of(folders["llama", False], {"rank": 4, "targets": ("lm_head", "q_proj")})
    teach(policy)
    sync_weights(policy.sampled_weights(), Engine(policy.generator_model), version=1)
    assert torch.allclose(policy.generator_model(IDS).logits, policy.model(IDS).logits, atol=1e-4)


def test_a_family_with_transposed_linear_layers_is_merged_the_right_way_round(
    make_model: Callable[..., Any], tokenizer: Any
) -> None:
    config = RunConfig.model_validate({"lora": LORA})
    with pytest.warns(UserWarning, match="fan_in_fan_out"):
        policy = load_policy(config, tokenizer, model=make_model("gpt2", n_embd=32, n_layer=2, n_head=4))
    teach(policy)
    sync_weights(policy.sampled_weights(), Engine(policy.generator_model), version=1)
    assert torch.allclose(policy.generator_model(IDS).logits, policy.model(IDS).logits, atol=1e-3)
