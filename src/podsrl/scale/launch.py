"""Start K processes of one run on this machine, watch them, and end all when one fails.

Process 0 has the terminal; what the others print goes to a log each. Every process is the leader of a session of its
own: Ctrl-C reaches the launcher alone, which hands it to process 0. All end with the launcher, however that ends.
Several machines are torchrun's.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podsrl.lib.child import Process, last_line
from podsrl.lib.machine import num_cores
from podsrl.lib.signals import STOPPING, answered_by, interrupt

LAUNCHER = "PODS_LAUNCHER"
"""Environment variable that a launched process has."""
LOST_EXIT_CODE = 3
"""Exit code of a process that ended because another one did; the other's error is shown."""
INTERRUPTED = tuple(128 + number for number in STOPPING)
"""Exit codes of a process that was asked to stop, and has."""
POLL_SECONDS = 0.05
TORCHRUN_COMMAND = (
    "torchrun --nnodes {nodes} --node-rank R --nproc-per-node {processes} --master-addr {host} --master-port {port} "
    "-m podsrl.cli train"
)
"""What starts, or resumes, a run on several machines, on each of them."""
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Environment variable of torchrun: a process writes there why it failed, and torchrun shows it."""
_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
"""Environment variable that torch reads when it is imported."""
Members = dict[int, Process]
"""Process number in the run -> the process."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run of several processes ended."""

    rank: int
    """The process that decided: the first that failed, else process 0."""
    code: int
    """Its exit code; negative: the signal that killed it."""
    last_line: str = ""
    """The last line of its log, which is its error; "" for process 0, which printed to its terminal."""
    log: str | None = None
    """What it printed; None for process 0."""


def launch(command: Sequence[str], num_processes: int, logs: Path, *, grace_seconds: float = 10.0) -> End:
    """Run a command K = `num_processes` times at once, until all have ended; rank-1.log … go to the folder `logs`.

    RANK, WORLD_SIZE and the address to meet at are in the environment of each. When one has ended, the others have
    `grace_seconds` to notice; then they are killed.
    """
    logs.mkdir(parents=True, exist_ok=True)
    members: Members = {}
    store, meeting = _meeting(num_processes)
    try:
        for rank in range(num_processes):
            members[rank] = _start(command, rank, meeting, _log(logs, rank))
        with _forwarding(members):
            return _watch(members, logs, grace_seconds)
    finally:
        for member in members.values():
            member.kill()
        del store


def is_main_process() -> bool:
    """Whether this process shows and writes, from the environment alone, before torch is loaded."""
    return int(os.environ.get("RANK", "0")) == 0


def num_processes() -> int:
    """Processes of this run, from the environment alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def resuming_command() -> str:
    """The command that resumes this run with as many processes, from the environment alone."""
    if (nodes := os.environ.get("GROUP_WORLD_SIZE", "1")) != "1":
        here, host, port = (os.environ[name] for name in ("LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
        return TORCHRUN_COMMAND.format(nodes=nodes, processes=here, host=host, port=port)
    return f"pods launch --processes {num_processes()}" if num_processes() > 1 else "pods train"


def tell_torchrun(line: str, *, is_consequence: bool = False) -> None:
    """Say to torchrun, if it started this process, why it fails; of all that fail, torchrun names the earliest.

    Args:
        is_consequence: this process merely lost another, which therefore counts as the earlier one.
    """
    if (file := os.environ.get(_ERROR_FILE)) and not is_launched():
        when = int(time.time()) + 60 * is_consequence
        extra = {"py_callstack": line, "timestamp": str(when)}
        with suppress(OSError), open(file, "x") as written:  # the first line stays
            json.dump({"message": {"message": line, "extraInfo": extra}}, written)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Around all that a process does: one of several, or with Ray, exits without the interpreter's orderly shutdown.

    Threads of gloo, NCCL and Ray that still hold Python objects can abort or hang an orderly end, which would hide its
    code.
    """
    code: int | str | None = 0
    try:
        yield
    except BaseException as error:
        if not _has_foreign_threads():
            raise
        code = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    if not _has_foreign_threads():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _has_foreign_threads() -> bool:
    return num_processes() > 1 or "ray" in sys.modules


def is_launched() -> bool:
    """Whether this process was started by `launch`."""
    return LAUNCHER in os.environ


def _meeting(num_processes: int) -> tuple[Any, dict[str, str]]:
    """The store in which the processes meet, as long as it is held, and their environment variables.

    Made by process 0, it would listen on every address of the machine.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    store = _store_type()(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    places = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    places["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"  # no other machine is to reach gloo
    return store, places | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(num_processes))


def _store_type() -> Any:
    """torch's TCPStore."""
    is_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, "FATAL")  # else each lost connection is logged with a C++ trace of many lines
    from torch import distributed

    if not is_set:
        del os.environ[_LOG_LEVEL]
    return distributed.TCPStore  # type: ignore[attr-defined]


def _start(command: Sequence[str], rank: int, meeting: Mapping[str, str], log: Path) -> Process:
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    environment = {**os.environ, **meeting, **ranks, LAUNCHER: "yes"}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, num_cores() // int(meeting["WORLD_SIZE"]))))
    if rank == 0:
        return Process(command, variables=environment)
    with log.open("wb") as file:
        return Process(command, variables=environment, output=file)


def _log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank}.log"


def _end_of(rank: int, code: int, logs: Path) -> End:
    if rank == 0:
        return End(rank, code)
    log = _log(logs, rank)
    return End(rank, code, last_line(log), str(log))


def _weight(end: End) -> int:
    """How much an end says about why the run ended."""
    if end.code in (0, LOST_EXIT_CODE):
        return int(end.code != 0)
    if end.code in INTERRUPTED:
        return 3 if end.rank == 0 else 2  # process 0 writes the checkpoint
    return 4


def _watch(members: Members, logs: Path, grace_seconds: float) -> End:
    """Wait until all have ended; returns the end of the process that decided."""
    decided, deadline = End(0, 0), float("inf")
    known: dict[int, End] = {}
    while True:
        for rank, member in members.items():
            if rank not in known and (code := member.code) is not None:
                known[rank] = _end_of(rank, code, logs)
                if _weight(known[rank]) > _weight(decided):
                    decided = known[rank]
        if decided.code:
            deadline = min(deadline, time.monotonic() + grace_seconds)
        if time.monotonic() > deadline or len(known) == len(members):
            return decided
        time.sleep(POLL_SECONDS)


@contextmanager
def _forwarding(members: Members) -> Iterator[None]:
    """The first signal asks process 0 (it tells the others) to stop after its step; the second ends all."""
    asked: list[int] = []

    def handle(number: int) -> None:
        if asked:
            interrupt(number)
        asked.append(number)
        members[0].send_signal(number)

    with answered_by(handle):
        yield
