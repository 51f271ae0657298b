"""The contract of all generators, for the built-in engine."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from contract import SEED, GeneratorContract, Models, left_nothing

from podsrl.generate import Engine, Generator


class TestEngine(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        with left_nothing():
            engine = Engine(copy.deepcopy(models.first), seed=SEED, tokenizer=models.tokenizer)
            yield engine
            engine.close()
