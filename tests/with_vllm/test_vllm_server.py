"""The contract of all generators on a vLLM server, which is then killed and started again."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from contract import LONG_PROMPT, PLAIN, PROMPT, Models, new_models, setting_of, tokens_of
from engine_server import ServerContract

from podsrl.errors import UsageError
from podsrl.generate import Generator, Request, resolve_generator
from podsrl.run.step.generators import make_generator
from podsrl.scale.processes import Processes

START_SECONDS = 400
KEPT_PROCESSES = (b"vllm.entrypoints.openai.api_server", b"VLLM::")
"""A server that a test starts again belongs to the fixture of its class, which kills it."""
FLAGS = ("--logprobs-mode", "processed_logprobs", "--scheduling-policy", "priority")
ON_CPU = ("--no-enable-chunked-prefill", "--enforce-eager", "--dtype", "float32", "--max-num-seqs", "64")


class Server:
    """A vLLM server that can be killed, and ends with this process."""

    def __init__(self, folder: Path, log: Path, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self._log = f"http://127.0.0.1:{self.port}", log
        where = ("--model", str(folder), "--host", "127.0.0.1", "--port", str(self.port))
        self._command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *where, *flags, *ON_CPU]
        self.start()

    def start(self) -> None:
        variables = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
            )

    def wait(self) -> None:
        """Until it answers."""
        since = time.monotonic()
        while time.monotonic() - since < START_SECONDS:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            with suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
                return
            time.sleep(0.5)
        raise AssertionError(f"no answer in {START_SECONDS} s: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        left = shared_memory_of(self._process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for path in left:  # what would remove it has been killed too
            path.unlink(missing_ok=True)


def shared_memory_of(group: int) -> set[Path]:
    """Files in shared memory that a process group's processes have in use."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                lines = (process / "maps").read_text().splitlines()
                found |= {Path(line.split()[-1]) for line in lines if "/dev/shm/psm_" in line}
    return found


@pytest.fixture(scope="class")
def server(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(models.folder, tmp_path_factory.mktemp("server") / "log", *FLAGS)
    try:
        found.wait()
        yield found
    finally:
        found.kill()


class TestServer(ServerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generator]:
        folder = tmp_path_factory.mktemp("weights")
        kind = resolve_generator(f"vllm+{server.url}", {"vllm": {"folder": str(folder)}})
        kind.check()
        generator = make_generator(kind, setting_of(models), Processes())
        yield generator
        generator.close()
        assert list(folder.iterdir()) == []

    def test_a_server_that_is_killed_and_started_again_gets_the_newest_weights(
        self, generator: Generator, server: Server, models: Models, record_property: Callable[[str, object], None]
    ) -> None:
        requests = [Request("a", PROMPT, 16, PLAIN), Request("b", LONG_PROMPT, 16, PLAIN)]
        since = time.monotonic()
        generator.load_weights(models.second.named_parameters(), 11)
        record_property("seconds per update of weights", time.monotonic() - since)
        wanted = tokens_of(generator.generate(requests))
        stream = generator.generate(requests)
        server.kill()
        server.start()
        assert tokens_of(stream) == wanted
        generator.load_weights(models.first.named_parameters(), 12)


def test_a_server_that_was_started_without_the_flags_is_an_error(tmp_path: Path) -> None:
    models = new_models(tmp_path / "model")
    found = Server(
        models.folder, tmp_path / "log", "--logprobs-mode", "raw_logprobs", "--scheduling-policy", "priority"
    )
    try:
        found.wait()
        with pytest.raises(UsageError, match="--logprobs-mode processed_logprobs"):
            resolve_generator(f"vllm+{found.url}", {}).check()
    finally:
        found.kill()
