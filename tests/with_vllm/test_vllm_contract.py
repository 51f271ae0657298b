"""The contract of all generators, for vLLM in this process and in a child of it (`scale.generators`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract import GeneratorContract, Models, left_nothing, setting_of

from podsrl.config.schema import ModelConfig
from podsrl.generate import Generator
from podsrl.generate.vllm.make import make_vllm
from podsrl.policy import load_tokenizer
from podsrl.scale.generators.process import ProcessGenerator
from podsrl.scale.generators.worker import Blueprint


class TestInThisProcess(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        with left_nothing():
            generator = make_vllm(setting_of(models))
            yield generator
            generator.close()
            generator.close()


class TestInAChild(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        setting, config = setting_of(models), ModelConfig(path=str(models.folder), device="cpu")
        blueprint = Blueprint.of(
            models.first,
            load_tokenizer(config),
            setting,
            generator="vllm",
            options={},
            config=config,
            threads=1,
            num_workers_here=1,
        )
        with left_nothing():
            generator = ProcessGenerator(blueprint, timeout_seconds=300.0)
            generator.load_weights(models.first.named_parameters(), 0)
            yield generator
            generator.close()
