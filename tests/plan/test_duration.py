"""How long a run takes: by hand, against a run's own clock of what is due, and by a measured step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loops import each
from podsrl.config.load import load_config
from podsrl.config.schema import ModelConfig, RunConfig
from podsrl.plan import duration as module
from podsrl.plan.duration import Pace, duration, is_at_hand, measured_pace, pace_by_sizes, smaller_step
from podsrl.run.before.model_shape import read_shape
from podsrl.run.before.sizes import work
from podsrl.run.due import Due
from podsrl.run.health import first_look
from podsrl.run.step.counters import Progress
from podsrl.types import made_up_group

Pods = Callable[..., tuple[int, str, str]]
PACE = Pace(generate_seconds=0.5, step_seconds=0.75)
SMALL = ("--rollouts.num_prompts=2", "--rollouts.num_rollouts=4", "--select.num_kept=2", "--task.num_eval=8")


def counted(config: RunConfig, step_seconds: float) -> tuple[int, int]:
    """Steps and evaluations, as a run counts them."""
    progress, due, num_evals = Progress(), Due(), 0
    while True:
        if due.is_evaluation(config, progress):
            due.evaluated(config, progress)
            num_evals += 1
        if due.is_end(config, progress):
            return progress.step, num_evals
        progress = Progress(step=progress.step + 1, train_seconds=progress.train_seconds + step_seconds)


@each("steps, seconds", [(7, 0.0), (0, 6.0), (40, 6.0), (5, 6.0), (1, 0.0)])
@pytest.mark.parametrize(("every_steps", "every_seconds"), [(0, 0.0), (3, 0.0), (0, 1.5), (1, 0.0), (9, 0.0)])
def test_steps_and_evaluations_are_those_of_a_run(
    steps: int, seconds: float, every_steps: int, every_seconds: float
) -> None:
    tree = {
        "stop": {"steps": steps, "seconds": seconds},
        "eval": {"every_steps": every_steps, "every_seconds": every_seconds},
    }
    config = RunConfig.model_validate(tree)
    found = duration(config, work(config, 1), PACE)
    assert (found.num_steps, found.num_evals) == counted(config, PACE.step_seconds)


def test_an_evaluation_takes_what_as_many_rollouts_of_a_step_take() -> None:
    config = load_config("pods", ["task.num_eval=128", "eval.num_samples=2", "stop.steps=4", "stop.seconds=0"])
    found = duration(config, work(config, 1), PACE)  # 256 rows, half of a step's 8 × 64
    assert found.eval_seconds == 0.25 and found.num_evals == 2
    assert found.total_seconds == 4 * 0.75 + 2 * 0.25


@pytest.mark.parametrize(("options", "passes"), [((), 3), (("model.gradient_checkpointing=true",), 4)])
def test_a_step_by_sizes_is_products(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], passes: int) -> None:
    """Every timed product takes a second; more than 512 rows take as many times longer."""
    monkeypatch.setattr(module, "_least_seconds", lambda call: float(call().shape == (512, 160)))
    config = load_config("pods", ["rollouts.max_prompt_tokens=64", "rollouts.max_new_tokens=64", *options])
    shape = read_shape(config.model)
    weights = 3 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 160 * 64) + shape.vocabulary * 64
    matrices = weights / (64 * 160)
    pace = pace_by_sizes(config, shape, work(config, 1))
    generate = 1 + 64 * 1  # 8 prompts of 64 tokens, then 64 tokens of 512 rollouts
    assert pace.generate_seconds == pytest.approx(matrices * generate)
    update = 8 * 16 * 128 / 512  # prompt and completion of each kept rollout
    assert pace.step_seconds == pytest.approx(matrices * (generate + passes * update))


def test_a_model_is_at_hand_with_all_its_weights(
    tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert is_at_hand(ModelConfig()) and is_at_hand(ModelConfig(path=str(tiny_model_folder)))
    own = ModelConfig(path="someone/theirs")
    assert not is_at_hand(own)
    cache = tmp_path / "models--someone--theirs"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("abc")
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert not is_at_hand(own)  # its weights are not there
    (snapshot / "model.safetensors").write_bytes((tiny_model_folder / "model.safetensors").read_bytes())
    assert is_at_hand(own)


def test_a_dry_run_measures_a_step(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.cli.dry_run.MOST_SECONDS", 60.0)
    code, printed, errors = pods("train", "pods", *SMALL, "--stop.steps=7", "--stop.seconds=0", "--dry-run", "--json")
    assert code == 0, errors
    found: dict[str, Any] = json.loads(printed)["time"]
    assert found["why_not_measured"] == "" and found["num_steps"] == 7
    assert 0 < found["pace"]["generate_seconds"] < found["pace"]["step_seconds"] < found["total_seconds"]
    assert found["pace"]["peak_bytes"] > 1 << 20


@pytest.mark.parametrize(("has_advantage", "step_seconds"), [(False, 2.0 + 5.0), (True, 2.0)])
def test_a_step_without_any_advantage_has_the_update_of_the_sizes(
    monkeypatch: pytest.MonkeyPatch, has_advantage: bool, step_seconds: float
) -> None:
    step = SimpleNamespace(
        groups=(),
        left_out=(),
        samples=[SimpleNamespace(has_advantage=each) for each in (False, has_advantage)],
        seconds={"generate": 1.5},
        total_seconds=2.0,
    )
    monkeypatch.setattr(module, "measure_steps", lambda config, num_steps: [step] * num_steps)
    pace = measured_pace(RunConfig(), Pace(generate_seconds=4.0, step_seconds=9.0))
    assert (pace.generate_seconds, pace.step_seconds) == (1.5, step_seconds)
    assert pace.is_update_guessed is not has_advantage


@each(
    "options, why",
    [
        ((), "measuring is left out"),
        (("--processes", "2"), "several processes"),
        (("--rollouts.generator=vllm",), "not ready"),
        (
            ("--rollouts.num_rollouts=100000", "--rollouts.max_new_tokens=200", "--rollouts.kv_cache_bytes=900GiB"),
            "too",
        ),
    ],
)
def test_what_is_not_measured_is_said_with_the_reason(pods: Pods, options: tuple[str, ...], why: str) -> None:
    given = {option.partition("=")[0] for option in options}
    small = [option for option in SMALL if option.partition("=")[0] not in given]
    code, printed, errors = pods("train", "pods", *small, *options, "--dry-run")
    [line] = [line for line in printed.splitlines() if line.startswith("time ")]
    assert code == 0 and "by the model's sizes alone" in line and why in line, errors


def test_a_smaller_step_counts_as_many_times_as_the_sizes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generation is measured at half of what the sizes say, and the rest of the step at twice that."""
    group = made_up_group("q", 4)
    facts: dict[str, Any] = {"groups": (group,), "left_out": (), "samples": [SimpleNamespace(has_advantage=True)]}
    step = SimpleNamespace(**facts, seconds={"generate": 1.0}, total_seconds=7.0)
    monkeypatch.setattr(module, "measure_steps", lambda config, num_steps: [step] * num_steps)
    whole, small = Pace(generate_seconds=20.0, step_seconds=50.0), Pace(generate_seconds=2.0, step_seconds=5.0)
    config = smaller_step(load_config("pods", ["rollouts.num_prompts=16", "rollouts.max_new_tokens=40"]), 10)
    pace = measured_pace(config, whole, small)
    assert (pace.generate_seconds, pace.step_seconds) == (10.0, 10.0 + 60.0)
    assert pace.first_look == first_look((group,), has_form=False)
    assert pace.smaller_step == "1 × 64 answers of at most 40 tokens" and pace.peak_bytes is None


def test_a_smaller_step_has_a_question_for_each_mini_batch() -> None:
    config = load_config("pods", ["rollouts.num_prompts=12", "optim.num_minibatches=4"])
    found = [smaller_step(config, factor).rollouts.num_prompts for factor in (1.0, 1.5, 2.0, 99.0)]
    assert found == [12, 8, 4, 4]
