"""HTTP with one server: JSON both ways, connections that are kept for the next request, and a deadline per request.

Proxies of the environment are not used, and no redirect is followed: what an address names has to answer itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from concurrent.futures import CancelledError
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from podsrl.errors import UsageError, one_line, short

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 2.0
"""A connection that was idle for longer is not used again: uvicorn closes it after five."""
MAX_BYTES = 256 * 2**20
"""Of one answer."""
_DOWN = (502, 503, 504)
"""What stands before a server says so of one that is not there."""
_KEEPALIVE = [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
]
"""They find a machine that is gone."""


class Unreachable(Exception):
    """The server does not answer, or stopped to in the middle."""


class Refused(Exception):
    """The server answers, with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status


class Options(NamedTuple):
    """What a user calls an address and the variable with its key, for messages."""

    address: str
    key: str
    wanted: str


GENERATOR = Options(
    "rollouts.generator",
    "options.vllm.key_from",
    "vllm+http://HOST:PORT or vllm+https://HOST:PORT, several separated by commas",
)


class Link:
    """Talks with one server, from any number of threads.

    Args:
        url: "http://HOST:PORT" or "https://HOST[:PORT]", perhaps with a path before the routes.
        key_from: environment variable that holds the server's API key; "": none.
        timeout_seconds: longest time from a request to the last byte of its answer.
        options: that name these two.

    Raises:
        UsageError: no such address or variable.
    """

    def __init__(
        self, url: str, *, key_from: str = "", timeout_seconds: float = 1800.0, options: Options = GENERATOR
    ) -> None:
        self.url, self._timeout_seconds = check_url(url, options), timeout_seconds
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if key_from:
            key = os.environ.get(key_from, "").strip()
            if not key or not key.isprintable() or not key.isascii():
                raise UsageError(f"{options.key} = {key_from!r}: that environment variable holds no key; set it")
            headers["Authorization"] = f"Bearer {key}"
        transport = httpx2.AsyncHTTPTransport(
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=IDLE_SECONDS),
            socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *_KEEPALIVE],
        )
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)  # of the rest `_ask` counts the seconds
        self._client = httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, trust_env=False)
        self._asking: set[asyncio.Task[Any]] = set()

    def ask(self, path: str, body: Any = None, *, timeout_seconds: float | None = None) -> Any:
        """GET a path, or POST a body to it; returns the answer's JSON, or None of an empty answer.

        Raises:
            Unreachable: no connection, none any more, or no whole answer in time.
            Refused: any status but 200, or an answer that is no JSON.
        """
        content = None if body is None else json.dumps(body).encode()
        asking = self._ask(self.url + path, content, timeout_seconds or self._timeout_seconds)
        future = asyncio.run_coroutine_threadsafe(asking, _loop())
        try:
            return _parse(*future.result(), self.url + path)
        except CancelledError:
            raise Unreachable(f"the link to {self.url} is closed") from None
        finally:
            future.cancel()  # where this thread was interrupted

    def close(self) -> None:
        """End all connections; what still waits for an answer gets `Unreachable`."""
        asyncio.run_coroutine_threadsafe(self._close(), _loop()).result()

    async def _ask(self, url: str, content: bytes | None, seconds: float) -> tuple[httpx2.Response, bytes]:
        if self._client.is_closed:
            raise asyncio.CancelledError
        found = bytearray()
        task = asyncio.current_task()
        assert task is not None, "this runs in a task"
        self._asking.add(task)
        try:
            method = "GET" if content is None else "POST"
            async with asyncio.timeout(seconds), self._client.stream(method, url, content=content) as response:
                async for part in response.aiter_raw():
                    found += part
                    if len(found) > MAX_BYTES:
                        break
            return response, bytes(found)
        except TimeoutError:
            raise Unreachable(f"no answer from {url} within {seconds:g} seconds") from None
        except httpx2.HTTPError as error:
            raise Unreachable(f"{url}: {_reason(error)}") from error
        finally:
            self._asking.discard(task)

    async def _close(self) -> None:
        for task in self._asking:
            task.cancel()
        await self._client.aclose()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """What all links of this process run in, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="vllm-links").start()
    return loop


def _reason(error: BaseException) -> str:
    """What the system said, below what the layers above made of it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return one_line(str(error) or type(error).__name__, 200)


def check_url(url: str, options: Options = GENERATOR) -> str:
    """An address without a slash at its end.

    Raises:
        UsageError: no "http://HOST:PORT", or one with a user, a query or a fragment.

    Example:
        >>> check_url("http://127.0.0.1:8000/")
        'http://127.0.0.1:8000'
    """
    try:
        parts = urlsplit(url)
        has_port = parts.scheme == "https" if parts.port is None else parts.port > 0
        is_ok = parts.scheme in ("http", "https") and bool(parts.hostname) and has_port
    except ValueError:
        is_ok = False
    if not is_ok or url != "".join(url.split()) or not url.isascii() or not url.isprintable():
        raise UsageError(f"{options.address}: {short(url)} is no address of a server; wanted {options.wanted}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f"{options.address}: an address has no user, query or fragment; name the environment variable that holds "
            f"the key in {options.key}"
        )
    return url.rstrip("/")


def _parse(response: httpx2.Response, found: bytes, url: str) -> Any:
    status = response.status_code
    if status in _DOWN:
        raise Unreachable(f"{url}: status {status}")
    if 300 <= status < 400:
        where = response.headers.get("Location", "nowhere")
        raise Refused(status, f"it redirects to {short(where)}; name the address that answers itself")
    if len(found) > MAX_BYTES:
        raise Refused(status, f"an answer of more than {MAX_BYTES:,} bytes")
    if status == 200 and not found.strip():
        return None
    try:
        answer = json.loads(found)
    except (ValueError, RecursionError):
        answer = None
        if status == 200:
            raise Refused(200, f"the answer is no JSON: {short(found[:200])}") from None
    if status != 200:
        raise Refused(status, one_line(_message(answer) or short(found[:200]), 400))
    return answer


def _message(answer: Any) -> str:
    """What vLLM says of an error, in the forms that it has."""
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("detail", answer.get("message")))
        error = error.get("message") if isinstance(error, dict) else error
        return error if isinstance(error, str) else ""
    return ""
