"""What is listed of the schema, and whole configs with comments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podsrl.config.files import merge, read_tree, recipe_names
from podsrl.config.load import all_keys, build, load_config
from podsrl.config.options import SCHEMAS, chapters_of, commented_toml, find_field, find_options, is_switch, takes_of
from podsrl.config.schema import CompareConfig, RunConfig


def entries(model: Any = RunConfig) -> dict[str, Any]:
    return {option.key: option for chapter in chapters_of(model) for option in chapter.options}


@pytest.mark.parametrize("model", SCHEMAS.values())
def test_every_option_is_listed_once_with_its_meaning(model: Any) -> None:
    listed = [option for chapter in chapters_of(model) for option in chapter.options]
    assert sorted(option.key for option in listed) == sorted(all_keys(model))
    assert all(option.meaning and option.takes and option.default for option in listed)
    assert all(chapter.meaning for chapter in chapters_of(model))


def test_defaults_are_toml_or_words() -> None:
    found = {key: option.default for key, option in entries().items()}
    assert takes_of({"type": "integer", "exclusiveMaximum": 2**63}) == "a whole number, below 2^63"
    assert (found["optim.lr"], found["model.path"]) == ("0.0003", '"builtin:arithmetic"')
    assert (found["optim.betas"], found["model.revision"]) == ("[0.9, 0.99]", "not set")
    assert found["stop.steps"] == "100, or 0 where another option of the section is set"
    assert "has to be set" in entries(CompareConfig)["arms"].default
    assert entries(SCHEMAS["pretrain"])["digits"].default == "{ 2 = 0.7, 3 = 0.3 }"
    assert [chapter.name for chapter in chapters_of(RunConfig) if "Not there by default" in chapter.meaning] == [
        "lora",
        "costs",
    ]


def test_search_finds_every_word_in_names_meanings_and_names_elsewhere() -> None:
    memory = [option.key for option in find_options(RunConfig, "memory")]
    assert {"rollouts.kv_cache_bytes", "model.gradient_checkpointing"} <= set(memory)
    assert find_options(RunConfig, "temperature")[0].key == "rollouts.temperature"
    assert [option.key for option in find_options(RunConfig, "num generations")] == ["rollouts.num_rollouts"]
    assert [option.key for option in find_options(RunConfig, "cispo")] == ["loss.clip"]
    assert find_options(RunConfig, "memory zebra") == []


def test_fields_are_found_in_sections_tables_and_arms() -> None:
    for key in ("seed", "optim.lr", "task.rewards.correct", "lora.rank"):
        assert find_field(RunConfig, key) is not None
        assert find_field(CompareConfig, f"base.{key}") is not None
        assert find_field(CompareConfig, f"arms.pods.{key}") is not None
    for key in ("sed", "optim.rl", "base.seed", "zzz.lr"):
        assert find_field(RunConfig, key) is None
    switches = [key for key in all_keys(RunConfig) if (field := find_field(RunConfig, key)) and is_switch(field)]
    assert {"model.load_in_4bit", "model.gradient_checkpointing", "task.chat"} <= set(switches)
    assert "seed" not in switches and "task.format" not in switches


# --- whole configs ---


def saved(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", [name for name in recipe_names() if "arms" not in read_tree(name)])
def test_a_recipe_with_comments_reads_back_equal(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    text = commented_toml(config)
    assert load_config(saved(tmp_path, text)) == config
    assert all(key.rpartition(".")[2] in text for key in all_keys(RunConfig))


def test_hostile_texts_read_back_equal(tmp_path: Path) -> None:
    overrides = ["task.path=a \\ \"b\" 'c' ü", "task.rewards={'mod:f' = 0.1, plain = 2}", "optim.lr=1e-30"]
    overrides += ["rollouts.stop_strings=['\\n', \"a\\nb\", ']']", "task.system_prompt=# no comment", "task.chat=false"]
    config = load_config("pods", [*overrides, "rollouts.kv_cache_bytes=3GiB", "lora.targets=q_proj,v_proj"])
    assert load_config(saved(tmp_path, commented_toml(config))) == config


def test_a_section_that_is_not_there_stands_as_comments_that_are_valid_without_their_signs(tmp_path: Path) -> None:
    lines = commented_toml(RunConfig()).splitlines()
    start = lines.index("# [lora]")
    values = [line[2:] for line in lines[start : lines.index("", start)] if " = " in line or line == "# [lora]"]
    config = load_config(saved(tmp_path, "\n".join(values)))
    assert config == RunConfig.model_validate({"lora": {}})


def test_a_comparison_and_a_pretraining_with_comments_read_back_equal(tmp_path: Path) -> None:
    comparison = build(CompareConfig, read_tree("demo"), "demo")
    again = build(CompareConfig, read_tree(saved(tmp_path, commented_toml(comparison))), "copy")
    assert again == comparison
    for changes in again.arms.values():
        build(RunConfig, merge(again.base, changes), "arm")
    edited = {"digits": {1: 0.5, 3: 0.25}, "careful": {1: 0.9, 3: 0.1}, "start": "builtin:arithmetic"}
    pretrain = build(SCHEMAS["pretrain"], edited, "edited")
    assert build(SCHEMAS["pretrain"], read_tree(saved(tmp_path, commented_toml(pretrain))), "copy") == pretrain
