"""The contract of all generators, for a server and for two of them as one. The servers speak vLLM's routes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from contract import Models, left_nothing, setting_of
from engine_server import ServerContract, serving

from podsrl.generate import Generator
from podsrl.generate.vllm.handover import FolderStore
from podsrl.generate.vllm.server import VLLMServer
from podsrl.scale.generators.pool import Pool

pytestmark = pytest.mark.slow  # it waits for servers


class TestServer(ServerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        with left_nothing(), serving(models.first, models.tokenizer, models.folder) as server:
            generator = VLLMServer(setting_of(models), url=server.url)
            yield generator
            generator.close()


class TestTwoServers(ServerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        of = (models.first, models.tokenizer, models.folder)
        with left_nothing(), serving(*of) as one, serving(*of) as other:
            setting = setting_of(models)
            factories = [partial(VLLMServer, setting, url=server.url) for server in (one, other)]
            generator = Pool(factories, FolderStore(setting), what="2 servers")
            generator.load_weights(models.first.named_parameters(), 0)
            yield generator
            generator.close()
