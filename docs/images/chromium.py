"""A small driver of headless Chromium: the DevTools protocol as JSON over two pipes, with the standard library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SECONDS = 120.0
"""How long the browser may take to answer."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of an installed browser."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a headless browser; a context manager that ends the browser and all of its processes."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        # The browser reads descriptor 3 and writes descriptor 4.
        start = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        quiet = ("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-IS",
                "-c",
                start,
                *map(str, ends),
                str(find()),
                *options,
                *quiet,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self._is_loaded = False
        self._unread, self._number, self._session = b"", 0, ""

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *error: Any) -> None:
        with suppress(OSError, TimeoutError, EOFError):
            self._session = ""
            self.call("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def show(self, width: int, *, height: int, is_dark: bool = False, is_phone: bool = False) -> None:
        """What the next page is shown on."""
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Load a page to its end."""
        self._is_loaded = False
        self.call("Page.navigate", url=url)
        while not self._is_loaded:
            self._take(0.1)

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> Path:
        """Write what is seen as PNG."""
        found = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser; its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._out, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for answer in self._take(1.0):
                if answer.get("id") == self._number:
                    assert "error" not in answer, (method, answer["error"])
                    return dict(answer["result"])
        raise TimeoutError(method)

    def _take(self, seconds: float) -> list[dict[str, Any]]:
        """Messages that came; that the page has loaded is noted."""
        if not select.select([self._in], [], [], seconds)[0]:
            return []
        if not (data := os.read(self._in, 1 << 20)):
            raise EOFError("the browser has ended")
        *whole, self._unread = (self._unread + data).split(b"\0")
        messages = [json.loads(message) for message in whole]
        for message in messages:
            if message.get("method") == "Page.loadEventFired":
                self._is_loaded = True
        return messages
