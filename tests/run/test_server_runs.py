"""A run whose rollouts come from servers, which speak vLLM's routes around the built-in engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_server import EngineServer, serving

from podsrl.generate.vllm.handover import DEFAULT_FOLDER, RUN, name_of
from podsrl.policy import model_folder
from runs import flags, lines_of

Pods = Callable[..., tuple[int, str, str]]
SMALL = flags("task.num_eval=16", "rollouts.max_new_tokens=24", "eval.every_steps=2", "stop.steps=3")
SHORT = flags("task.num_eval=16", "rollouts.max_new_tokens=24", "stop.steps=2")


@pytest.fixture
def server() -> Iterator[EngineServer]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = model_folder("builtin:arithmetic")
    with serving(
        AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), Path(folder)
    ) as found:
        yield found


COUNTED = ("step", "version", "tokens", "rollouts", "groups", "reward", "accuracy", "eval")


def metrics(path: Path) -> list[dict[str, Any]]:
    """What rests on the tokens alone: the batch in which rollouts meet decides the last bits of log-probs."""
    return [{key: value for key, value in line.items() if key.startswith(COUNTED)} for line in lines_of(path)]


def left_for(*servers: EngineServer) -> list[str]:
    """Other tests may use servers of their own meanwhile."""
    names = (f"podsrl-{RUN}", *(name_of(server.url) for server in servers))
    return [path.name for name in names for path in Path(DEFAULT_FOLDER).glob(f"{name}*")]


def test_a_run_whose_server_ends_saves_a_checkpoint_that_goes_on_as_if_nothing_had_been(
    pods: Pods, server: EngineServer, tmp_path: Path
) -> None:
    run = ("train", "pods", *SMALL, f"--rollouts.generator=vllm+{server.url}", "--options.vllm.retry_seconds=0.5")
    code, _, err = pods(*run, "--out=whole")
    assert code == 0, err
    assert metrics(tmp_path / "whole")[-1]["step"] == 3

    has_ended: list[str] = []

    def end_in_step_2(path: str, body: Any, answer: Any) -> Any:
        if path == "/v1/completions" and str(body.get("request_id")).startswith("podsrl-"):
            loads = [each for each in server.bodies("/collective_rpc") if each["method"] == "reload_weights"]
            if len(loads) == 3:  # the empty folder, the first weights, and those after step 1
                has_ended.append(path)
        if has_ended:
            raise ConnectionAbortedError
        return answer

    server.asked.clear()
    server.alter = end_in_step_2
    code, _, err = pods(*run, "--out=broken")
    assert code == 1 and "is lost" in err and "VLLM_SERVER_DEV_MODE=1" in err
    server.alter = lambda path, body, answer: answer
    code, _, err = pods("train", "--resume", "broken")
    assert code == 0, err
    assert metrics(tmp_path / "broken") == metrics(tmp_path / "whole")
    assert left_for(server) == []


def test_two_servers_are_shared_out_by_group(pods: Pods, server: EngineServer, tmp_path: Path) -> None:
    with serving(server.model, server.tokenizer, server.folder) as other:
        names = f"vllm+{server.url},{other.url}"
        code, _, err = pods("train", "pods", *SHORT, f"--rollouts.generator={names}", "--out=two")
        assert code == 0, err
        for each in (server, other):
            asked = [body for body in each.bodies("/v1/completions") if "request_id" in body]
            assert len({tuple(body["prompt"]) for body in asked if body["max_tokens"] == 24}) >= 2
    assert left_for(server, other) == []


def test_more_processes_than_servers_and_generators_beside_servers_are_errors(pods: Pods) -> None:
    code, _, err = pods("train", "pods", "--rollouts.generator=vllm+http://127.0.0.1:1", "--scale.generators=2")
    assert code == 2 and "scale.generators = 2" in err
    code, _, err = pods("train", "pods", "--rollouts.generator=vllm+http://127.0.0.1:1")
    assert code == 2 and "--port 1 " in err
