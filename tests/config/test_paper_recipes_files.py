"""The paper's settings as files: their numbers, what two arms differ in, and where they can be found."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from loops import each
from podsrl.compare.runs import plan
from podsrl.config.files import read_tree, recipe_names
from podsrl.config.load import build, changed_keys, load_config
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "podsrl" / "config" / "recipes" / "paper"
PAIRS = {"a": "a-grpo", "b": "b-grpo", "c": "c-grpo", "d": "d-grpo_ga", "e": "e-grpo_ga"}
ARMS = [*PAIRS.values(), *(f"{setting}-pods" for setting in PAIRS)]

# n, m, chunks of the baseline and of PODS; model; task; hours; minutes between evaluations; KL; learning rate.
TABLE = {
    "a": ((16, 16, 1), (64, 16, 1), "Qwen/Qwen2.5-3B-Instruct", "gsm8k", 6.0, 30, 0.0, 5e-6),
    "b": ((8, 8, 1), (32, 8, 1), "Qwen/Qwen2.5-3B-Instruct", "math500", 6.0, 30, 0.0, 5e-6),
    "c": ((16, 16, 1), (64, 16, 1), "meta-llama/Llama-3.2-3B-Instruct", "gsm8k", 1.5, 10, 0.04, 5e-6),
    "d": ((512, 512, 16), (512, 128, 4), "Qwen/Qwen2.5-3B-Instruct", "gsm8k", 2 / 3, 2, 0.0, 2e-5),
    "e": ((512, 512, 16), (512, 128, 4), "Qwen/Qwen2.5-7B-Instruct", "gsm8k", 2 / 3, 2, 0.0, 2e-5),
}


@pytest.mark.parametrize("setting", TABLE)
def test_each_setting_has_the_numbers_of_the_source(setting: str) -> None:
    baseline, pods, model, task, hours, minutes, beta, lr = TABLE[setting]
    for name, sizes in ((PAIRS[setting], baseline), (f"{setting}-pods", pods)):
        config = load_config(f"paper/{name}")
        found = config.rollouts.num_rollouts, config.select.num_kept, config.select.num_chunks
        assert found == sizes
        assert config.select.rule == ("max_variance" if name.endswith("pods") else "keep_all")
        assert (config.model.path, config.task.name, config.task.num_eval) == (model, task, 0)
        assert (config.stop.seconds, config.stop.steps) == (hours * 3600, 0)
        assert config.eval.every_seconds == minutes * 60
        assert (config.loss.name, config.loss.kl_beta, config.optim.lr) == ("grpo", beta, lr)
        assert config.rollouts.temperature == config.eval.temperature == 0.9
        assert config.rollouts.max_prompt_tokens == 512


@pytest.mark.parametrize("setting", "abc")
def test_single_gpu_settings_train_adapters_on_a_4_bit_base(setting: str) -> None:
    config = load_config(f"paper/{setting}-pods")
    assert config.model.load_in_4bit and config.lora is not None
    assert (config.lora.rank, config.lora.alpha, config.lora.targets) == (64, 64.0, ("all-linear",))
    optim = config.optim
    assert (optim.name, optim.betas, optim.weight_decay, optim.max_grad_norm) == ("adamw_8bit", (0.9, 0.99), 0.1, 0.1)
    assert (optim.schedule, optim.warmup_steps) == ("constant", 0)
    assert (config.rollouts.num_prompts, config.rollouts.max_new_tokens, config.eval.num_samples) == (1, 512, 5)
    assert config.task.rewards == {"any_correct": 1.0, "think_format": 0.1, "tag_count": 0.1}
    assert (config.task.correct, config.task.format) == ("any_correct", "think_format")
    assert config.task.system_prompt == "pods_single_gpu"


@pytest.mark.parametrize("setting", "de")
def test_multi_gpu_settings_train_all_weights_with_a_cosine(setting: str) -> None:
    config = load_config(f"paper/{setting}-pods")
    assert config.lora is None and not config.model.load_in_4bit and config.scale.strategy == "zero2"
    optim = config.optim
    assert (optim.name, optim.schedule) == ("adamw", "cosine")
    assert optim.schedule_steps == 7473 // 8 and optim.warmup_steps == -(-optim.schedule_steps // 10)
    assert (config.rollouts.num_prompts, config.rollouts.max_new_tokens) == (8, 1024)
    assert config.task.rewards == {"boxed_correct": 1.0, "strict_format": 1.0, "tag_share": 1.0}
    assert config.task.system_prompt == "pods_multi_gpu"


@pytest.mark.parametrize("setting", PAIRS)
def test_two_arms_differ_in_their_rollouts_alone(setting: str) -> None:
    ours, theirs = (
        load_config(f"paper/{name}").model_dump(mode="json") for name in (PAIRS[setting], f"{setting}-pods")
    )
    allowed = ("rollouts.num_rollouts ", "select.num_kept ", "select.rule ", "select.num_chunks ")
    changes = changed_keys(ours, theirs)
    assert changes and all(line.startswith(allowed) for line in changes)


@each("setting", PAIRS)
def test_a_comparison_s_arms_are_the_two_recipes(setting: str) -> None:
    config = build(CompareConfig, read_tree(f"paper/compare-{setting}"), setting)
    arms = {member.arm: member.config for member in plan(config, Path("nowhere"))[:2]}
    names, to_the_end = (PAIRS[setting], f"{setting}-pods"), ["stop.without_signal=0"]
    assert arms == {name[2:]: load_config(f"paper/{name}", to_the_end) for name in names}
    assert config.metric == ("accuracy_and_format" if setting == "c" else "accuracy")


def test_e_is_d_with_a_larger_model() -> None:
    d, e = (load_config(f"paper/{setting}-pods").model_dump(mode="json") for setting in "de")
    keys = [line.split(" ")[0] for line in changed_keys(d, e)]
    assert keys == ["model.path", "rollouts.kv_cache_bytes"]


@pytest.mark.parametrize("setting", PAIRS)
def test_a_setting_alone_means_its_pods_arm(setting: str) -> None:
    assert (FOLDER / f"{setting}.toml").read_bytes() == (FOLDER / f"{setting}-pods.toml").read_bytes()
    assert load_config(FOLDER / f"{setting}.toml") == load_config(f"paper/{setting}-pods")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the link is the repository's, for commands typed at its root")
def test_configs_at_the_root_are_the_recipes() -> None:
    assert (ROOT / "configs").is_symlink() and (ROOT / "configs").resolve() == FOLDER.parent


def test_recipes_in_a_folder_have_its_name_before_theirs() -> None:
    assert {f"paper/{name}" for name in ARMS} <= set(recipe_names())
    assert read_tree("paper/a-pods") == tomllib.loads((FOLDER / "a-pods.toml").read_text())
    with pytest.raises(UsageError, match=r"Did you mean 'paper/a-pods'\?"):
        read_tree("paper/a-podz")
