"""What a request does whose server stops, dawdles or says too much: a socket that sends the bytes of each case."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat

import pytest

from podsrl.generate.vllm import link
from podsrl.generate.vllm.link import Link, Refused, Unreachable
from waiting import SECONDS

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def sending(parts: Iterable[bytes], seconds: float = SECONDS) -> Iterator[Link]:
    """A link to a server that sends these to each connection, one per 0.02 s, then closes it; b"": the client does."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                for part in parts:
                    try:
                        connection.sendall(part) if part else connection.recv(1)
                    except OSError:
                        break
                    time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        found = Link(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=seconds)
        yield found
        found.close()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(SECONDS)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([], "disconnected"),
        ([OK], "disconnected"),
        ([OK + b"Content-Length: 9\r\n\r\n"], "received 0 bytes, expected 9"),
        ([OK + b"Content-Length: 9\r\n\r\n", b"[1"], "received 2 bytes, expected 9"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n[1\r\n"], "incomplete chunked read"),
        ([OK + b"Content-Length: 900\r\n\r\n", *repeat(b" ", 900)], "within 0.5 seconds"),
        (repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), "within 0.5 seconds"),
        ([b""], "within 0.5 seconds"),
    ],
)
def test_an_answer_that_does_not_come_whole_and_in_time_is_none(parts: Iterable[bytes], wanted: str) -> None:
    seconds = 0.5 if "0.5" in wanted else SECONDS
    with sending(parts, seconds) as found, pytest.raises(Unreachable, match=wanted):
        found.ask("/health")


def test_too_long_an_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MAX_BYTES", 5)
    with (
        sending([OK + b"Content-Length: 900\r\n\r\n", *repeat(b"123", 300)]) as found,
        pytest.raises(Refused, match="than 5"),
    ):
        found.ask("/health")


def test_closing_a_link_ends_what_waits_and_what_comes_later() -> None:
    with sending([b""]) as found:
        closing = threading.Timer(0.1, found.close)
        closing.start()
        with pytest.raises(Unreachable, match="closed"):
            found.ask("/health")
        closing.join()
        with pytest.raises(Unreachable, match="closed"):
            found.ask("/health")
