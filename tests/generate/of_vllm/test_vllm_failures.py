"""What a failure of vLLM's becomes. Its package is imitated: an engine that fails as it is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import Request
from podsrl.generate.vllm.generator import VLLM


class EngineDeadError(Exception):
    """As vLLM raises it from the moment at which it knows, which may be before the process has ended."""


class Living:
    """A watch over processes that have not ended."""

    has_ended = is_late = False
    wake_by = staticmethod(lambda wake: None)
    limited = staticmethod(nullcontext)


def failing(error: Exception, *, at: str, folder: str = "", in_process: bool = False) -> VLLM:
    """A generator whose engine raises an error when it is asked for a request, a step, or to take weights."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    def nothing(*_: Any, **__: Any) -> list[Any]:
        return []

    engine = SimpleNamespace(
        engine_core=None,
        vllm_config=SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=4)),
        **{name: fail if name == at else nothing for name in ("add_request", "step", "abort_request")},
    )
    llm = SimpleNamespace(llm_engine=engine, collective_rpc=fail)
    watch: Any = None if in_process else Living()
    return VLLM(llm, watch=watch, seed=0, scheduler="continuous", max_tokens=128, tied={}, weights_parent=folder)


@pytest.fixture(autouse=True)
def imitated_package(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=0))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=dict, sampling_params=kinds))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)


def asked(generator: VLLM) -> None:
    list(generator.generate([Request("a", (5,))]))


CASES: list[tuple[str, Exception, type[PodsError], Callable[[VLLM], None]]] = [
    ("add_request", EngineDeadError(), LostGenerator, asked),
    ("add_request", ValueError("token 9 is unknown"), UsageError, asked),
    ("step", EngineDeadError(), LostGenerator, asked),
    ("step", RuntimeError("a worker died"), LostGenerator, asked),
    ("load", EngineDeadError(), LostGenerator, lambda generator: generator.load_weights((), 1)),
    ("load", RuntimeError("a worker died"), LostGenerator, lambda generator: generator.load_weights((), 1)),
]


@pytest.mark.parametrize(("at", "error", "wanted", "call"), CASES)
@pytest.mark.parametrize("in_process", [True, False])
def test_an_engine_that_fails_is_a_lost_generator(
    at: str, error: Exception, wanted: type[PodsError], call: Callable[[VLLM], None], in_process: bool, tmp_path: Path
) -> None:
    if in_process and isinstance(error, EngineDeadError):
        return  # no process of its own could end
    with pytest.raises(wanted) as found:
        call(failing(error, at=at, folder=str(tmp_path), in_process=in_process))
    assert isinstance(found.value, LostGenerator) == (wanted is LostGenerator)
