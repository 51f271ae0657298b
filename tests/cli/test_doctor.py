"""`pods doctor --sync`: what is wrong with a server is one line, and the exit code tells scripts the verdict."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logprob_server import LogprobServer, logprob_server

Pods = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(make_model: Callable[..., Any], tokenizer: Any) -> Iterator[LogprobServer]:
    """With the weights of `tiny_model_folder`."""
    with logprob_server(make_model("qwen2", max_position_embeddings=256, tie_word_embeddings=True), tokenizer) as found:
        yield found


def ask(pods: Pods, server: LogprobServer, folder: Path, *more: str) -> tuple[int, str, str]:
    return pods("doctor", "--sync", server.url, "--weights", str(folder), "--num-tokens", "4", *more)


def test_right_weights_end_with_0_and_undecided_ones_with_3(
    pods: Pods, server: LogprobServer, tiny_model_folder: Path, tmp_path: Path
) -> None:
    code, out, err = ask(pods, server, tiny_model_folder)
    assert (code, err) == (0, "")
    assert out.startswith(f"The server at {server.url} holds") and "rounding in bfloat16" in out
    (tmp_path / "again").symlink_to(tiny_model_folder)
    code, out, _ = ask(pods, server, tiny_model_folder, "--weights", "again", "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["model"], found["num_tokens"]) == (3, "undecided", "policy", 128)
    assert [each["name"] for each in found["distances"]] == [str(tiny_model_folder), "again"]


def test_other_weights_end_with_1(
    pods: Pods, server: LogprobServer, tokenizer: Any, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    make_model("llama", max_position_embeddings=256).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    code, out, _ = ask(pods, server, tmp_path / "other")
    assert code == 1 and "holds none of these weights" in " ".join(out.split())


def answering(status: int, content: Any, route: str = "/v1/completions") -> Callable[..., Any]:
    return lambda path, body, answer: (status, content) if path == route else answer


def dropping(path: str, body: Any, answer: Any) -> Any:
    if body is not None:
        raise ConnectionAbortedError
    return answer


def without_logprobs(path: str, body: Any, answer: Any) -> Any:
    return answer if body is None else (200, {"choices": [c | {"logprobs": None} for c in answer[1]["choices"]]})


@pytest.mark.parametrize(
    ("alter", "wanted"),
    [
        (answering(401, {"error": "no key"}, "/v1/models"), "status 401: no key; it wants a key: name the environment"),
        (
            answering(404, {"detail": "Not Found"}),
            "status 404: Not Found; wanted a server with /v1/models and /v1/comp",
        ),
        (
            answering(429, {"error": {"message": "slow down"}}),
            "status 429: slow down; it has too much to do: ask again",
        ),
        (answering(500, {"error": {"message": "EngineCore"}}), "status 500: EngineCore; see its log, and ask again"),
        (answering(503, b""), "no answer from .*status 503.; see its log, and ask again"),
        (answering(200, {"hello": 1}, "/v1/models"), "names no model under /v1/models; wanted a server with"),
        (answering(200, {"choices": []}), "gives 0 answers to 16 prompts"),
        (answering(200, b"<html>"), "the answer is no JSON"),
        (dropping, "no answer from .*/v1/completions .*; see its log, and ask again"),
        (without_logprobs, "gives no log-probs of its tokens; wanted a server with"),
    ],
)
def test_what_a_server_lacks_is_one_line_with_the_cure(
    pods: Pods, server: LogprobServer, tiny_model_folder: Path, alter: Callable[..., Any], wanted: str
) -> None:
    server.alter = alter
    code, out, err = ask(pods, server, tiny_model_folder)
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith("error: --sync: ")
    assert re.search(wanted, err), err


def test_keys_names_and_addresses(
    pods: Pods, server: LogprobServer, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.key = "secret"
    assert "in --key-from" in ask(pods, server, tiny_model_folder)[2]
    assert (
        "--key-from = 'MY_KEY': that environment variable"
        in ask(pods, server, tiny_model_folder, "--key-from", "MY_KEY")[2]
    )
    monkeypatch.setenv("MY_KEY", "secret")
    assert ask(pods, server, tiny_model_folder, "--key-from", "MY_KEY")[0] == 0
    code, _, err = ask(pods, server, tiny_model_folder, "--key-from", "MY_KEY", "--model", "mine")
    assert code == 2 and "--model mine: the server" in err and "it has 'policy'" in err
    with socket.socket() as listener:  # bound, and nobody accepts
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        code, _, err = pods("doctor", "--sync", url, "--weights", str(tiny_model_folder))
    assert code == 2 and "no answer from" in err and "start it, or name its address" in err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--sync", "http://127.0.0.1:9"], "--sync wants --weights FOLDER"),
        (["--weights", "x"], "--weights: read with --sync only"),
        (["--sync", "127.0.0.1:9", "--weights", "builtin:steps"], "--sync: '127.0.0.1:9' is no address of a server"),
        (["--sync", "http://127.0.0.1:9", "--weights", "./none"], "'./none': no such folder"),
        (["--sync", "http://127.0.0.1:9", "--weights", "builtin:steps", "--all"], "--all: of this machine"),
    ],
)
def test_what_is_asked_wrongly_is_named(pods: Pods, arguments: list[str], wanted: str) -> None:
    code, _, err = pods("doctor", *arguments)
    assert code == 2 and wanted in err and err.count("\n") == 1
