"""Start K processes of one run on this machine, watch them, and end all when one fails. Imports no torch.

Process 0 has the terminal; what the others print goes to a log each. Every process is the leader of a session of its
own: Ctrl-C reaches the launcher alone, which hands it to process 0. All end with the launcher, however that ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from podsrl.lib.machine import num_cores
from podsrl.lib.parent import asked_of_child
from podsrl.lib.signals import answered_by

LAUNCHER = "PODS_LAUNCHER"
"""Environment variable that a launched process has."""
LOST_EXIT_CODE = 3
"""Exit code of a process that ended because another one did; the other's error is shown."""
GRACE_SECONDS = 10.0
"""How long the other processes have to notice that one has ended; then they are killed."""
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class End:
    """How a run of several processes ended."""

    rank: int
    """The process that decided: the first that failed, else process 0."""
    code: int
    """Its exit code; negative: the signal that killed it."""
    log: Path | None
    """What it printed; None for process 0, which printed to the terminal."""

    @property
    def last_line(self) -> str:
        """The last line of its log, which is its error."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log and self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def launch(command: Sequence[str], num_processes: int, logs: Path) -> End:
    """Run a command K = `num_processes` times at once, until all have ended; rank-1.log … go to the folder `logs`.

    RANK, WORLD_SIZE and the address to meet at are in the environment of each.
    """
    logs.mkdir(parents=True, exist_ok=True)
    members: list[subprocess.Popen[bytes]] = []
    port = _free_port()
    try:
        for rank in range(num_processes):
            members.append(_start(command, rank, num_processes, port, logs))
        with _forwarding(members):
            rank, code = _watch(members)
    finally:
        _kill(members)
    return End(rank, code, logs / f"rank-{rank}.log" if rank else None)


def is_main_process() -> bool:
    """Whether this process shows and writes, from the environment alone, before torch is loaded."""
    return int(os.environ.get("RANK", "0")) == 0


def num_processes() -> int:
    """Processes of this run, from the environment alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Around all that one of several processes does: exit without the interpreter's orderly shutdown.

    Threads of gloo and NCCL that still hold Python objects can abort or hang an orderly end, which would hide its code.
    """
    try:
        yield
        code: int | str | None = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def is_launched() -> bool:
    """Whether this process was started by `launch`."""
    return LAUNCHER in os.environ


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _start(command: Sequence[str], rank: int, num_processes: int, port: int, logs: Path) -> subprocess.Popen[bytes]:
    cores = num_cores()
    places = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": num_processes,
        "LOCAL_WORLD_SIZE": num_processes,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        LAUNCHER: "yes",
    }
    threads = {"OMP_NUM_THREADS": str(max(1, cores // num_processes))}
    named = {name: str(value) for name, value in places.items()}
    environment = {**threads, **os.environ, **named, **asked_of_child()}
    if rank == 0:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    with (logs / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _watch(members: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int]:
    """Wait until all have ended; returns rank and exit code of the process that decided."""
    failed: tuple[int, int] | None = None
    deadline = float("inf")
    while True:
        codes = [member.poll() for member in members]
        for rank, code in enumerate(codes):
            if code and (failed is None or failed[1] == LOST_EXIT_CODE != code):
                failed = rank, code
        if all(code is not None for code in codes):
            return failed or (0, 0)
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + GRACE_SECONDS
        if time.monotonic() > deadline:
            return failed or (0, 0)
        time.sleep(POLL_SECONDS)


def _kill(members: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill every process that still runs, and all that it has started."""
    for member in members:
        with suppress(ProcessLookupError):
            os.killpg(member.pid, signal.SIGKILL)
    for member in members:
        member.wait()


@contextmanager
def _forwarding(members: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """The first signal asks process 0 (it tells the others) to stop after its step; the second ends all."""
    asked: list[int] = []

    def handle(number: int) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        if members[0].poll() is None:
            members[0].send_signal(number)

    with answered_by(handle):
        yield
