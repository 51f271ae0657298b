"""What is wrong with a server is said in one line, with the cure, before any weights are read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract import PROMPT, Models, new_models, setting_of
from engine_server import EngineServer, serving

from podsrl.errors import UnavailableError, UsageError
from podsrl.generate import Request, Setting, resolve_generator
from podsrl.generate.vllm.server import VLLMServer
from podsrl.run.step.generators import make_generator
from podsrl.scale.processes import Processes

pytestmark = pytest.mark.slow  # it waits for servers


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return new_models(tmp_path_factory.mktemp("checks") / "model")


@pytest.fixture
def server(models: Models) -> Iterator[EngineServer]:
    with serving(models.first, models.tokenizer, models.folder) as found:
        yield found


def setting(models: Models) -> Setting:
    return setting_of(models, max_prompt_tokens=64, max_new_tokens=64)


def check(url: str, **options: Any) -> None:
    resolve_generator(f"vllm+{url}", {"vllm": options}).check()


def test_several_addresses_are_one_generator(server: EngineServer, models: Models, tmp_path: Path) -> None:
    with serving(models.first, models.tokenizer, models.folder) as other:
        kind = resolve_generator(f"vllm+{server.url},{other.url}", {"vllm": {"folder": str(tmp_path)}})
        generator = make_generator(kind, setting(models), Processes())
        questions = [Request(f"q{i}", PROMPT) for i in range(4)]
        assert "2 servers" in generator.describe(questions)
        assert len(list(generator.generate(questions))) == 4
        assert server.bodies("/v1/completions") and other.bodies("/v1/completions")
        generator.close()


def answering(**answers: Any) -> dict[str, Any]:
    """A server with other answers, by the last word of the path."""
    return {"alter": lambda path, body, answer: answers.get(path.rpartition("/")[2], answer)}


BROKEN = {"completions": (500, {"error": {"message": "EngineCore failed"}}), "health": (503, b"")}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"is_developer": False}, "VLLM_SERVER_DEV_MODE=1"),
        ({"has_labels": False}, "vLLM 0.32 or newer"),
        ({"is_processed": False}, "--logprobs-mode processed_logprobs"),
        ({"has_priorities": False}, "--scheduling-policy priority"),
        ({"is_chunked": True, "is_on_cpu": True}, "--no-enable-chunked-prefill"),
        ({"key": "secret"}, "options.vllm.key_from"),
        (answering(**BROKEN), r"first request.*EngineCore failed.*heads of 32"),
        (answering(models=(200, {"hello": 1})), "no vLLM server"),
        ({"alter": lambda *_: (307, {})}, r"redirects to 'http://127\.0\.0\.1:9/elsewhere'"),
    ],
)
def test_a_missing_flag_or_what_is_no_server_of_vllm_is_named(
    server: EngineServer, changes: dict[str, Any], wanted: str
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    with pytest.raises(UsageError, match=wanted) as found:
        check(server.url)
    assert "\n" not in str(found.value) and server.url in str(found.value)


def test_an_address_where_nothing_answers_is_unavailable_and_the_command_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError, match=rf"127.0.0.1:{port}.*DEV_MODE=1 .*--host 127.0.0.1 --port {port} "):
        check(f"http://127.0.0.1:{port}")


def test_a_proxy_of_the_environment_is_not_asked(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    check(server.url)


def test_a_key_comes_from_the_environment(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "secret"
    monkeypatch.setenv("MY_KEY", "secret")
    check(server.url, key_from="MY_KEY")
    with pytest.raises(UsageError, match=r"options\.vllm\.key_from = 'NO_KEY'"):
        check(server.url, key_from="NO_KEY")


@pytest.mark.parametrize(
    "name",
    [
        "vllm+http://",
        "vllm+ftp://a:1",
        "vllm+http://a:99999",
        "vllm+http://a b:1",
        "vllm+http://user:word@a:1",
        "vllm+http://a:1?x=1",
        "vllm+http://a:1,",
        "vllm+http://a:1,http://a:1/",
        "vllm+",
    ],
)
def test_a_wrong_address_is_an_error_before_anything_is_asked(name: str) -> None:
    with pytest.raises(UsageError, match=r"rollouts\.generator"):
        resolve_generator(name, {})


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"retry_seconds": 0}, "options.vllm.retry_seconds = 0"),
        ({"timeout_seconds": -1.0}, "options.vllm.timeout_seconds = -1"),
        ({"folder": "/no/such/folder"}, "options.vllm.folder = '/no/such/folder'"),
        ({"foldr": "/tmp"}, "Did you mean 'folder'"),
        ({"max_model_len": 9}, "options.vllm.max_model_len"),
    ],
)
def test_a_wrong_option_is_named(server: EngineServer, options: dict[str, Any], wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted):
        check(server.url, **options)


# --- with the model at hand ---


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"max_model_len": 100}, "--max-model-len 128"),
        (answering(tokenize=(200, {"tokens": [5, 6]})), "another tokenizer"),
    ],
)
def test_a_window_that_is_too_short_and_another_tokenizer_are_named(
    server: EngineServer, models: Models, changes: dict[str, Any], wanted: str
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    with pytest.raises(UsageError, match=wanted):
        VLLMServer(setting(models), url=server.url)


def test_another_model_is_not_taken(server: EngineServer, models: Models, tiny_model_folder: Path) -> None:
    with pytest.raises(UsageError, match="hidden_size = 64, wanted 32"):
        VLLMServer(replace(setting(models), folder=str(tiny_model_folder)), url=server.url)


def test_a_folder_that_the_server_does_not_see_is_named_before_weights_are_given(
    server: EngineServer, models: Models, tmp_path: Path
) -> None:
    def elsewhere(path: str, body: Any, answer: Any) -> Any:
        seen = path != "/collective_rpc" or body["method"] != "reload_weights"
        return answer if seen else (500, {"error": {"message": "no such folder"}})

    server.alter = elsewhere
    with pytest.raises(UsageError, match=r"options\.vllm\.folder.*no such folder"):
        VLLMServer(setting(models), url=server.url, folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_server_belongs_to_one_run(server: EngineServer, models: Models, tmp_path: Path) -> None:
    first = VLLMServer(setting(models), url=server.url, folder=str(tmp_path))
    with pytest.raises(UsageError, match="another run"):
        VLLMServer(setting(models), url=server.url, folder=str(tmp_path))
    first.close()
    VLLMServer(setting(models), url=server.url, folder=str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []
