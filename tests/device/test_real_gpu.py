"""On a GPU of this machine: the CPU's tokens, and its numbers but for rounding. Sums in no fixed order come on top."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from small_runs import generated, requests, resumed, sampled, taken_step, tiny, trainer

from podsrl.run.evaluate import evaluate
from podsrl.update.packed.flash import runs_flash

pytestmark = pytest.mark.gpu

METRICS = ("loss", "grad_norm", "entropy", "clip_fraction", "logprob_gap")
CASES = {"full": (), "penalty": ("loss.kl_beta=0.05",), "lora": ("lora.rank=4",), "padded": ("optim.packing=off",)}


@pytest.mark.parametrize("room", [{}, {"num_slots": 3}, {"kv_cache_bytes": 60_000}], ids=["all", "slots", "bounded"])
@pytest.mark.parametrize("forward", ["graph", "fast", "model"])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_the_engine_draws_the_cpus_tokens_in_float32(family: str, forward: str, room: dict[str, int]) -> None:
    """No random number lies within 2e-5 of where another token begins: twenty times what float32 rounds."""
    tokens, logprobs = generated(tiny("cpu", family, head_dim=16), requests(nucleus={"top_p": 0.8}))
    model = tiny("cuda", family, torch.float32, head_dim=16)
    found, found_logprobs = generated(model, requests(nucleus={"top_p": 0.8}), forward=forward, **room)
    assert found == tokens
    for key, values in logprobs.items():
        assert found_logprobs[key] == pytest.approx(values, abs=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_a_step_has_the_cpus_tokens_and_numbers(case: str) -> None:
    one, two = (trainer(*CASES[case], device=device) for device in ("cpu", "cuda"))
    assert two.learner.updater.layout.startswith("padded" if case == "padded" else "packed"), two.learner.updater.layout
    assert sampled(two) == sampled(one)
    expected, found = taken_step(one), taken_step(two)
    for name in METRICS:
        assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name
    assert found["tokens/trained"] == expected["tokens/trained"] > 50


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_checkpoint_goes_on(device: str, tmp_path: Path) -> None:
    run = trainer(device="cuda")
    taken_step(run)
    other = resumed(run, tmp_path, device=device)
    assert other.weights_digest == run.weights_digest
    assert sampled(other) == sampled(run)
    expected, found = taken_step(run), taken_step(other)
    for name in METRICS:
        assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize(("dtype", "gap"), [("float32", 1e-3), ("bfloat16", 0.1)])
@pytest.mark.parametrize("lora", [(), ("lora.rank=4",)], ids=["full", "lora"])
def test_number_formats_of_real_models_train(dtype: str, gap: float, lora: tuple[str, ...]) -> None:
    """On the first step the update's log-probs are the engine's, but for rounding."""
    run = trainer(
        f"model.dtype={dtype}", "optim.num_epochs=1", "loss.kl_beta=0.05", *lora, device="cuda", is_double=False
    )
    assert run.learner.updater.layout.startswith("packed"), run.learner.updater.layout
    lines = [taken_step(run) for _ in range(3)]
    assert lines[0]["logprob_gap"] < gap and lines[0]["memory/peak_update_bytes"] > 0
    assert all(math.isfinite(line[name]) for line in lines for name in (*METRICS, "kl"))
    assert lines[-1]["updates/skipped"] == 0 and lines[-1]["version"] == 3
    assert evaluate(run).result.num_samples == 4


@pytest.mark.parametrize("heads", [(14, 2, 64), (16, 2, 128), (9, 3, 64)])
def test_the_updates_kernels_give_torchs_numbers_in_bfloat16(heads: tuple[int, int, int]) -> None:
    """Both are tried beside torch's operators before they are taken."""
    from podsrl.update.one_pass import why_not  # Triton is where CUDA's torch is

    device = torch.device("cuda", 0)
    assert why_not(device, torch.bfloat16) is None and runs_flash(device, torch.bfloat16, *heads)
    assert (
        "log-probs in one pass"
        in trainer("model.dtype=bfloat16", device="cuda", is_double=False).learner.updater.layout
    )
