"""What "auto" becomes; the GPU is pretended, and no kernel runs on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.before.prepare import prepare
from podsrl.run.before.settle import settle

LARGE = "model.path=someone/model-on-the-hub"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.generate.vllm.start.check_installed", lambda: None)


def chosen(*overrides: str, num_processes: int = 1) -> tuple[str, str, tuple[str, ...]]:
    config, lines = settle(load_config("gsm8k", overrides), num_processes)
    return config.model.dtype, config.rollouts.generator, lines


def test_on_a_cpu_it_is_float32_and_the_own_engine() -> None:
    dtype, generator, lines = chosen(LARGE)
    assert (dtype, generator) == ("float32", "engine")
    assert [line.partition(" is ")[0] for line in lines] == ["model.dtype = 'auto'", "rollouts.generator = 'auto'"]
    assert all(line.endswith("the model is on the CPU") for line in lines)


@pytest.mark.usefixtures("gpu", "vllm")
def test_on_a_gpu_with_vllm_it_is_bfloat16_and_vllm() -> None:
    assert chosen(LARGE)[:2] == ("bfloat16", "vllm")
    assert chosen(LARGE, "model.device=cpu")[:2] == ("float32", "engine")
    assert chosen("model.path=builtin:arithmetic")[:2] == ("float32", "engine")  # too small for a GPU


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_only_imitates_bfloat16_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert chosen(LARGE)[0] == "float32"


@pytest.mark.usefixtures("gpu")
def test_without_vllm_the_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.generate.vllm.start.find_spec", lambda name: None)
    _, generator, lines = chosen(LARGE)
    assert generator == "engine" and "pip install 'podsrl[vllm]'" in lines[1]


@pytest.mark.usefixtures("gpu", "vllm")
def test_what_vllm_refuses_is_the_reason_for_the_own_engine() -> None:
    _, generator, lines = chosen(LARGE, num_processes=2)
    assert generator == "engine" and "scale.generators = 2" in lines[1]
    _, generator, lines = chosen(LARGE, "rollouts.temperature=2.5")
    assert generator == "engine" and "rollouts.temperature = 2.5" in lines[1]
    assert chosen(LARGE, "scale.generators=2", num_processes=2)[1] == "vllm"


@pytest.mark.usefixtures("gpu", "vllm")
@pytest.mark.parametrize(("section", "option", "value"), [("model", "dtype", "float32"), ("rollouts", "top_k", 7)])
def test_what_is_given_stays(section: str, option: str, value: Any) -> None:
    config = RunConfig.model_validate({section: {option: value}})
    assert settle(config) == (config, ())


@pytest.mark.parametrize("name", ["gsm8k", "math"])
def test_a_recipe_for_any_model_wants_one_before_it_reads_data(name: str) -> None:
    with pytest.raises(UsageError, match=r"^model\.path has to be given: .*--model\.path=\w+/.*--model\.path=\w+"):
        prepare(load_config(name, ["task.path=/nowhere"]))
    with pytest.raises(UsageError, match=r"^model\.path has to be given"):
        settle(load_config(name))  # before any line is said
