"""Where a model is placed on a machine with a GPU; the GPU is pretended, and no kernel runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.plan.preview import preview_run
from podsrl.policy import choose_device, device_notes, load_model
from podsrl.run.before.prepare import prepare


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.fixture
def cudnn() -> Iterator[None]:
    """torch's choice as it is at first, and afterwards again."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.usefixtures("gpu")
def test_auto_keeps_the_demos_model_on_the_cpu_and_says_so() -> None:
    assert load_model(ModelConfig()).device.type == "cpu"
    [note] = device_notes(ModelConfig())
    assert "it has 136,192 weights" in note and "model.device = 'cuda' uses the GPU all the same" in note


@pytest.mark.usefixtures("gpu")
def test_a_larger_model_and_an_explicit_device_go_to_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device(ModelConfig(device="cuda")).type == "cuda"
    assert choose_device(ModelConfig(path="someone/model-on-the-hub")).type == "cuda"
    monkeypatch.setattr("podsrl.policy.device.SMALL_FOR_A_GPU", 136_192)
    assert choose_device(ModelConfig()).type == "cuda"
    monkeypatch.setattr("podsrl.policy.device.SMALL_FOR_A_GPU", 136_193)
    assert choose_device(ModelConfig()).type == "cpu"


@pytest.mark.parametrize(
    ("facts", "is_told"),
    [
        ({"flags": "fpu sse2 avx2 avx512f"}, True),
        ({"flags": "fpu avx512f avx512_bf16"}, False),
        ({"flags": "fpu amx_bf16"}, False),
        ({"Features": "fp asimd sve"}, True),
        ({"Features": "fp asimd bf16"}, False),
        ({}, False),
    ],
)
def test_bfloat16_on_a_processor_without_it_is_told(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], is_told: bool
) -> None:
    monkeypatch.setattr("podsrl.policy.device.processor_facts", lambda: facts)
    notes = device_notes(ModelConfig(dtype="bfloat16", device="cpu"))
    assert len(notes) == is_told and all("model.dtype = 'bfloat16'" in note and "'float32'" in note for note in notes)
    assert device_notes(ModelConfig(device="cpu")) == ()


@pytest.mark.usefixtures("gpu")
def test_damaged_weights_are_no_business_of_the_choice(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    assert choose_device(ModelConfig(path=str(tmp_path))).type == "cuda"


def test_without_a_gpu_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_notes(ModelConfig()) == () and choose_device(ModelConfig()).type == "cpu"


@pytest.mark.usefixtures("gpu")
def test_the_slower_format_on_a_gpu_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    [note] = device_notes(ModelConfig(device="cuda"))
    assert note.startswith("model.dtype = 'float32'") and "'bfloat16'" in note
    for is_native in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, is_native=is_native: is_native)
        notes = device_notes(ModelConfig(device="cuda", dtype="bfloat16"))
        assert len(notes) == (not is_native) and all("the GPU has no instructions" in note for note in notes)


@pytest.mark.usefixtures("gpu")
def test_a_run_and_its_dry_run_begin_with_the_choice() -> None:
    config = load_config("pods", ["task.num_eval=8"])
    parts = prepare(config)
    parts.close()
    assert parts.warnings[0] == device_notes(config.model)[0]
    plan = preview_run(config)
    assert plan.machine == "this machine's CPU" and plan.warnings[0] == parts.warnings[0]


@pytest.mark.usefixtures("gpu", "cudnn")
def test_a_model_on_a_gpu_takes_cudnn_out_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    load_model(ModelConfig(device="cpu"))
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with suppress(UsageError):  # where the GPU is only pretended, the weights cannot get there
        load_model(ModelConfig(device="cuda"))
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def refused(config: Any) -> None:
    with pytest.raises(UsageError, match=r"model.dtype = 'float16' cannot be trained.*'bfloat16' or 'float32'"):
        prepare(config)
    with pytest.raises(UsageError, match=r"model.dtype = 'float16'"):
        preview_run(config)


def test_training_in_float16_is_refused_before_the_weights_are_read() -> None:
    refused(load_config("pods", ["model.dtype=float16"]))
    refused(load_config("pods", ["model.dtype=float16", "lora.rank=4"]))
    prepare(load_config("pods", ["model.dtype=float16", "task.num_eval=8"]), is_trained=False).close()
