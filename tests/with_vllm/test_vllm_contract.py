"""The contract of all generators, for vLLM in this process and in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract import GeneratorContract, Models, left_nothing, setting_of

from podsrl.generate import Generator
from podsrl.generate.vllm.make import make_vllm


class TestInThisProcess(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        with left_nothing():
            generator = make_vllm(setting_of(models))
            yield generator
            generator.close()
            generator.close()


class TestInItsOwnProcesses(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generator]:
        folder = tmp_path_factory.mktemp("weights")
        with left_nothing(folder):
            generator = make_vllm(setting_of(models), in_process=False, weights_folder=str(folder))
            yield generator
            generator.close()
            generator.close()
