"""Nodes of a Ray cluster, each started as a person would: `ray start`."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from waiting import processes, wait_for

SOURCE = Path(__file__).parents[3] / "src"


class RayCluster:
    """A head and more nodes on this machine, with a token, a temporary folder and ports of their own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="prt-"))  # sockets below it: the path has to be short
        self.token = secrets.token_hex(16)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start_head(self, num_cpus: int) -> None:
        port = free_port()
        self.add_node(
            num_cpus, "--head", f"--port={port}", f"--temp-dir={self.folder}", "--include-dashboard=false",
            "--dashboard-agent-listen-port=0",
        )  # fmt: skip
        self.address = f"127.0.0.1:{port}"

    def add_node(self, num_cpus: int, *options: str) -> subprocess.Popen[bytes]:
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        own = [f"--num-cpus={num_cpus}", f"--object-store-memory={100 << 20}"]
        printed = self.folder / f"node-{len(self.nodes)}"
        with printed.open("wb") as file:
            node = subprocess.Popen(
                [*ray, *own, *(options or [f"--address={self.address}"])],
                stdout=file,
                stderr=file,
                env=os.environ | self.variables | {"PYTHONPATH": str(SOURCE)},
                start_new_session=True,
            )
        self.nodes.append(node)
        wait_for(lambda: b"Ray runtime started" in printed.read_bytes() or node.poll() is not None)
        assert node.poll() is None, printed.read_text()
        return node

    @property
    def variables(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def end(self, node: subprocess.Popen[bytes]) -> None:
        """Kill it with all its processes."""
        for pid in processes_of_session(node.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def close(self) -> None:
        for node in self.nodes:
            self.end(node)
        shutil.rmtree(self.folder, ignore_errors=True)


def processes_of_session(session: int) -> set[int]:
    """Those that live."""
    found = set()
    for pid in processes():
        with suppress(ProcessLookupError):
            if os.getsid(pid) == session:
                found.add(pid)
    return found


def free_port() -> int:
    """One that Ray gives to no worker: those are 10002 to 19999."""
    while True:
        with socket.socket() as end:
            end.bind(("127.0.0.1", 0))
            port = int(end.getsockname()[1])
        if not 10002 <= port <= 19999:
            return port
