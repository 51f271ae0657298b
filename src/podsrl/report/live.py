"""The report as a page that is served to this machine's browsers and follows runs that go on.

It is drawn again only when a browser asks, a log has changed, and the last drawing is some time ago.
"""

from __future__ import annotations

import hashlib
import html
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError, one_line
from podsrl.report.follow import FollowedRun, find_runs, fingerprint, quiet_seconds, state_of
from podsrl.report.html import check_folders, render_report
from podsrl.report.page import LiveState
from podsrl.report.read import is_comparison
from podsrl.report.terminal.standing import speed_texts, standing, step_text

LEAST_SECONDS = 3.0
"""Between two drawings."""
COST = 5
"""The pause after a drawing is at least this many times its processor time: at most a fifth of a core."""
_REQUEST_SECONDS = 30.0
_FILES = ("config.toml", "metrics.jsonl", "groups.jsonl", "finished.json", "compare.json")
_OWN_NAME = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
"""With any port: a forwarded one may have another number."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LivePage:
    """The page of `podsrl.report.html.render_report`, as new as its logs; several threads may ask for it.

    Raises:
        UsageError: no folder, one given twice, one that is neither of a run nor of a comparison.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        check_folders(folders)
        for folder in folders:
            find_runs(folder)
        self._folders = folders
        self._lock = threading.Lock()
        # matplotlib opens its fonts again for every thread that draws, and each request has a thread of its own
        self._drawer = ThreadPoolExecutor(1, "drawer")
        self._followed: dict[Path, FollowedRun] = {}
        self._tag, self._page = "", ""
        self.problem = ""
        """Why the page is not as new as its logs; empty where it is."""
        self._due = 0.0

    def current(self) -> tuple[str, str]:
        """A tag that names the content, and the page."""
        with self._lock:
            if time.monotonic() >= self._due:
                self._drawer.submit(self._refresh).result()
            return self._tag, self._page

    def _refresh(self) -> None:
        begun, self.problem = time.thread_time(), ""
        try:
            tag, live = self._state()
            if tag == self._tag:
                return
            self._page = render_report(self._shown_folders(), live=live)
            self._tag = tag
        except (UsageError, OSError) as error:  # a log may be cut back in this moment
            self.problem = one_line(str(error))
            if not self._tag:
                self._page = _waiting_page(self.problem)
        self._due = time.monotonic() + max(LEAST_SECONDS, COST * (time.thread_time() - begun))

    def _shown_folders(self) -> list[Path]:
        """A comparison that is not measured yet is shown as its runs."""
        found = [
            path for folder in self._folders for path in ([folder] if is_comparison(folder) else find_runs(folder))
        ]
        if not found:
            raise UsageError("no run has begun yet")
        return found

    def _state(self) -> tuple[str, LiveState]:
        runs = [run for folder in self._folders for run in find_runs(folder)]
        states = [state_of(run) for run in runs]
        order = ("training", "starting", "stopped", "finished")
        seen = [(path, fingerprint(path, *_FILES)) for path in (*self._folders, *runs)]
        tag = hashlib.sha256(repr((seen, states)).encode()).hexdigest()[:16]
        quiet = min((quiet_seconds(run) for run in runs), default=0.0)
        state = min(states, key=order.index, default="starting")
        return tag, LiveState(
            tag=tag,
            state=state,
            quiet_seconds=round(quiet, 1),
            progress=tuple(
                self._progress(run) for run, each in zip(runs, states, strict=True) if each in ("training", "stopped")
            ),
        )

    def _progress(self, path: Path) -> tuple[str, float | None, str]:
        followed = self._followed.setdefault(path, FollowedRun(path))
        followed.poll()
        at = standing(followed)
        return followed.name, at.share, " · ".join([step_text(at), *speed_texts(at)])


def serve(folders: Sequence[Path], port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the live page of some folders on 127.0.0.1 until the process is interrupted.

    Args:
        folders: of runs or comparisons.
        port: 0 takes any that is free.
        on_ready: called with the page's address.

    Raises:
        UsageError: a folder is none of a run, or the port cannot be had.
    """
    page = LivePage(folders)
    try:
        server = _Server(("127.0.0.1", port), _Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--port {port}: {reason}; choose another, or 0 for any that is free") from None
    with server:
        server.page = page
        on_ready(f"http://127.0.0.1:{server.server_port}/")
        server.serve_forever(poll_interval=0.2)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    page: LivePage

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone away is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers "/" alone, and only to who asked for this machine by its own name."""

    server: _Server
    timeout = _REQUEST_SECONDS
    server_version, sys_version = "podsrl", ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if not _OWN_NAME.fullmatch(self.headers.get("Host") or ""):  # a foreign name that points here (DNS rebinding)
            self._answer(403, "this page is for this machine alone\n", "text/plain")
        elif path != "/":
            self._answer(404, "there is only one page here: /\n", "text/plain")
        else:
            tag, page = self.server.page.current()
            is_known = bool(tag) and query == f"since={tag}"
            if not is_known:
                self._answer(200, page, "text/html")
            elif problem := self.server.page.problem:
                self._answer(503, problem, "text/plain")
            else:
                self._answer(204, "")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _answer(self, code: int, text: str, kind: str = "") -> None:
        data = text.encode("utf-8", errors="backslashreplace")
        self.send_response(code)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if code != 204:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _waiting_page(reason: str) -> str:
    """What is shown while there is nothing to draw; it loads itself again."""
    policy = "default-src 'none'"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><meta http-equiv="refresh" content="3"><meta name="viewport" '
        f'content="width=device-width"><meta name="color-scheme" content="light dark"><title>podsrl report</title>'
        f"<p>{html.escape(reason)}</p></html>"
    )
