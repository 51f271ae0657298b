"""What brings a run under a bound of memory: every figure is the estimate of a config that a run would take."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from podsrl.cli.dry_run import parse_memory
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.before.checks import check_processes
from podsrl.run.before.estimate import estimate, peak
from podsrl.run.before.memory_advice import LADDER, MemoryAdvice, advise
from podsrl.run.before.model_shape import ModelShape, read_shape
from podsrl.run.before.sizes import sized, work
from podsrl.update.token_logprobs import SHARE_FROM

Pods = Callable[..., tuple[int, str, str]]
GIB = 1 << 30
QWEN_3B = {
    "model_type": "qwen2",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sizes of Qwen2.5-3B, and nothing else."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "config.json").write_text(json.dumps(QWEN_3B))
    return folder


@pytest.fixture(scope="module")
def large_shape(large: Path) -> ModelShape:
    return read_shape(RunConfig.model_validate({"model": {"path": str(large)}}).model)


def check(advice: MemoryAdvice, config: RunConfig, shape: ModelShape, num_processes: int = 1) -> None:
    """Each step's figure is the estimate of the config with the steps so far; a possible set is enough."""
    check_processes(advice.config, num_processes)
    changed = config.model_dump(mode="json", exclude_none=True)
    for step in advice.steps:
        section, name = step.key.split(".")
        changed[section] = {**changed.get(section, {}), name: step.new}
        assert step.peak_bytes == peak(estimate(RunConfig.model_validate(changed), shape, num_processes))
    assert RunConfig.model_validate(changed) == advice.config
    assert advice.is_possible == (peak(estimate(advice.config, shape, num_processes)) <= advice.bound_bytes)
    order = list(LADDER)
    assert [step.key for step in advice.steps] == sorted((s.key for s in advice.steps), key=order.index)


def test_a_config_that_fits_is_left_alone() -> None:
    config = load_config("pods")
    advice = advise(config, read_shape(config.model), 8 * GIB)
    assert advice.fits and advice.steps == () and advice.config == config
    assert advice.peak_bytes == peak(estimate(config, read_shape(config.model)))


@pytest.mark.parametrize("name", ["a-grpo", "a-pods", "b-pods", "c-pods", "d-grpo_ga", "d-pods", "e-pods"])
@pytest.mark.parametrize("gibibytes", [4, 8, 12, 16, 24, 48, 80])
def test_paper_recipes_are_brought_under_every_bound_or_told_their_floor(
    name: str, gibibytes: int, large: Path, large_shape: ModelShape
) -> None:
    config = load_config(f"paper/{name}", [f"model.path={large}"])
    num_processes = 8 if name[0] in "de" else 1
    advice = advise(config, large_shape, gibibytes * GIB, num_processes)
    check(advice, config, large_shape, num_processes)
    assert advice.is_possible == (gibibytes >= (12 if num_processes == 8 else 8))


def test_recipe_a_fits_into_24_gibibytes_with_less_key_value_memory_alone(large: Path, large_shape: ModelShape) -> None:
    """It wants 24.5 GiB, of which 16 are the bound on keys and values."""
    config = load_config("paper/a", [f"model.path={large}"])
    advice = advise(config, large_shape, 24 * GIB)
    assert not advice.fits and 24 * GIB < advice.peak_bytes < 25 * GIB
    assert advice.flags == ("--rollouts.kv_cache_bytes=12GiB",)


def test_adapters_of_16_bits_want_smaller_micro_batches_and_a_bound_on_keys_and_values(large_shape: ModelShape) -> None:
    overrides = ["lora.rank=64", "model.dtype=bfloat16", "model.device=cuda", "rollouts.max_new_tokens=512"]
    advice = advise(load_config(None, overrides), large_shape, 24 * GIB)
    assert [step.key for step in advice.steps] == ["optim.micro_batch_tokens", "rollouts.kv_cache_bytes"]
    assert all("nothing in the result" in step.cost for step in advice.steps)


def test_what_changes_the_result_comes_only_where_nothing_else_is_enough(large_shape: ModelShape) -> None:
    free = ("optim.micro_batch_tokens", "optim.logprob_chunk_tokens", "rollouts.kv_cache_bytes")
    keys = [
        [step.key for step in advise(RunConfig(), large_shape, bound * GIB).steps] for bound in (80, 64, 48, 24, 16)
    ]
    assert set(keys[0]) <= set(free) and set(keys[1]) <= set(free)
    assert "model.gradient_checkpointing" in keys[2] and "lora.rank" not in keys[2]
    assert "lora.rank" in keys[3] and "rollouts.max_new_tokens" not in keys[3]
    assert "model.load_in_4bit" in keys[4] and "model.load_in_4bit" not in keys[3]


def test_a_smaller_bound_never_asks_for_less(large_shape: ModelShape) -> None:
    advices = [advise(RunConfig(), large_shape, bound * GIB) for bound in (96, 64, 48, 32, 24, 16, 12)]
    costliest = [max([list(LADDER).index(s.key) for s in advice.steps], default=-1) for advice in advices]
    assert costliest == sorted(costliest)


def test_shorter_answers_come_last_and_let_micro_batches_shrink_too(large_shape: ModelShape) -> None:
    overrides = ["rollouts.max_new_tokens=8192", "rollouts.num_prompts=1", "model.dtype=bfloat16", "lora.rank=8"]
    config = load_config(None, [*overrides, "model.load_in_4bit=true", "optim.name=adamw_8bit"])
    advice = advise(config, large_shape, 9 * GIB)
    check(advice, config, large_shape)
    assert advice.is_possible and advice.steps[-1].key == "rollouts.max_new_tokens"
    assert work(advice.config, 1).micro_batch_tokens < 8192 // 2


def test_the_least_key_value_memory_holds_one_row(large_shape: ModelShape) -> None:
    for tokens in (100, 700, 1000, 1500, 3000):
        config = load_config(None, [f"rollouts.max_new_tokens={tokens}", "rollouts.max_prompt_tokens=100"])
        row = (tokens + 100) * 2 * 2 * 128 * 36 * 4
        steps = {step.key: step.new for step in advise(config, large_shape, 1 << 20).steps}
        least = parse_memory(steps["rollouts.kv_cache_bytes"])
        tokens_left = steps.get("rollouts.max_new_tokens", tokens) + 100
        assert 0 <= least - row * tokens_left / (tokens + 100) < 1 << 20


def test_processes_share_only_what_their_other_options_allow(large_shape: ModelShape) -> None:
    full = advise(RunConfig(), large_shape, 40 * GIB, 8)
    assert "scale.strategy" in {step.key for step in full.steps}
    check(full, RunConfig(), large_shape, 8)
    quantised = load_config(None, ["lora.rank=64", "model.load_in_4bit=true", "optim.name=adamw_8bit"])
    assert "scale.strategy" not in {step.key for step in advise(quantised, large_shape, 8 * GIB, 8).steps}
    assert "scale.strategy" not in {step.key for step in advise(RunConfig(), large_shape, 40 * GIB, 1).steps}


def test_held_out_questions_that_were_counted_stand_for_those_of_the_config(large_shape: ModelShape) -> None:
    config = load_config(None, ["rollouts.num_prompts=1", "select.num_kept=2", "optim.micro_batch_tokens=64"])
    few, half, many = (advise(sized(config, num_eval=count), large_shape, 1 << 40) for count in (8, 64, 10_000))
    row = (512 + 64) * 2 * 2 * 128 * 36 * 4
    assert few.generate_bytes == half.generate_bytes  # 64 rollouts
    assert many.generate_bytes - few.generate_bytes == (10_000 - 64) * (row * 3 // 2 + 151936 * 12)
    assert many.update_bytes == few.update_bytes and many.config == sized(config, num_eval=10_000)


OPTIONS = {
    "optim.micro_batch_tokens": st.integers(64, 1 << 15),
    "optim.logprob_chunk_tokens": st.integers(16, 1 << 13),
    "rollouts.max_new_tokens": st.integers(1, 4096),
    "rollouts.max_prompt_tokens": st.integers(1, 1024),
    "rollouts.num_prompts": st.integers(1, 64),
    "rollouts.num_rollouts": st.integers(16, 512),
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    has_adapters=st.booleans(),
    has_checkpointing=st.booleans(),
    sharing=st.sampled_from(["auto", "on", "off"]),
)
def test_estimates_never_fall_where_an_option_grows(
    data: Any, has_adapters: bool, has_checkpointing: bool, sharing: str
) -> None:
    """But where prompts become long enough to be shared: then the update has up to a tenth fewer tokens."""
    shape = read_shape(RunConfig().model)
    base = [
        f"optim.prefix_sharing={sharing}",
        f"model.gradient_checkpointing={str(has_checkpointing).lower()}",
        *["lora.rank=8"] * has_adapters,
    ]
    values = {key: data.draw(values, key) for key, values in OPTIONS.items()}
    for key, strategy in OPTIONS.items():
        other = max(values[key], data.draw(strategy, f"more of {key}"))
        small, large = (
            peak(estimate(load_config(None, [*base, *(f"{k}={v}" for k, v in tree.items())]), shape))
            for tree in (values, values | {key: other})
        )
        least = SHARE_FROM if (sharing, key) == ("auto", "rollouts.max_prompt_tokens") else 1
        assert least * small <= large, key


@example(17, 2, 3)
@given(new=st.integers(1, 64), prompt=st.integers(1, 64), more=st.integers(1, 64))
def test_an_estimate_falls_only_where_prompts_begin_to_be_shared(new: int, prompt: int, more: int) -> None:
    shape, kept = read_shape(RunConfig().model), RunConfig().select.num_kept

    def found(tokens: int) -> tuple[int, bool]:
        sizes = ["rollouts.num_prompts=1", f"rollouts.max_new_tokens={new}", f"rollouts.max_prompt_tokens={tokens}"]
        whole, shared = kept * (tokens + new), tokens + kept * new
        return peak(estimate(load_config(None, sizes), shape)), shared <= SHARE_FROM * whole

    (small, was_shared), (large, is_shared) = found(min(prompt, more)), found(max(prompt, more))
    assert small <= large or is_shared > was_shared


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mebibytes=st.integers(1, 400), num_kept=st.integers(2, 64), is_large=st.booleans())
def test_advice_on_a_small_model_holds_for_any_bound(mebibytes: int, num_kept: int, is_large: bool) -> None:
    config = load_config("pods", [f"select.num_kept={num_kept}", f"rollouts.max_new_tokens={200 if is_large else 48}"])
    shape = read_shape(config.model)
    check(advise(config, shape, mebibytes << 20), config, shape)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 << 30), ("24 GB", 24 * 10**9), ("1.5GiB", 3 << 29), ("900MiB", 900 << 20)],
)
def test_sizes_are_read_as_a_config_has_them(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["24", "GiB", "", "-3GiB", "24G", "1KiB", "24 parsecs", "9" * 400 + "GiB"])
def test_what_is_no_size_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        parse_memory(text)


# --- the command line ---


def between(pods: Pods, *options: str) -> str:
    """A bound that a run misses and that its options can bring it under."""
    code, printed, errors = pods("train", *options, "--dry-run", "--memory", "1MiB", "--json")
    assert code == 1, errors
    advice = json.loads(printed)["memory"]
    assert not advice["is_possible"] and advice["steps"][0]["flag"].startswith("--optim.micro_batch_tokens=")
    return f"{(advice['least_bytes'] + advice['peak_bytes']) // 2}B"


def test_a_dry_run_prints_a_command_that_fits(pods: Pods) -> None:
    start = ["pods", "--rollouts.kv_cache_bytes", "15GiB"]
    bound = between(pods, *start)
    code, printed, errors = pods("train", *start, "--dry-run", "--memory", bound)
    assert code == 1, errors
    command = next(line for line in printed.splitlines() if line.strip().startswith("pods train "))
    words = shlex.split(command)
    assert sum(word.startswith("--rollouts.kv_cache_bytes=") for word in words) == 1
    code, printed, errors = pods(*words[1:], "--dry-run", "--memory", bound, "--json")
    assert code == 0, errors
    found = json.loads(printed)
    assert found["memory"]["fits"] and found["memory"]["flags"] == []
    assert found["memory"]["peak_bytes"] == found["peak_bytes"] <= int(bound[:-1])


def test_several_processes_are_launched(pods: Pods) -> None:
    bound = between(pods, "pods", "--processes", "2")
    code, printed, _ = pods("train", "pods", "--dry-run", "--processes", "2", "--memory", bound)
    assert code == 1 and "  pods launch --processes 2 pods " in printed


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["train", "pods", "--memory", "24GiB"], "--dry-run"),
        (["train", "pods", "--dry-run", "--memory", "24"], "--memory 24"),
    ],
)
def test_bad_sizes_are_one_line(arguments: list[str], wanted: str, pods: Pods) -> None:
    code, _, errors = pods(*arguments)
    assert code == 2 and errors.count("\n") == 1 and wanted in errors


def test_a_run_with_the_advice_trains(pods: Pods, tmp_path: Path) -> None:
    """Under the least bound of the small model, so that keys and values have room for one row."""
    limits = ["--rollouts.max_new_tokens=48", "--rollouts.max_prompt_tokens=32", "--task.num_eval=8", "--stop.steps=1"]
    start = ["pods", *limits, "--stop.seconds=0", "--rollouts.num_prompts=2"]
    code, printed, _ = pods("train", *start, "--dry-run", "--memory", "1MiB", "--json")
    advice = json.loads(printed)["memory"]
    assert code == 1 and "rollouts.kv_cache_bytes" in {step["key"] for step in advice["steps"]}
    flags = [flag for flag in advice["flags"] if "8bit" not in flag and "4bit" not in flag]
    kept = [word for word in start if word.partition("=")[0] not in {flag.partition("=")[0] for flag in flags}]
    code, _, errors = pods("train", *kept, *flags, "--plain", "-o", "run")
    assert code == 0, errors
    assert (tmp_path / "run" / "metrics.jsonl").exists()
