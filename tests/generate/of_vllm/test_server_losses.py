"""A server that ends, comes back, hangs, errs or lies in the middle of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contract import PROMPT, Models, largest_gap, new_models, setting_of, tokens_of
from engine_server import EngineServer, serving

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import Request, Sampling
from podsrl.generate.vllm.handover import FolderStore
from podsrl.generate.vllm.server import VLLMServer
from podsrl.scale.generators.pool import Pool

pytestmark = pytest.mark.slow  # it waits for servers

LONG = Sampling(max_new_tokens=100, stop_token_ids=())
REQUESTS = [Request(f"q{i}", (*PROMPT, 3 + i), 8, LONG) for i in range(4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return new_models(tmp_path_factory.mktemp("losses") / "model")


@pytest.fixture
def server(models: Models) -> Iterator[EngineServer]:
    with serving(models.first, models.tokenizer, models.folder) as found:
        yield found


def pool_of(*servers: EngineServer, models: Models, folder: Path, retry_seconds: float = 300) -> Pool:
    """What a run makes of servers."""
    of = setting_of(models, max_prompt_tokens=64, max_new_tokens=100)
    options = {"folder": str(folder), "retry_seconds": retry_seconds}
    return Pool([partial(VLLMServer, of, url=server.url, **options) for server in servers], FolderStore(of, **options))


@pytest.fixture
def generator(server: EngineServer, models: Models, tmp_path: Path) -> Iterator[Pool]:
    found = pool_of(server, models=models, folder=tmp_path)
    yield found
    found.close()
    assert list(tmp_path.iterdir()) == []


def restart_after_first_rollouts(server: EngineServer, stream: Iterator[Any]) -> list[Any]:
    found = [next(stream)]
    server.die()
    server.start()
    return [*found, *stream]


def test_a_server_that_restarts_gets_the_newest_weights_and_the_same_requests(
    server: EngineServer, generator: Pool, models: Models
) -> None:
    generator.load_weights(models.second.named_parameters(), 3)
    wanted = tokens_of(generator.generate(REQUESTS))
    mixed = [Request("short", PROMPT, 1, Sampling(max_new_tokens=1)), *REQUESTS]
    found = restart_after_first_rollouts(server, generator.generate(mixed))
    assert {place: ids for place, ids in tokens_of(found).items() if place[0] != "short"} == wanted
    last = {done.group_id: done for done in found if done.index == 7}
    gaps = [largest_gap(models.second, each.prompt_ids, last[each.id], LONG) for each in REQUESTS]
    assert max(gaps) < 2e-4


def test_a_restart_between_two_calls_is_noticed(server: EngineServer, generator: Pool, models: Models) -> None:
    generator.load_weights(models.second.named_parameters(), 3)
    wanted = tokens_of(generator.generate(REQUESTS))
    server.die()
    server.start()
    assert tokens_of(generator.generate(REQUESTS)) == wanted
    server.die()
    server.start()
    assert generator.first_logprob(PROMPT)[1] == pytest.approx(generator.first_logprob(PROMPT)[1], abs=1e-6)
    generator.load_weights(models.first.named_parameters(), 4)
    assert tokens_of(generator.generate(REQUESTS)) != wanted


def test_a_server_that_comes_back_with_another_flag_is_an_error(
    server: EngineServer, generator: Pool, models: Models
) -> None:
    generator.load_weights(models.second.named_parameters(), 3)
    server.die()
    server.is_processed = False
    server.start()
    with pytest.raises(UsageError, match="--logprobs-mode processed_logprobs"):
        list(generator.generate(REQUESTS))


def test_a_server_that_stays_away_is_lost_after_the_time_that_was_given_and_goes_on_when_it_is_back(
    server: EngineServer, models: Models, tmp_path: Path
) -> None:
    generator = pool_of(server, models=models, folder=tmp_path, retry_seconds=1)
    generator.load_weights(models.second.named_parameters(), 1)
    wanted, stream = tokens_of(generator.generate(REQUESTS)), generator.generate(REQUESTS)
    server.die()
    since = time.monotonic()
    with pytest.raises(LostGenerator, match=r"lost.*retry_seconds = 1.*VLLM_SERVER_DEV_MODE=1") as found:
        list(stream)
    assert "\n" not in str(found.value)
    with pytest.raises(LostGenerator):
        generator.load_weights(models.second.named_parameters(), 1)
    with pytest.raises(LostGenerator):
        generator.first_logprob(PROMPT)
    assert time.monotonic() - since < 200
    server.start()
    assert tokens_of(generator.generate(REQUESTS)) == wanted
    generator.close()
    assert list(tmp_path.iterdir()) == []


def test_one_of_two_servers_restarts(server: EngineServer, models: Models, tmp_path: Path) -> None:
    with serving(models.first, models.tokenizer, models.folder) as other:
        pool = pool_of(server, other, models=models, folder=tmp_path)
        pool.load_weights(models.second.named_parameters(), 1)
        assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 1  # written once for both
        wanted = tokens_of(pool.generate(REQUESTS))
        mixed = [Request("short", PROMPT, 1, Sampling(max_new_tokens=1)), *REQUESTS]
        found = tokens_of(restart_after_first_rollouts(server, pool.generate(mixed)))
        assert {place: ids for place, ids in found.items() if place[0] != "short"} == wanted
        pool.close()
    assert list(tmp_path.iterdir()) == []


# --- answers that are none ---


def of_completions(change: Any) -> Any:
    def alter(path: str, body: Any, answer: Any) -> Any:
        if path != "/v1/completions" or "request_id" not in body:
            return answer
        return change(answer[1]["choices"][0]) or answer

    return alter


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda choice: choice.update(token_ids=[5, 99]), "vocabulary"),
        (lambda choice: choice.update(token_ids=[5, True]), "vocabulary"),
        (lambda choice: choice.update(token_ids="abc"), "vocabulary"),
        (lambda choice: choice["logprobs"]["token_logprobs"].append(-1.0), "100 tokens and 101 log-probs"),
        (lambda choice: choice["logprobs"].update(token_logprobs=["a"] * 100), "list of numbers"),
        (lambda choice: choice["logprobs"]["token_logprobs"].__setitem__(0, 0.5), "above 0"),
        (lambda choice: choice.update(finish_reason="cosmic"), "cosmic"),
        (lambda choice: choice.update(finish_reason="stop", token_ids=[], logprobs=None), "finish_reason"),
        (lambda choice: choice["token_ids"].append(5) or choice["logprobs"]["token_logprobs"].append(-1.0), "101"),
        (lambda choice: (200, {"choices": []}), "no choice"),
        (lambda choice: (200, b""), "no choice"),
        (lambda choice: (200, b"[" * 100_000), "no JSON"),
        (lambda choice: (200, b"<html>"), "no JSON"),
        (lambda choice: (400, {"error": {"message": "your\nfault \x1b[2J"}}), "your fault"),
        (lambda choice: (500, {"error": {"message": "out of order"}}), "out of order"),
    ],
)
def test_a_wrong_answer_is_one_line(server: EngineServer, generator: Pool, change: Any, wanted: str) -> None:
    server.alter = of_completions(change)
    with pytest.raises(PodsError, match=wanted) as found:
        list(generator.generate([Request("a", PROMPT, 2, LONG)]))
    assert not isinstance(found.value, LostGenerator)
    assert "\n" not in str(found.value) and "\x1b" not in str(found.value) and server.url in str(found.value)


@pytest.mark.parametrize("value", [float("nan"), -9999.0])
def test_a_logprob_that_is_none_makes_the_rollout_invalid(server: EngineServer, generator: Pool, value: float) -> None:
    server.alter = of_completions(lambda choice: choice["logprobs"]["token_logprobs"].__setitem__(5, value))
    for done in generator.generate([Request("a", PROMPT, 2, LONG)]):
        assert (len(done.token_ids), done.status) == (5, "failed")


def test_a_short_fault_of_the_server_is_tried_again(server: EngineServer, generator: Pool) -> None:
    wanted = tokens_of(generator.generate(REQUESTS))
    left = [3]

    def alter(path: str, body: Any, answer: Any) -> Any:
        if path == "/v1/completions" and left[0]:
            left[0] -= 1
            return 503 if left[0] else 500, b"busy"
        return answer

    server.alter = alter
    assert tokens_of(generator.generate(REQUESTS)) == wanted and left == [0]


def test_an_answer_that_is_cut_is_asked_again(server: EngineServer, generator: Pool) -> None:
    wanted = tokens_of(generator.generate(REQUESTS))
    server.cuts = [0, 20, 0, 1]
    assert tokens_of(generator.generate(REQUESTS)) == wanted and server.cuts == []


def test_a_rollout_that_the_server_aborts_by_itself_is_asked_again(server: EngineServer, generator: Pool) -> None:
    """As vLLM does with what runs when it is told to end."""
    wanted, left = tokens_of(generator.generate(REQUESTS)), [3]

    def alter(choice: Any) -> None:
        if left[0]:
            left[0] -= 1
            del choice["token_ids"][4:], choice["logprobs"]["token_logprobs"][4:]
            choice["finish_reason"] = "abort"

    server.alter = of_completions(alter)
    assert tokens_of(generator.generate(REQUESTS)) == wanted and left == [0]


# --- who shares a server ---


def test_the_rollouts_of_others_are_not_aborted(server: EngineServer, generator: Pool) -> None:
    body = {
        "prompt": [5],
        "max_tokens": 200,
        "temperature": 1.0,
        "top_k": 0,
        "logprobs": 0,
        "priority": 0,
        "ignore_eos": True,
    }
    theirs: list[Any] = []
    other = threading.Thread(target=lambda: theirs.append(server.answer("/v1/completions", body | {"request_id": "x"})))
    other.start()
    stream = generator.generate([Request("short", PROMPT, 1, Sampling(max_new_tokens=1)), *REQUESTS])
    next(stream)
    generator.abort(["q0", "q1", "q2", "q3"])
    assert {done.status for done in stream} == {"open"}
    other.join()
    assert theirs[0][1]["choices"][0]["finish_reason"] == "length"
    lists = [each["request_ids"] for each in server.bodies("/abort_requests")]
    assert lists and all(lists) and all(name.startswith("cmpl-podsrl-") for names in lists for name in names)


def test_another_run_on_the_server_is_noticed(server: EngineServer, generator: Pool, models: Models) -> None:
    generator.load_weights(models.second.named_parameters(), 1)
    server.answer("/update_weight_version", {"new_version": "podsrl-another-7"})
    with pytest.raises(PodsError, match="another run"):
        list(generator.generate(REQUESTS))


def test_requests_have_the_priorities_of_the_refill_order_and_a_salt_per_version(
    server: EngineServer, models: Models, tmp_path: Path
) -> None:
    of = setting_of(models, scheduler="continuous+breadth", num_slots=2)
    generator = VLLMServer(of, url=server.url, folder=str(tmp_path))
    requests = [Request(f"r{k}", (*PROMPT, 9), 2, Sampling(max_new_tokens=k, stop_token_ids=())) for k in (3, 9)]
    list(generator.generate(requests))
    bodies = [each for each in server.bodies("/v1/completions") if "request_id" in each]
    assert [each["max_tokens"] for each in sorted(bodies, key=lambda each: each["priority"])] == [3, 9, 3, 9]
    generator.load_weights(models.first.named_parameters(), 1)
    list(generator.generate(requests))
    assert len({each["cache_salt"] for each in server.bodies("/v1/completions") if "request_id" in each}) == 2
    assert generator.stats.slots_used <= 2
    generator.close()
