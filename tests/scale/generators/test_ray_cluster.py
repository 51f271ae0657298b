"""Addresses that are no Ray cluster: each is one line, after seconds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from podsrl.errors import UsageError
from podsrl.scale.generators import ray_cluster
from podsrl.scale.generators.ray_cluster import check_cluster

Pods = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("option", ["here", "host:", ":6379", "host:port", "host:0", "host:70000", "ray://host:10001"])
def test_what_is_no_address_is_an_error(option: str) -> None:
    with pytest.raises(UsageError, match=r"scale\.ray"):
        check_cluster(option, 1, {"CPU": 1})


def test_a_web_server_is_no_cluster() -> None:
    pytest.importorskip("ray")
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(UsageError, match="8265"):
            check_cluster(f"127.0.0.1:{server.server_port}", 1, {"CPU": 1})
    finally:
        server.shutdown()
        server.server_close()


def test_what_never_answers_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "START_SECONDS", 0.5)
    monkeypatch.setattr(ray_cluster, "check_package", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(UsageError, match=r"no answer within 0\.5 s"):
        check_cluster(f"127.0.0.1:{mute.getsockname()[1]}", 1, {"CPU": 1})


def test_a_missing_package_is_said_before_a_model_is_read(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    monkeypatch.setattr("podsrl.run.step.trainer.load_policy", lambda *_, **__: pytest.fail("the model was read"))
    code, _, error = pods("train", "pods", "--scale.generators=1", "--scale.ray=local", "--out=run")
    assert code == 2 and "podsrl[ray]" in error


def test_a_dead_address_is_said_before_a_model_is_read(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.run.step.trainer.load_policy", lambda *_, **__: pytest.fail("the model was read"))
    code, _, error = pods("train", "pods", "--scale.generators=1", "--scale.ray=127.0.0.1:1", "--out=run")
    assert code == 2 and "127.0.0.1:1" in error


def test_ray_without_generators_is_an_error(pods: Pods) -> None:
    code, _, error = pods("train", "pods", "--scale.ray=local", "--out=run")
    assert code == 2 and "scale.generators" in error
