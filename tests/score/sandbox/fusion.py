"""A small service of SandboxFusion's API, for tests: it runs programs under bubblewrap, and fails where it is told."""

from __future__ import annotations

import binascii
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podsrl.score.sandbox.process import bwrap, options, python

FEW_PROCESSES = "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (16, 16))\n"
MAX_PRINTED = 1 << 20
"""Bytes of what is printed that the service keeps."""


@dataclass
class Fusion:
    """What it was asked, and what it does wrong."""

    url: str = ""
    key: str = ""
    faults: list[Any] = field(default_factory=list)
    """Of the next requests, one each: a status, "drop", "silent", a text for an answer; None: there is none."""
    always: Any = None
    """The fault of a request whose standard input, decoded, holds `spoilt`, once `faults` are used up."""
    spoilt: bytes = b""
    bodies: list[dict[str, Any]] = field(default_factory=list)


def run_code(body: dict[str, Any]) -> dict[str, Any]:
    """Run one program."""
    command = [*bwrap(python(), 1 << 24), python(), "-c", FEW_PROCESSES + body["code"]]
    pipe = subprocess.PIPE
    popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, **options())
    found: dict[str, Any] = {"status": "Finished"}
    try:
        printed, errors = popen.communicate(body["stdin"].encode(), timeout=body["run_timeout"])
        found["return_code"] = popen.returncode
    except subprocess.TimeoutExpired:
        os.killpg(popen.pid, signal.SIGKILL)
        printed, errors = popen.communicate()
        found = {"status": "TimeLimitExceeded", "return_code": None}
    found |= {"stdout": printed[:MAX_PRINTED].decode(errors="replace"), "stderr": errors.decode(errors="replace")}
    is_ok = found["return_code"] == 0
    return {"status": "Success" if is_ok else "Failed", "message": "", "compile_result": None, "run_result": found}


@contextmanager
def fusion() -> Iterator[Fusion]:
    """A service on this machine."""
    about = Fusion()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(text)
            about.bodies.append(body)
            fault = about.faults.pop(0) if about.faults else None
            if fault is None and about.spoilt in binascii.a2b_base64(body["stdin"]):
                fault = about.always
            if about.key and self.headers["Authorization"] != f"Bearer {about.key}":
                fault = 401
            if fault == "drop":
                self.connection.close()
            elif fault == "silent":
                time.sleep(1.0)
            elif isinstance(fault, int):
                self.answer(fault, '{"detail": "no"}')
            else:
                self.answer(200, json.dumps(run_code(body)) if fault is None else fault)

        def answer(self, status: int, text: str) -> None:
            self.send_response(status if self.path == "/run_code" else 404)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *given: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    about.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield about
    finally:
        server.shutdown()
        server.server_close()
