"""The memory that a dry run promises, against what tensors really take; tolerances stand in the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.schema import ModelConfig, OptimConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.run.before.estimate import (
    activation_bytes,
    adapted_linears,
    block_bytes,
    estimate,
    kv_bytes_per_token,
    num_adapter_weights,
    peak,
    work,
)
from podsrl.run.before.model_shape import ModelShape, read_shape
from podsrl.types import Rollout, Sample
from podsrl.update import ALGORITHMS, Correction, Updater, make_batch

ROWS, LENGTH = 4, 96


def config_of(**sections: Any) -> RunConfig:
    return RunConfig.model_validate(sections)


def parts_of(config: RunConfig, shape: ModelShape, num_processes: int = 1) -> dict[str, int]:
    return {part.name: part.num_bytes for part in estimate(config, shape, num_processes)}


@pytest.fixture(params=["qwen2", "llama", "qwen3"])
def folder(request: pytest.FixtureRequest, make_model: Callable[..., Any], tmp_path: Path) -> Path:
    """A model folder of each family; wide enough that no small term decides."""
    model = make_model(request.param, hidden_size=64, intermediate_size=160, num_hidden_layers=3, head_dim=16)
    model.save_pretrained(tmp_path / request.param)
    return tmp_path / request.param


def test_weights_in_several_files_are_all_counted(make_model: Callable[..., Any], tmp_path: Path) -> None:
    """A file beside them that no index names is none of theirs."""
    model = make_model("llama")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    (tmp_path / "consolidated.safetensors").write_bytes(files[0].read_bytes())
    of_headers = read_shape(ModelConfig(path=str(tmp_path)))
    assert of_headers.num_weights == model.num_parameters()
    for file in files:
        file.unlink()
    (tmp_path / "model.safetensors.index.json").unlink()
    assert read_shape(ModelConfig(path=str(tmp_path))) == of_headers


def test_sizes_need_no_weights(folder: Path) -> None:
    """Without them the model itself is built, and has the same sizes."""
    whole = read_shape(ModelConfig(path=str(folder)))
    for file in folder.glob("*.safetensors"):
        file.unlink()
    assert read_shape(ModelConfig(path=str(folder))) == whole


def test_a_tied_head_is_counted_once(make_model: Callable[..., Any], tmp_path: Path) -> None:
    model = make_model("qwen2", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    assert read_shape(ModelConfig(path=str(tmp_path))).num_weights == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_gradients_and_moments_are_exact(folder: Path, dtype: str) -> None:
    """All of an optimizer step's tensors, byte for byte; gradients of 16 bits are counted with their float32 form."""
    from transformers import AutoModelForCausalLM

    config = config_of(model={"path": str(folder), "dtype": dtype}, correct={"proximal": "average"})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    average = Correction(proximal="average")
    updater = Updater(model, OptimConfig(lr=1e-3), loss=ALGORITHMS["grpo"].loss, correction=average)
    updater.forward_backward(updater.with_start(batch(model)))
    num_bytes = sum(p.grad.nbytes for p in model.parameters())
    float32 = sum(4 * p.numel() for p in model.parameters()) if dtype != "float32" else 0
    updater.optim_step()
    state = updater.optimizer.state_dict()[0]
    found = parts_of(config, read_shape(config.model))
    assert found["weights"] == sum(p.nbytes for p in model.parameters())
    assert found["gradients"] == num_bytes + float32
    assert found["optimizer"] == sum(value.nbytes for name, value in state.items() if not name.startswith("step/"))
    assert updater.average is not None
    assert found["average"] == sum(value.nbytes for value in updater.average.state_dict()[0].values())


@pytest.mark.parametrize("has_checkpointing", [False, True])
@pytest.mark.parametrize("has_adapters", [False, True, "on a GPU"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_what_autograd_keeps_within_three_percent(
    folder: Path, dtype: str, has_adapters: bool | str, has_checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the decoder's forward. With checkpointing the promise has a block more, which is computed again only later."""
    options = {"path": str(folder), "dtype": dtype, "gradient_checkpointing": has_checkpointing}
    config = config_of(model=options, **({"lora": {"rank": 8, "alpha": 8}} if has_adapters else {}))
    shape = read_shape(config.model)
    if has_adapters == "on a GPU":  # where those of a bfloat16 model have its type
        monkeypatch.setattr("podsrl.run.before.estimate.find_device", lambda name: torch.device("cuda"))
    promised = activation_bytes(config, shape)
    if has_checkpointing:
        promised -= block_bytes(config, shape)
    assert kept_bytes(folder, config, has_adapters == "on a GPU") / (ROWS * LENGTH) == pytest.approx(promised, rel=0.03)


def kept_bytes(folder: Path, config: RunConfig, is_of_one_type: bool) -> int:
    """Storages that autograd holds after the decoder's forward, parameters aside."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, config.model.dtype))
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    decoder = model.get_decoder()
    if config.lora:
        adapted: Any = get_peft_model(model, LoraConfig(r=config.lora.rank, target_modules="all-linear"))
        if is_of_one_type:
            adapted.to(model.dtype)
        adapted.enable_input_require_grads()
        own |= {parameter.untyped_storage().data_ptr() for parameter in adapted.parameters()}
    if config.model.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    ids = torch.randint(3, 90, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        states = decoder(input_ids=ids, use_cache=False).last_hidden_state
    assert states.requires_grad
    return sum(tensor.untyped_storage().nbytes() for pointer, tensor in kept.items() if pointer not in own)


@pytest.mark.parametrize(("num_rows", "prompt", "completion"), [(8, 8, 40), (32, 16, 40), (64, 20, 40)])
def test_key_values_of_full_rows_are_between_six_tenths_and_all_of_the_promise(
    folder: Path, num_rows: int, prompt: int, completion: int
) -> None:
    """Rows of one prompt that run to their limit; how much more than the rows is held while memory grows varies."""
    from transformers import AutoModelForCausalLM

    rollouts = {"num_prompts": 1, "num_rollouts": num_rows, "max_prompt_tokens": prompt, "max_new_tokens": completion}
    config = config_of(model={"path": str(folder)}, rollouts=rollouts, select={"num_kept": 8}, task={"num_eval": 1})
    engine = Engine(AutoModelForCausalLM.from_pretrained(folder), seed=0)
    sampling = Sampling(temperature=1.0, max_new_tokens=completion, stop_token_ids=())
    list(engine.generate([Request("a", tuple(range(3, 3 + prompt)), num_rows, sampling)]))
    promised = parts_of(config, read_shape(config.model))["key-values"]
    assert 0.6 * promised < engine.peak_kv_bytes <= promised


def test_a_bound_on_key_values_bounds_them(folder: Path) -> None:
    shape = read_shape(ModelConfig(path=str(folder)))
    free = config_of(rollouts={"num_prompts": 2, "num_rollouts": 16}, model={"path": str(folder)})
    row = (512 + 64) * kv_bytes_per_token(free, shape)
    assert parts_of(free, shape)["key-values"] == 256 * row * 1.5  # an evaluation asks for more rows than training
    bound = free.model_copy(update={"rollouts": free.rollouts.model_copy(update={"kv_cache_bytes": 5 * row + 1})})
    assert parts_of(bound, shape)["key-values"] == 5 * row + 1  # what rows leave of it is for prompts that wait
    slots = free.model_copy(update={"rollouts": free.rollouts.model_copy(update={"num_slots": 3})})
    assert parts_of(slots, shape)["key-values"] == 3 * row * 1.5


def test_adapters_are_those_that_peft_makes(folder: Path, make_model: Callable[..., Any]) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    for targets in (("all-linear",), ("q_proj", "down_proj")):
        config = config_of(model={"path": str(folder)}, lora={"rank": 4, "targets": targets})
        shape = read_shape(config.model)
        adapted: Any = get_peft_model(
            AutoModelForCausalLM.from_pretrained(folder),
            LoraConfig(r=4, target_modules="all-linear" if targets == ("all-linear",) else list(targets)),
        )
        assert num_adapter_weights(config, shape) == adapted.get_nb_trainable_parameters()[0]
    wrong = config_of(model={"path": str(folder)}, lora={"targets": ["q_porj"]})
    with pytest.raises(UsageError, match=r"'q_porj' matches no module.*Did you mean 'q_proj'\?"):
        adapted_linears(wrong, shape)


def shape_by_hand() -> ModelShape:
    """Two layers of one 10 × 10 matrix, and an embedding of 100 × 10: 1,200 weights."""
    return ModelShape(
        family="llama",
        hidden_size=10,
        intermediate_size=20,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=5,
        vocabulary=100,
        window=None,
        parameters={"embed": (100, 10), "a": (10, 10), "b": (10, 10)},
        linears={"a": (10, 10), "b": (10, 10)},
    )


def test_formulas_by_hand() -> None:
    rollouts = {"num_prompts": 2, "num_rollouts": 8, "max_prompt_tokens": 10, "max_new_tokens": 10}
    config = config_of(model={"dtype": "bfloat16"}, rollouts=rollouts, select={"num_kept": 4}, task={"num_eval": 1})
    found = parts_of(config, shape_by_hand())
    # 8h of norms, (2q + 2k)·2, 3i·2, 4·(heads + 2); trained norms and inputs (2h + 2h + i)·2.
    block = 80 + (20 + 10) * 2 + 120 + 16 + (20 + 20 + 20) * 2
    assert found == {
        "weights": 2400,
        "optimizer": 1200 * 12,
        "gradients": 1200 * 6,
        "activations": 100 * (2 * block + 60),  # 2 prompts of 10 tokens, and 8 kept completions of 10
        "logits": 80 * 100 * 14,
        "key-values": 16 * 20 * (2 * 5 * 2 * 2) * 1.5,
        "kept key-values": 16 * 20 * (2 * 5 * 2 * 2),
        "decode": 16 * 100 * 10,
    }
    held, update = 2400 + 14400, found["gradients"] + found["activations"] + found["logits"] + found["kept key-values"]
    assert peak(estimate(config, shape_by_hand())) == held + update


@pytest.mark.parametrize(
    ("optim", "family", "tokens", "targets"),
    [
        ({"prefix_sharing": "off"}, "llama", 160, 80),
        ({"packing": "off"}, "llama", 160, 80),
        ({}, "bloom", 160, 80),
        ({"micro_batch_tokens": 64}, "llama", 64, 54),  # one prompt at least stands before the completions
        ({}, "llama", 100, 80),
    ],
)
def test_a_prompt_counts_once_where_the_update_shares_it(
    optim: dict[str, Any], family: str, tokens: int, targets: int
) -> None:
    rollouts = {"num_prompts": 2, "num_rollouts": 8, "max_prompt_tokens": 10, "max_new_tokens": 10}
    config = config_of(rollouts=rollouts, select={"num_kept": 4}, task={"num_eval": 1}, optim=optim)
    shape = replace(shape_by_hand(), family=family)
    found = parts_of(config, shape)
    assert found["activations"] == tokens * activation_bytes(config, shape)
    assert found["logits"] == targets * 100 * 16


def test_few_shared_tokens_are_not_shared() -> None:
    """Below a tenth of saved tokens each row has its own prompt."""
    rollouts = {"num_prompts": 2, "num_rollouts": 8, "max_prompt_tokens": 1, "max_new_tokens": 19}
    config = config_of(rollouts=rollouts, select={"num_kept": 4}, task={"num_eval": 1})
    shape = shape_by_hand()
    assert parts_of(config, shape)["activations"] == 160 * activation_bytes(config, shape)


def test_four_bits_and_eight_bit_moments_by_hand() -> None:
    config = config_of(
        model={"dtype": "bfloat16", "load_in_4bit": True}, lora={"rank": 2}, optim={"name": "adamw_8bit"}
    )
    found = parts_of(config, shape_by_hand())
    assert found["weights"] == 2400 - 400 + round(200 * 0.5625)
    assert found["heap"] == found["activations"]
    on_gpu = config.model_copy(update={"model": config.model.model_copy(update={"device": "cuda"})})
    assert "heap" not in parts_of(on_gpu, shape_by_hand())
    assert found["generator's copy"] == 400
    assert found["adapters"] == found["gradients"] == 4 * 80
    assert found["optimizer"] == 2 * 80


def test_processes_share_what_their_strategy_shares() -> None:
    def found(strategy: str) -> dict[str, int]:
        return parts_of(config_of(scale={"strategy": strategy}, model={"dtype": "bfloat16"}), shape_by_hand(), 4)

    ddp, zero2, fsdp2 = found("ddp"), found("zero2"), found("fsdp2")
    assert (ddp["weights"], ddp["optimizer"], ddp["gradients"]) == (2400, 14400, 7200)
    assert (zero2["weights"], zero2["optimizer"], zero2["gradients"]) == (2400, 3600, 1800)
    assert (fsdp2["weights"], fsdp2["optimizer"], fsdp2["generator's copy"]) == (600, 3600, 2400)
    assert work(RunConfig(), 4).num_rows == work(RunConfig(), 1).num_rows // 4


def test_a_hub_sized_config_is_planned_without_its_weights(tmp_path: Path) -> None:
    """The sizes of Qwen2.5-3B: 3,085,938,688 weights, as its model card's 3.09B; no file but config.json."""
    sizes = {"hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16, "num_hidden_layers": 36}
    rest = {"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, "model_type": "qwen2"}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, **rest}))
    shape = read_shape(ModelConfig(path=str(tmp_path)))
    assert shape.num_weights == 3_085_938_688 and len(shape.linears) == 36 * 7


def batch(model: Any) -> Any:
    done = [
        Rollout(group_id="a", index=i, token_ids=(3 + i, 4), logprobs=(-2.0, -2.0), finish_reason="stop", version=0)
        for i in range(2)
    ]
    samples = [
        Sample(group_id="a", prompt_ids=(1, 2), rollout=each, advantage=advantage)
        for each, advantage in zip(done, (1.0, -1.0), strict=True)
    ]
    return make_batch(samples, pad_token_id=0)


def test_a_generator_elsewhere_is_left_out_of_the_table() -> None:
    shape = read_shape(RunConfig().model)
    for changes in ({"scale": {"generators": 2}}, {"rollouts": {"generator": "vllm"}}):
        parts = estimate(RunConfig.model_validate(changes), shape)
        assert {part.phase for part in parts} == {"always", "update"}
