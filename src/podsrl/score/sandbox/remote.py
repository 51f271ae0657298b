"""Programs on a service: SandboxFusion's `POST /run_code`, which runs one program and gives what it printed.

Two requests cannot talk with each other, so tests and program run again and again, each with all that the other has
said so far (`inside.Tape`), until the tests have nothing more to ask. Each has requests of its own: a program never
sees its tests, and says nothing but values. Tests guess what they will ask next, so that most need five requests; a
last run of the program shows whether its answers were those of the right order, and if not, nothing is guessed.

What the service does wrong is never the program's fault: a request is tried again, and then it is an error.
"""

from __future__ import annotations

import binascii
import json
import os
import secrets
import time
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from podsrl.errors import PodsError, RewardError, one_line, short
from podsrl.score.sandbox.inside import Peer, Remote, Tape, decode, encode
from podsrl.score.sandbox.process import SETTINGS, Limits

ADDRESS, KEY = "SANDBOX_FUSION_ENDPOINT", "SANDBOX_FUSION_KEY"
"""Environment variables: where the service is, as its own client reads it; and what its gateway wants, or nothing."""
WAITS = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the tries of a request."""
MAX_ROUNDS = 200
"""Answers of a program that its tests can wait for, one after the other; they may walk through what has no end."""
_QUEUE_SECONDS = 60.0
"""A program may wait so long for its turn at the service."""
_CONNECT_SECONDS = 5.0
_MAX_BYTES = 64 << 20
"""Of an answer."""
_CURES = {
    401: f"set {KEY} to a key of this service",
    403: f"the key in {KEY} may not do this",
    404: f"wanted the address before /run_code in {ADDRESS}",
}
"""What no second try changes."""


class _Failed(Exception):
    """The service did not do what was asked; `cure`: what has to change first."""

    def __init__(self, what: str, cure: str = "") -> None:
        super().__init__(what)
        self.cure = cure


class Tapes(NamedTuple):
    """What a run has written down."""

    lines: list[tuple[str, bytes]]
    """Mark and form of each."""
    is_late: bool
    """Whether its time was over."""
    is_cut: bool
    """Whether the last line has no end, because the service keeps only so much of what is printed."""


class Service:
    """SandboxFusion at an address.

    Raises:
        RewardError: no address of a server, or no key.
    """

    def __init__(self, url: str, key: str = "") -> None:
        try:
            parts = urlsplit(url)
            is_ok = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_ok = False
        if not is_ok or url != "".join(url.split()) or parts.username is not None or parts.query or parts.fragment:
            got = f"{ADDRESS} = {short(url)}" if url else f"the environment variable {ADDRESS} is not set"
            raise RewardError(f"remote code rewards: {got}; wanted the address of SandboxFusion, http://HOST:PORT")
        if not (key.isascii() and key.isprintable()):
            raise RewardError(f"remote code rewards: the environment variable {KEY} holds no key; wanted plain letters")
        self._url = f"{url.rstrip('/')}/run_code"
        self._client = httpx2.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, trust_env=False)

    def run(self, role: str, content: Any, limits: Limits) -> Tapes:
        """One run of `inside.taped`.

        Raises:
            RewardError: the service does not work.
            PodsError: it works, and fails on this program alone.
        """
        failed = None
        for wait in (*WAITS, 0.0):
            try:
                return self._run(role, content, limits)
            except _Failed as error:
                failed = error
                if error.cure:
                    break
                time.sleep(wait)
        assert failed is not None
        if not failed.cure and self._works():
            raise PodsError(f"the sandbox service at {self._url} fails on this program alone: {failed}")
        cure = failed.cure or f"start the service, or set {ADDRESS} to one that runs"
        raise RewardError(f"the sandbox service at {self._url} does not work: {failed}; {cure}") from failed

    def _works(self) -> bool:
        try:
            tapes = self._run("run", [encode("print(input())"), encode("1")], Limits())
            return _marked("s", tapes.lines) == [encode((0, b"1\n", False))]
        except _Failed:
            return False

    def _run(self, role: str, content: Any, limits: Limits) -> Tapes:
        name = secrets.token_hex(8)  # shows that an answer is this run's
        numbers = [limits.output_bytes, limits.memory_bytes, 0, limits.disk_bytes, int(limits.seconds) + 1]
        given = binascii.b2a_base64(encode((role, name, numbers, content))).decode()
        body = {"language": "python", "code": _code(), "stdin": given, "run_timeout": limits.seconds}
        printed, is_late = _read(self._ask(body, limits.seconds + _QUEUE_SECONDS))
        first, *lines = printed.split("\n")
        if first != name:  # it comes before anything of the program
            raise _Failed(f"its answer is not that of the program that was sent: {short(printed, 60)}")
        return Tapes(lines=_forms(lines[:-1]), is_late=is_late, is_cut=bool(lines and lines[-1]))

    def _ask(self, body: Any, seconds: float) -> bytes:
        end, found = time.monotonic() + seconds, bytearray()
        timeout = httpx2.Timeout(seconds, connect=_CONNECT_SECONDS)
        try:
            with self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
                for part in response.iter_bytes():
                    found += part
                    if time.monotonic() > end or len(found) > _MAX_BYTES:
                        raise _Failed(f"no whole answer within {seconds:g} seconds and {_MAX_BYTES:,} bytes")
        except httpx2.HTTPError as error:
            raise _Failed(one_line(str(error) or type(error).__name__, 200)) from None
        if response.status_code != 200:
            cure = _CURES.get(response.status_code, "")
            raise _Failed(f"status {response.status_code}: {short(bytes(found[:200]).decode(errors='replace'))}", cure)
        return bytes(found)


def _read(answer: bytes) -> tuple[str, bool]:
    """What the program has printed, and whether its time was over; _Failed: an answer that does not say so."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        raise _Failed(f"its answer is no JSON: {short(answer[:60])}") from None
    match found:
        case {"status": "Success" | "Failed", "run_result": {"status": str(status), "stdout": str(printed)}} if (
            status in ("Finished", "TimeLimitExceeded")
        ):
            return printed, status == "TimeLimitExceeded"
        case {"status": str(status), "message": str(message)}:
            raise _Failed(f"it says {short(status, 40)}: {short(message[-200:])}")
    raise _Failed(f"its answer has no result: {short(found, 60)}")


def _forms(lines: list[str]) -> list[tuple[str, bytes]]:
    """Up to what is none: a program can write there too."""
    found = []
    for line in lines:
        try:
            found.append((line[:1], binascii.a2b_base64(line[1:], strict_mode=True)))
        except ValueError:
            break
    return found


@cache
def _code() -> str:
    """`inside.py` as a program, which starts anew with the standard library and without the service's variables."""
    source = files("podsrl.score.sandbox").joinpath("inside.py").read_text()
    words = ["-S", "-s", "-B", "-c", source, "taped"]
    return f"import os, sys\nos.execve(sys.executable, [sys.executable, *{words!r}], {SETTINGS!r})\n"


@cache
def service() -> Service:
    """That of the environment variables. RewardError: they name none."""
    return Service(os.environ.get(ADDRESS, ""), os.environ.get(KEY, "").strip())


def printed_there(program: str, inputs: list[str], limits: Limits) -> list[Any]:
    """(exit code, output, whether it was cut) for each input; None where there is nothing."""
    found: list[Any] = []
    while len(found) < len(inputs):
        tapes = service().run("run", [*map(encode, (program, *inputs[len(found) :]))], limits)
        found += map(_plain, _marked("s", tapes.lines) or [b""])
        if tapes.is_late or not tapes.is_cut:
            break
    return (found + [None] * len(inputs))[: len(inputs)]


def judged_there(program: str, content: dict[str, Any], limits: Limits) -> list[Any]:
    """The number of tests, and then whether each has passed; what is missing has failed."""
    verdicts = _judged(program, content, limits, may_guess=True)
    if verdicts is None:
        verdicts = _judged(program, content, limits, may_guess=False)
    return list(map(_plain, verdicts or []))


def _judged(program: str, content: dict[str, Any], limits: Limits, may_guess: bool) -> list[bytes] | None:
    """None: a guess was wrong."""
    peer = Peer(Tape(-1, "", []), [], is_program=False)
    said_first = [encode(program), encode(content)]
    asked = [said_first[0], peer.form("names", (Remote(peer, 0), content["names"]))]
    heard, guessed, verdicts = list[bytes](), list[bytes](), list[bytes]()
    sure, is_over = verdicts, False
    for _ in range(MAX_ROUNDS):
        tapes = service().run("serve", [*asked, *guessed], limits)
        said = _marked("s", tapes.lines)
        if may_guess and said[: len(heard)] != heard:
            return None
        new, sure = said[len(heard) :], verdicts
        if is_over or (tapes.is_late and not new):
            return verdicts
        answers = dict(zip(guessed, new[1:]))  # noqa: B905  # fewer where the program has ended
        lines = service().run("judge", (said_first, [*heard, *new[:1]], answers, not new), limits).lines
        place = next((place for place, (mark, _) in enumerate(lines) if mark == "w"), len(lines))
        before, after = lines[:place], lines[place:]
        verdicts, asked, taken = (_marked(mark, before) for mark in "vsg")
        heard += [*new[:1], *taken]
        guessed = _marked("s", after) if may_guess else []
        is_over = not after
        if is_over and not taken:
            return verdicts
    return sure


def _marked(mark: str, lines: list[tuple[str, bytes]]) -> list[bytes]:
    return [form for each, form in lines if each == mark]


def _plain(form: bytes) -> Any:
    """A value; None: it is none."""
    try:
        return decode(form)
    except Exception:
        return None
