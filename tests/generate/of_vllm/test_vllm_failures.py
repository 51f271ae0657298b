"""What a failure of vLLM's becomes. Its package is imitated: an engine that fails as it is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import Request
from podsrl.generate.vllm.generator import VLLM


def failing(error: Exception, *, at: str) -> VLLM:
    """A generator whose engine raises an error when it is asked for a request, a step, or to take weights."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    def nothing(*_: Any, **__: Any) -> list[Any]:
        return []

    engine = SimpleNamespace(
        engine_core=None,
        vllm_config=SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=4)),
        **{name: fail if name == at else nothing for name in ("add_request", "step", "set_weight_version")},
    )
    llm = SimpleNamespace(llm_engine=engine, collective_rpc=fail)
    return VLLM(llm, seed=0, scheduler="continuous", max_tokens=128, tied={})


@pytest.fixture(autouse=True)
def imitated_package(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=0))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=dict, sampling_params=kinds))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)


def asked(generator: VLLM) -> None:
    list(generator.generate([Request("a", (5,))]))


CASES: list[tuple[str, Exception, type[PodsError], Callable[[VLLM], None]]] = [
    ("add_request", ValueError("token 9 is unknown"), UsageError, asked),
    ("step", RuntimeError("a worker died"), LostGenerator, asked),
    ("load", RuntimeError("a worker died"), LostGenerator, lambda generator: generator.load_weights((), 1)),
]


@pytest.mark.parametrize(("at", "error", "wanted", "call"), CASES)
def test_an_engine_that_fails_is_a_lost_generator(
    at: str, error: Exception, wanted: type[PodsError], call: Callable[[VLLM], None]
) -> None:
    with pytest.raises(wanted) as found:
        call(failing(error, at=at))
    assert isinstance(found.value, LostGenerator) == (wanted is LostGenerator)
