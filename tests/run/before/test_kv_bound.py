"""The bound of key-value memory where a config gives none, with numbers by hand and a device that says what is free."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from podsrl.config.schema import RunConfig
from podsrl.generate import Engine, Sampling, new_engine
from podsrl.run.before.kv_bound import kv_bound, update_bytes
from podsrl.run.step.generators import describe_generation, new_setting

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10_000, 80_000))


def config_of(**sections: Any) -> RunConfig:
    return RunConfig.model_validate(sections)


def test_a_gpu_gives_eight_tenths_of_what_is_free_and_a_cpu_no_bound() -> None:
    assert kv_bound(config_of(), CUDA) == 8_000
    assert kv_bound(config_of(), CUDA, later_bytes=5_000) == 4_000
    assert kv_bound(config_of(), torch.device("cpu")) is None


@pytest.mark.parametrize("device", [CUDA, torch.device("cpu")])
def test_a_bound_of_the_config_s_own_holds_everywhere(device: torch.device) -> None:
    assert kv_bound(config_of(rollouts={"kv_cache_bytes": 123}), device, later_bytes=9_000) == 123


def test_the_update_holds_two_moments_a_weight_and_what_else_its_options_ask_for() -> None:
    model = torch.nn.Linear(10, 10, bias=False)
    model.frozen = torch.nn.Parameter(torch.zeros(5), requires_grad=False)
    assert update_bytes(config_of(), model, 1) == 100 * 8
    assert update_bytes(config_of(optim={"name": "adamw_8bit"}), model, 1) == 100 * 2
    assert update_bytes(config_of(loss={"kl_beta": 0.1}), model, 1) == 100 * 8 + 105 * 4
    assert update_bytes(config_of(loss={"kl_beta": 0.1}, lora={"rank": 2}), model, 1) == 100 * 8
    assert update_bytes(config_of(scale={"strategy": "fsdp2"}), model, 4) == 100 * 8 // 4
    model.bfloat16()
    assert update_bytes(config_of(), model, 1) == update_bytes(config_of(lora={"rank": 2}), model, 1) == 100 * 12


def test_the_start_line_says_where_the_bound_comes_from(monkeypatch: pytest.MonkeyPatch, qwen2: Any) -> None:
    config, sampling = config_of(), Sampling(max_new_tokens=8)
    monkeypatch.setattr("podsrl.run.step.generators.kv_bound", lambda config, device, later: 64_000 - later)
    line = describe_generation(
        new_engine(new_setting(config, lambda: qwen2, qwen2.device, None, later_bytes=4_000)), config, sampling, 4, 1
    )
    assert line.endswith("kv_cache_bytes = 60,000), 80% of the device's free memory")
    own = config_of(rollouts={"kv_cache_bytes": 60_000})
    engine: Any = Engine(qwen2, kv_cache_bytes=60_000)
    assert describe_generation(engine, own, sampling, 4, 1).endswith("kv_cache_bytes = 60,000)")
