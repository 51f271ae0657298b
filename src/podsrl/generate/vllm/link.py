"""HTTP with one server: JSON both ways, connections that are kept for the next request, and a bound on every wait.

Proxies of the environment are not used, and no redirect is followed: what an address names has to answer itself.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from podsrl.errors import UsageError, one_line, short

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 2.0
"""A connection that was idle for longer is not used again: uvicorn closes it after five."""
MAX_BYTES = 256 * 2**20
"""Of one answer."""
_DOWN = (502, 503, 504)
"""What stands before a server says so of one that is not there."""


class Unreachable(Exception):
    """The server does not answer, or stopped to in the middle."""


class Refused(Exception):
    """The server answers, with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status


class Link:
    """Talks with one server, from any number of threads.

    Args:
        url: "http://HOST:PORT" or "https://HOST[:PORT]", perhaps with a path before the routes.
        key_from: environment variable that holds the server's API key; "": none.
        timeout_seconds: longest silence of the server while it answers.

    Raises:
        UsageError: no such address or variable.
    """

    def __init__(self, url: str, *, key_from: str = "", timeout_seconds: float = 1800.0) -> None:
        self.url, self._timeout_seconds = check_url(url), timeout_seconds
        parts = urlsplit(url)
        self._is_tls, self._host, self._prefix = parts.scheme == "https", parts.hostname or "", parts.path.rstrip("/")
        self._port = parts.port or (443 if self._is_tls else 80)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key_from:
            key = os.environ.get(key_from, "").strip()
            if not key or not key.isprintable() or not key.isascii():
                raise UsageError(
                    f"options.vllm.key_from = {key_from!r}: that environment variable holds no key; set it"
                )
            self._headers["Authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self._idle: list[tuple[float, HTTPConnection]] = []
        self._busy: set[HTTPConnection] = set()
        self._is_closed = False

    def ask(self, path: str, body: Any = None, *, timeout_seconds: float | None = None) -> Any:
        """GET a path, or POST a body to it; returns the answer's JSON, or None of an empty answer.

        Raises:
            Unreachable: no connection, none any more, or silence for too long.
            Refused: any status but 200, or an answer that is no JSON.
        """
        content = None if body is None else json.dumps(body).encode()
        for is_last in (False, True):
            connection, is_used = self._take(is_new=is_last)
            try:
                if connection.sock is None:
                    self._connect(connection)
                connection.sock.settimeout(timeout_seconds or self._timeout_seconds)
                method = "GET" if content is None else "POST"
                connection.request(method, self._prefix + path, content, self._headers)
                response = connection.getresponse()
                found = response.read(MAX_BYTES + 1)
            except TimeoutError as error:
                self._drop(connection)
                raise Unreachable(f"no answer from {self.url}{path} in time") from error
            except (OSError, HTTPException) as error:
                self._drop(connection)
                if is_used and not is_last:  # the server may have closed it between two requests
                    continue
                raise Unreachable(f"{self.url}{path}: {one_line(str(error) or type(error).__name__, 200)}") from error
            except BaseException:
                self._drop(connection)
                raise
            self._give(connection, is_kept=not response.will_close and len(found) <= MAX_BYTES)
            return _parse(response, found, self.url + path)
        raise AssertionError("the second try returns or raises")

    def close(self) -> None:
        """End all connections; what still waits for an answer gets `Unreachable`."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                with suppress(OSError, AttributeError):  # it may be without a socket yet, or any more
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for _, connection in idle:
            connection.close()

    def _take(self, *, is_new: bool) -> tuple[HTTPConnection, bool]:
        """A connection, and whether it has been used before."""
        with self._lock:
            if self._is_closed:
                raise Unreachable(f"the link to {self.url} is closed")
            oldest = time.monotonic() - IDLE_SECONDS
            stale = [each for at, each in self._idle if at < oldest]
            self._idle = [(at, each) for at, each in self._idle if at >= oldest]
            is_used = bool(self._idle) and not is_new
            kind = HTTPSConnection if self._is_tls else HTTPConnection
            connection = self._idle.pop()[1] if is_used else kind(self._host, self._port, timeout=CONNECT_SECONDS)
            self._busy.add(connection)
        for each in stale:
            each.close()
        return connection, is_used

    def _connect(self, connection: HTTPConnection) -> None:
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # finds a machine that is gone
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def _give(self, connection: HTTPConnection, *, is_kept: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            is_kept = is_kept and not self._is_closed
            if is_kept:
                self._idle.append((time.monotonic(), connection))
        if not is_kept:
            connection.close()

    def _drop(self, connection: HTTPConnection) -> None:
        self._give(connection, is_kept=False)


def check_url(url: str) -> str:
    """An address without a slash at its end.

    Raises:
        UsageError: no "http://HOST:PORT", or one with a user, a query or a fragment.

    Example:
        >>> check_url("http://127.0.0.1:8000/")
        'http://127.0.0.1:8000'
    """
    wanted = "wanted vllm+http://HOST:PORT or vllm+https://HOST:PORT, several separated by commas"
    try:
        parts = urlsplit(url)
        has_port = parts.scheme == "https" if parts.port is None else parts.port > 0
        is_ok = parts.scheme in ("http", "https") and bool(parts.hostname) and has_port
    except ValueError:
        is_ok = False
    if not is_ok or url != "".join(url.split()) or not url.isascii() or not url.isprintable():
        raise UsageError(f"rollouts.generator: {short(url)} is no address of a server; {wanted}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            "rollouts.generator: an address has no user, query or fragment; name the environment variable that holds "
            "the key in options.vllm.key_from"
        )
    return url.rstrip("/")


def _parse(response: HTTPResponse, found: bytes, url: str) -> Any:
    if response.status in _DOWN:
        raise Unreachable(f"{url}: status {response.status}")
    if 300 <= response.status < 400:
        where = response.getheader("Location", "nowhere")
        raise Refused(response.status, f"it redirects to {short(where)}; name the address that answers itself")
    if len(found) > MAX_BYTES:
        raise Refused(response.status, f"an answer of more than {MAX_BYTES:,} bytes")
    if response.status == 200 and not found.strip():
        return None
    try:
        answer = json.loads(found)
    except (ValueError, RecursionError):
        answer = None
        if response.status == 200:
            raise Refused(200, f"the answer is no JSON: {short(found[:200])}") from None
    if response.status != 200:
        raise Refused(response.status, one_line(_message(answer) or short(found[:200]), 400))
    return answer


def _message(answer: Any) -> str:
    """What vLLM says of an error, in the forms that it has."""
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("detail", answer.get("message")))
        error = error.get("message") if isinstance(error, dict) else error
        return error if isinstance(error, str) else ""
    return ""
