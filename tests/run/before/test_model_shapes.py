"""A model's sizes without its weights, for families that name their options each in its own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from benchmarks.families.judge import family_names, small_config, small_model
from podsrl.config.schema import ModelConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.generate.engine.forward.prefill import read_layout
from podsrl.plan.preview import preview_run
from podsrl.policy.lora import find_targets
from podsrl.run.before.estimate import adapted_linears
from podsrl.run.before.model_shape import ModelShape, read_shape


def shape_of(family: str, folder: Path) -> ModelShape:
    small_config(family).save_pretrained(folder)
    return read_shape(ModelConfig(path=str(folder)))


@pytest.mark.parametrize("family", ["gpt2", "gptj", "bloom", "mpt", "gpt_neo", "ctrl", "xglm", "opt"])
def test_a_family_with_its_own_names_can_be_planned(family: str, tmp_path: Path) -> None:
    shape = shape_of(family, tmp_path)
    assert (shape.num_layers, shape.num_heads, shape.hidden_size, shape.vocabulary) == (2, 4, 32, 99)
    assert (shape.head_dim, shape.num_kv_heads) == (8, 4)
    assert shape.num_weights == small_model(family).num_parameters()
    config = {"model": {"path": str(tmp_path)}, "lora": {"rank": 2}, "rollouts": {"max_new_tokens": 8}}
    assert preview_run(RunConfig.model_validate(config)).num_adapted_modules == len(shape.linears) > 0


def test_the_linear_layers_of_gpt2_are_its_transposed_ones(tmp_path: Path) -> None:
    linears = shape_of("gpt2", tmp_path).linears
    expected = {"attn.c_attn": (96, 32), "attn.c_proj": (32, 32), "mlp.c_fc": (128, 32), "mlp.c_proj": (32, 128)}
    assert linears == {f"transformer.h.{i}.{name}": size for i in (0, 1) for name, size in expected.items()}


@pytest.mark.parametrize("family", ["gpt2", "gpt_bigcode", "falcon", "qwen2", "mpt", "llama"])
def test_keys_and_values_take_the_bytes_that_the_model_keeps(family: str, tmp_path: Path) -> None:
    shape = shape_of(family, tmp_path)
    of_shape = shape.num_layers * 2 * shape.num_kv_heads * shape.head_dim * 4
    assert of_shape == read_layout(small_model(family)).token_bytes


def test_a_model_without_attention_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"type 'mamba', whose config has no num_attention_heads: use another model"):
        shape_of("mamba", tmp_path)


def test_every_family_is_planned_or_refused_in_a_line(tmp_path: Path) -> None:
    planned: list[str] = []
    for family in family_names():
        config = _config_or_none(family)
        if config is None:
            continue
        config.save_pretrained(tmp_path / family)
        try:
            read_shape(ModelConfig(path=str(tmp_path / family)))
            planned.append(family)
        except UsageError:
            pass
    assert len(planned) > 140


def _config_or_none(family: str) -> Any:
    try:
        return small_config(family)
    except Exception:  # of any type, from the family's own code at these sizes
        return None


@pytest.mark.parametrize("family", ["gpt2", "llama", "opt"])
@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize(
    "targets", [("all-linear",), ("lm_head",), ("1.mlp.c_fc", "v_proj"), ("mlp",), ("k_proj", "lm_head")]
)
def test_a_plan_adapts_the_modules_that_training_adapts(
    family: str, is_tied: bool, targets: tuple[str, ...], tmp_path: Path
) -> None:
    config = small_config(family)
    config.tie_word_embeddings = is_tied
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    whole = RunConfig.model_validate({"model": {"path": str(tmp_path)}, "lora": {"targets": targets}})
    shape = read_shape(whole.model)
    try:
        wanted = find_targets(model, targets)
    except UsageError:
        with pytest.raises(UsageError, match=r"lora\.targets"):
            adapted_linears(whole, shape)
    else:
        found = adapted_linears(whole, shape)
        sizes = {name: sorted(model.get_submodule(name).weight.shape) for name in wanted}
        assert {name: sorted(size) for name, size in found.items()} == sizes
