"""Whole steps of a run on a pretended GPU: the CPU's tokens and numbers, checkpoints, evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import STEP, resumed, sampled, steps_and_a_resume, taken_step, trainer

from podsrl.config.load import load_config
from podsrl.run.evaluate import evaluate
from podsrl.run.step.trainer import Trainer

CASES = {
    "full": (),
    "penalty": ("loss.kl_beta=0.05",),
    "lora": ("lora.rank=4",),
    "lora-penalty": ("lora.rank=4", "loss.kl_beta=0.05"),
    "padded": ("optim.packing=off", "optim.num_epochs=3"),
    "recomputed": ("model.gradient_checkpointing=true", "optim.prefix_sharing=on"),
    "chunks": ("select.num_chunks=2", "loss.name=dapo"),
}


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every metric but clocks, bytes and the digest.

    The sampled log-probs and the model's norms are float32 (roundings of 6e-8), and AdamW divides by a gradient's size:
    1e-4 leaves room for some hundred such roundings.
    """
    for name, value in expected.items():
        if isinstance(value, float) and not name.startswith("seconds/"):
            assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
        elif not name.startswith(("seconds/", "memory/", "sync/")):
            assert found[name] == value, name


@pytest.mark.parametrize("case", CASES)
def test_a_step_has_the_cpus_tokens_and_numbers(case: str) -> None:
    one, two = (trainer(*CASES[case], device=device) for device in ("cpu", "cuda"))
    assert two.model.device.type == "cuda"
    assert two.learner.updater.layout.startswith("padded" if case == "padded" else "packed"), two.learner.updater.layout
    assert sampled(two) == sampled(one)
    expected, found = taken_step(one), taken_step(two)
    assert expected["tokens/trained"] > 50 and expected["grad_norm"] > 0.01
    assert_close(found, expected)
    assert found["memory/peak_update_bytes"] > 2 * sum(p.nbytes for p in two.model.parameters() if p.requires_grad)


@pytest.mark.parametrize("case", ["full", "lora-penalty"])
def test_a_checkpoint_goes_on_bit_for_bit(case: str, tmp_path: Path) -> None:
    steps_and_a_resume(tmp_path, *CASES[case])


@pytest.mark.parametrize("case", ["full", "lora"])
def test_a_checkpoint_goes_on_on_the_cpu(case: str, tmp_path: Path) -> None:
    run = trainer(*CASES[case], device="cuda")
    taken_step(run)
    other = resumed(run, tmp_path, *CASES[case], device="cpu")
    assert other.weights_digest == run.weights_digest and other.model.device.type == "cpu"
    assert sampled(other) == sampled(run)
    assert_close(taken_step(other), taken_step(run))


@pytest.mark.parametrize(
    ("dtype", "gap", "more"), [("float32", 1e-4, ()), ("bfloat16", 0.1, ()), ("bfloat16", 0.1, ("lora.rank=4",))]
)
def test_number_formats_of_real_models_train_and_resume(
    dtype: str, gap: float, more: tuple[str, ...], tmp_path: Path
) -> None:
    """On the first step the trainer's log-probs are the engine's, but for rounding."""
    option = f"model.dtype={dtype}", "optim.num_epochs=1", *more
    run = trainer(*option, device="cuda", is_double=False)
    assert {weight.dtype for weight in run.policy.weights().values()} == {getattr(torch, dtype)}
    assert run.learner.updater.layout.startswith("packed"), run.learner.updater.layout
    assert "log-probs by torch's operators, because" in run.learner.updater.layout  # Triton's need a real GPU
    line = taken_step(run)
    assert line["logprob_gap"] < gap and math.isfinite(line["grad_norm"]) and line["updates/skipped"] == 0
    other = resumed(run, tmp_path, *option, device="cuda", is_double=False)
    assert taken_step(other)["sync/weights_digest"] == taken_step(run)["sync/weights_digest"]


def test_dropout_of_adapters_changes_the_update_alone() -> None:
    """It draws on the device. On a step's second epoch the adapters are no longer zero."""
    with_it, without = (trainer("lora.rank=4", f"lora.dropout={p}", device="cuda") for p in (0.5, 0.0))
    assert sampled(with_it) == sampled(without)
    gaps = [taken_step(run)["logprob_gap"] for run in (with_it, without)]
    assert abs(gaps[0] - gaps[1]) > 0.01 * gaps[1] > 0


def test_an_evaluation_gives_the_cpus_accuracy() -> None:
    options = "rollouts.max_new_tokens=48", "eval.num_samples=4"
    results = [evaluate(trainer(*options, device=device)).result for device in ("cpu", "cuda")]
    assert results[0] == results[1] and results[0].reward != round(results[0].reward)


def test_a_config_puts_the_whole_run_on_the_gpu() -> None:
    """No model is given here: the weights go to the device as they are read."""
    run = Trainer(load_config("pods", [*STEP, "model.device=cuda"]))
    assert {tensor.device for tensor in run.model.state_dict().values()} == {torch.device("cuda", 0)}
    assert taken_step(run)["version"] == 2
