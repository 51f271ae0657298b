"""Sizes that suit the machine: with numbers by hand, for machines of any memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from podsrl.config.load import load_config, with_values
from podsrl.run.before import fit as module
from podsrl.run.before.estimate import estimate, peak, phase_bytes
from podsrl.run.before.fit import SHARE, fit
from podsrl.run.before.model_shape import read_shape
from podsrl.run.before.prepare import prepare
from podsrl.run.before.sizes import sized
from podsrl.run.saving.changes import forbidden_changes
from podsrl.run.step.trainer import Trainer

MIB = 1 << 20
LARGE = ("rollouts.num_prompts=8", "rollouts.num_rollouts=64", "rollouts.max_new_tokens=512", "model.device=cpu")


def fitted(monkeypatch: pytest.MonkeyPatch, mebibytes: int, *overrides: str, **known: Any) -> Any:
    monkeypatch.setattr(module, "host_bytes", lambda: mebibytes * MIB)
    known = {"longest_prompt": 20, "num_eval": 8} | known
    config = load_config("pods", [*LARGE, *overrides])
    return config, *fit(config, **known), sized(config, longest_prompt=known["longest_prompt"], num_eval=8)


def test_what_fits_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    config, found, lines, _ = fitted(monkeypatch, 1 << 20)
    assert found is config and lines == ()


@pytest.mark.parametrize("mebibytes", [250, 200, 150, 100])
def test_a_smaller_machine_holds_fewer_answers_at_a_time(monkeypatch: pytest.MonkeyPatch, mebibytes: int) -> None:
    config, found, [line], most = fitted(monkeypatch, mebibytes)
    shape = read_shape(config.model)
    assert peak(estimate(most, shape)) > SHARE * mebibytes * MIB
    bound = found.rollouts.kv_cache_bytes
    rows = bound // ((20 + 512) * 2 * 2 * 16 * 3 * 4)  # keys and values of two heads of 16 in three layers, float32
    assert 0 < rows < 8 * 64 and f"; {rows:,} of 512 answers at a time" in line
    held = sized(found, longest_prompt=20, num_eval=8)
    assert peak(estimate(held, shape)) <= SHARE * mebibytes * MIB
    differing = {key for key, value in found.model_dump().items() if value != config.model_dump()[key]}
    assert differing <= {"rollouts", "optim"}


def test_what_the_config_says_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("rollouts.kv_cache_bytes=1GiB", "optim.micro_batch_tokens=9000", "optim.logprob_chunk_tokens=3000")
    config, found, lines, _ = fitted(monkeypatch, 200, *own)
    assert found is config and lines == ()


@pytest.mark.parametrize(
    ("factor", "own", "expected"),
    [(1.0, 8192, 8192), (2.0, 8192, 16_384), (3.9, 8192, 16_384), (9.0, 8192, 32_768), (9.0, 500, 500)],
)
def test_micro_batches_of_a_gpu_grow_as_its_memory_allows(
    monkeypatch: pytest.MonkeyPatch, factor: float, own: int, expected: int
) -> None:
    """`factor` times the activations of 8,192 tokens fit, beside all else that the update holds."""
    gpu = torch.device("cuda")
    plain = load_config("pods", [*LARGE, "optim.micro_batch_tokens=8192", "optim.logprob_chunk_tokens=100"])
    parts = estimate(sized(plain, longest_prompt=20, num_eval=8), read_shape(plain.model))
    activations = next(part.num_bytes for part in parts if part.name == "activations")
    num_bytes = phase_bytes(parts)[1] + (factor - 1) * activations + 1000
    monkeypatch.setattr(module, "find_device", lambda name: gpu)
    monkeypatch.setattr(module, "choose_device", lambda model: gpu)
    monkeypatch.setattr(module, "total_bytes", lambda device: num_bytes / SHARE)
    config = with_values(plain, optim={"micro_batch_tokens": own})
    found, lines = fit(config, longest_prompt=20, num_eval=8)
    assert found.optim.micro_batch_tokens == expected
    assert [line.partition(": ")[0] for line in lines] == [f"optim.micro_batch_tokens = {expected} here"] * (
        expected > 8192
    )


def test_processes_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, half = (fitted(monkeypatch, 200, num_processes=2, num_here=count)[1] for count in (1, 2))
    assert 0 < half.rollouts.kv_cache_bytes < (alone.rollouts.kv_cache_bytes or 1 << 60)


def test_a_long_prompt_that_the_data_does_not_have_takes_no_memory() -> None:
    config = load_config("pods", ["rollouts.max_prompt_tokens=512"])
    long, short = (sized(config, longest_prompt=length) for length in (0, 40))
    assert (long.rollouts.max_prompt_tokens, short.rollouts.max_prompt_tokens) == (512, 40)
    assert sized(config, longest_prompt=40, num_eval=9).task.num_eval == 9
    guided = load_config("pods", ["systems=xrpo"])
    assert sized(guided, longest_prompt=40).rollouts.max_prompt_tokens == guided.rollouts.max_prompt_tokens


def test_a_run_keeps_the_choice_in_its_config_and_on_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.run.step.trainer.host_bytes", lambda: 80 * MIB)
    config = load_config("pods", [*LARGE[:2], "rollouts.max_new_tokens=200", "model.device=cpu", "task.num_eval=8"])
    trainer = Trainer(config)
    try:
        assert trainer.config.rollouts.kv_cache_bytes == trainer.engine.kv_cache_bytes  # type: ignore[attr-defined]
        assert any("kv_cache_bytes" in line for line in trainer.choices)
    finally:
        trainer.close()
    resumed = Trainer(config, parts=prepare(config))  # as `session.resume` makes it
    try:
        assert resumed.config.rollouts.kv_cache_bytes == 0
    finally:
        resumed.close()
    changes = forbidden_changes(resumed.config.model_dump(mode="json"), trainer.config.model_dump(mode="json"))
    assert changes == []
