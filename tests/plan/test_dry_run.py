"""What `pods train --dry-run` says about a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loops import each
from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.plan.preview import preview_run

Pods = Callable[..., tuple[int, str, str]]


def plan_of(*overrides: str, num_processes: int = 1) -> Any:
    return preview_run(load_config("pods", overrides), num_processes)


def test_a_step_is_counted_in_tokens() -> None:
    plan = plan_of("rollouts.num_prompts=2", "rollouts.max_prompt_tokens=100", "rollouts.max_new_tokens=50")
    assert (plan.prompts, plan.prompt_tokens, plan.generated_tokens, plan.kept_tokens) == (2, 200, 6400, 1600)
    assert (plan.work.row_tokens, plan.work.num_rows) == (150, 128)
    assert plan.work.update_tokens == plan.work.micro_batch_tokens == 2 * 100 + 2 * 16 * 50  # each prompt once
    assert plan.num_micro_batches == 1
    apart = plan_of("rollouts.num_prompts=2", "rollouts.max_prompt_tokens=100", "optim.prefix_sharing=off")
    assert apart.work.update_tokens == 2 * 16 * 148 and apart.num_micro_batches == 2  # 4,736 tokens by 3,072


def test_processes_have_their_share_of_the_prompts() -> None:
    plan = plan_of("rollouts.num_prompts=3", num_processes=2)
    assert plan.work.num_rows == 2 * 64 and plan.work.update_tokens == 2 * 512 + 24 * 48
    assert plan.prompts == 3
    with pytest.raises(UsageError, match="--processes 0"):
        plan_of(num_processes=0)


def test_the_weights_that_are_trained_are_counted() -> None:
    # 3 layers of q 64×64, k and v 32×64, o 64×64, gate and up 160×64, down 64×160.
    adapters = 3 * 2 * (128 + 96 + 96 + 128 + 224 + 224 + 224)
    plan = plan_of("lora.rank=2", "lora.alpha=4")
    assert plan.num_trained_weights == adapters and plan.num_adapted_modules == 21


def test_every_option_off_its_default_is_listed() -> None:
    options = {option.key: option.value for option in plan_of("optim.lr=1e-4", "lora.rank=8").options}
    assert (options["optim.lr"], options["lora.rank"]) == (1e-4, 8)
    assert "lora.targets" in options and "select.rule" not in options


@pytest.mark.parametrize("name", ["paper/a-grpo", "paper/a-pods", "paper/c-pods", "paper/d-grpo_ga", "paper/e-pods"])
def test_every_recipe_can_be_planned(name: str, tiny_model_folder: Path) -> None:
    config = load_config(name, [f"model.path={tiny_model_folder}", "rollouts.max_new_tokens=64"])
    plan = preview_run(config, 8)
    assert plan.peak_bytes > 0 and {part.name for part in plan.parts} >= {"weights", "key-values", "logits"}
    assert {option.key for option in plan.options} >= {"model.dtype", "task.system_prompt", "rollouts.temperature"}


def test_an_option_without_effect_is_only_listed_where_it_is_set() -> None:
    plan = plan_of("scale.timeout_seconds=60")
    found = {option.key: option.no_effect for option in plan.options}
    assert found["scale.timeout_seconds"] == "there is only one process" and "scale.strategy" not in found


def test_what_this_machine_cannot_hold_is_a_warning() -> None:
    too_large = plan_of("rollouts.num_prompts=1000", "rollouts.num_rollouts=16000", "rollouts.max_new_tokens=200")
    assert any("are needed at the peak" in line for line in too_large.warnings)
    assert any("this machine's CPU" in line for line in too_large.warnings)
    assert too_large.advice is not None and not too_large.advice.fits and too_large.advice.flags
    small = plan_of("task.num_eval=8")
    assert small.warnings == () and small.advice is None
    [warning] = plan_of("task.num_eval=8", "systems=gdro_prompts,dapo,dars").warnings
    assert warning.startswith("systems = dapo, dars decides how many rollouts a step has")
    many = plan_of("rollouts.num_prompts=1", "eval.num_samples=5")
    assert any("1,280 answers at once" in line for line in many.warnings)


def test_a_device_that_a_run_would_refuse_is_refused() -> None:
    for device in ("gpu", "cuda:99"):
        with pytest.raises(UsageError, match=f"model.device = '{device}'"):
            plan_of(f"model.device={device}")


def test_the_command_prints_the_plan_and_writes_nothing(pods: Pods, tmp_path: Path) -> None:
    code, printed, errors = pods(
        "train", "pods", "--dry-run", "--json", "--lora.rank=2", "--processes", "2", "--out", str(tmp_path / "x")
    )
    assert code == 0, errors
    plan = json.loads(printed)
    assert plan["num_processes"] == 2 and plan["num_adapted_modules"] == 21 and plan["parts"]
    assert not (tmp_path / "x").exists()
    code, _, errors = pods("train", "pods", "--dry-run", "--scale.strategy=fsdp2")
    assert code == 0 and "scale.strategy = 'fsdp2' changes nothing here: there is only one process" in errors


def test_plan_options_without_dry_run_are_refused(pods: Pods, tmp_path: Path) -> None:
    for wrong in (["--json"], ["--processes", "2"]):
        code, _, errors = pods("train", "pods", *wrong)
        assert code == 2 and "--dry-run" in errors
    code, _, errors = pods("train", "--resume", str(tmp_path), "--dry-run")
    assert code == 2 and "wants a CONFIG" in errors


def test_on_cuda_the_plan_counts_the_bound_that_a_run_sets_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def key_values(plan: Any) -> int:
        return next(part.num_bytes for part in plan.parts if part.name == "key-values")

    on_cpu = plan_of("rollouts.scheduler=dynamic")
    free = 100 << 20
    monkeypatch.setattr("podsrl.plan.preview._machine", lambda *_: ("a GPU", free, True))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (free, free))
    plan = plan_of("rollouts.scheduler=dynamic")
    held = sum(part.num_bytes for part in plan.parts if part.phase == "always")
    assert key_values(plan) == int(0.8 * (free - held)) < key_values(on_cpu)
    assert [
        [option.no_effect is None for option in each.options if option.key == "rollouts.scheduler"]
        for each in (on_cpu, plan)
    ] == [[False], [True]]
    assert key_values(plan_of("rollouts.kv_cache_bytes=2MiB")) == 2 << 20
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (1 << 40, 1 << 40))
    assert key_values(plan_of()) == key_values(on_cpu)  # all run at once


def test_a_plan_counts_the_held_out_questions_that_there_are() -> None:
    assert plan_of("task.digits=1").work.num_eval_rows == 256
    assert preview_run(load_config("pods", ["task.digits=1"]), 1, num_eval=9).work.num_eval_rows == 9


@each("value, wanted", [("raise ValueError", 1), ("return 0.0", 0)])
def test_a_reward_that_fails_on_its_trial_ends_the_dry_run_with_1(
    pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, wanted: int
) -> None:
    module = f"trial_{wanted}"
    (tmp_path / f"{module}.py").write_text(f"def judge(task, text):\n    {value}\n")
    monkeypatch.syspath_prepend(tmp_path)
    rewards = (f'--task.rewards={{"{module}:judge" = 1.0}}', f"--task.correct={module}:judge")
    assert pods("train", "pods", *rewards, "--dry-run")[0] == wanted


def test_of_groups_under_way_those_that_a_step_trains_on_are_kept() -> None:
    """Ten groups of eight are under way and eight are trained on; with pilots four times eight groups are asked."""
    sizes = ["rollouts.num_prompts=8", "rollouts.max_new_tokens=10"]
    early = preview_run(load_config("systems/april", sizes))
    assert (early.prompts, early.generated_tokens, early.kept_tokens) == (10, 10 * 8 * 10, 8 * 8 * 10)
    pilots = preview_run(load_config("systems/pilot_commit", sizes))
    assert (pilots.prompts, pilots.kept_tokens) == (32, 8 * 8 * 10)
