"""Start K processes of one run on this machine, watch them, and end all when one fails.

Process 0 has the terminal; what the others print goes to a log each. Every process is the leader of a session of its
own: Ctrl-C reaches the launcher alone, which hands it to its first process. All end with the launcher, however that
ends. With processes on other machines, `Nodes` tells every launcher which process of all failed first.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podsrl.lib.machine import num_cores
from podsrl.lib.parent import asked_of_child
from podsrl.lib.signals import STOPPING, answered_by, interrupt

if TYPE_CHECKING:
    from podsrl.scale.nodes import Nodes

LAUNCHER = "PODS_LAUNCHER"
"""Environment variable that a launched process has."""
LOST_EXIT_CODE = 3
"""Exit code of a process that ended because another one did; the other's error is shown."""
INTERRUPTED = tuple(128 + number for number in STOPPING)
"""Exit codes of a process that was asked to stop, and has."""
NEWS_SECONDS = 35.0
"""How long a node whose processes lost another waits to hear from the other nodes which one failed."""
POLL_SECONDS = 0.05
ASKED = b"\nstopping after this step, with a checkpoint; once more to stop at once\n"
Members = dict[int, subprocess.Popen[bytes]]
"""Process number in the run -> the process, of this machine's."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run of several processes ended."""

    rank: int
    """The process that decided: the first that failed, else process 0; -1: a launcher."""
    code: int
    """Its exit code; negative: the signal that killed it."""
    last_line: str = ""
    """The last line of its log, which is its error; "" for process 0, which printed to its terminal."""
    log: str | None = None
    """What it printed, on another node as HOST:FILE; None for process 0."""
    node: str = ""
    """The node that it ran on; "" for this one."""


def launch(
    command: Sequence[str], num_processes: int, logs: Path, nodes: Nodes | None = None, *, grace_seconds: float = 10.0
) -> End:
    """Run a command K = `num_processes` times at once, until all have ended; rank-1.log … go to the folder `logs`.

    RANK, WORLD_SIZE and the address to meet at are in the environment of each. With `nodes`, that have agreed, these K
    are this node's share, and the first failure on any node ends the processes of all. When one has ended, the others
    have `grace_seconds` to notice; then they are killed.
    """
    logs.mkdir(parents=True, exist_ok=True)
    members: Members = {}
    first = nodes.first_rank if nodes else 0
    store, meeting = (None, nodes.environment) if nodes else _meeting(num_processes)
    try:
        for local_rank in range(num_processes):
            rank, here = first + local_rank, {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(num_processes)}
            members[rank] = _start(command, rank, {**meeting, **here}, _log(logs, rank))
        with _forwarding(members):
            return _watch(members, logs, nodes, grace_seconds)
    finally:
        _kill(members)
        del store


def is_main_process() -> bool:
    """Whether this process shows and writes, from the environment alone, before torch is loaded."""
    return int(os.environ.get("RANK", "0")) == 0


def num_processes() -> int:
    """Processes of this run, from the environment alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def resuming_command() -> str:
    """The command that resumes this run with as many processes, from the environment alone."""
    num_here, num_nodes = os.environ.get("LOCAL_WORLD_SIZE", num_processes()), os.environ.get("GROUP_WORLD_SIZE", "1")
    if num_nodes != "1":
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        return f"pods launch --nodes {num_nodes} --node-rank R --rendezvous {place} --processes {num_here}"
    return f"pods launch --processes {num_processes()}" if num_processes() > 1 else "pods train"


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
    """The store in which processes of this machine alone meet, as long as it is held, and their environment variables.

    Made by process 0, it would listen on every address of the machine.
    """
    from podsrl.scale.rendezvous import store_type

    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    store = store_type()(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    places = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "WORLD_SIZE": str(num_processes)}
    return store, places | {"TORCHELASTIC_USE_AGENT_STORE": "True"}


def _start(command: Sequence[str], rank: int, places: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "RANK": str(rank), **places, LAUNCHER: "yes", **asked_of_child()}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, num_cores() // int(places["LOCAL_WORLD_SIZE"]))))
    if rank == 0:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    with log.open("wb") as file:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )


def _log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank}.log"


def _end_of(rank: int, code: int, logs: Path) -> End:
    if rank == 0:
        return End(rank, code)
    log = _log(logs, rank)
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return End(rank, code, next((line.strip() for line in reversed(lines) if line.strip()), ""), str(log))


def _weight(end: End) -> int:
    """How much an end says about why the run ended."""
    if end.code in (0, LOST_EXIT_CODE):
        return int(end.code != 0)
    if end.code in INTERRUPTED:
        return 3 if end.rank == 0 else 2  # process 0 writes the checkpoint
    return 4


def _watch(members: Members, logs: Path, nodes: Nodes | None, grace_seconds: float) -> End:
    """Wait until all have ended; returns the end of the process that decided, on whatever node."""
    decided, deadline = End(min(members), 0), float("inf")
    known: dict[int, End] = {}
    while True:
        for rank, member in members.items():
            if rank not in known and member.poll() is not None:
                known[rank] = _end_of(rank, member.returncode, logs)
                if _weight(known[rank]) > _weight(decided):
                    decided = known[rank]
        if nodes is not None:
            decided = _of_all_nodes(decided, nodes, members)
        is_open = nodes is not None and decided.code == LOST_EXIT_CODE  # another node may yet say why
        if decided.code and not is_open:
            deadline = min(deadline, time.monotonic() + grace_seconds)
        elif is_open and deadline == float("inf"):
            deadline = time.monotonic() + NEWS_SECONDS
        if time.monotonic() > deadline or (len(known) == len(members) and not is_open):
            if nodes is not None and is_open:
                nodes.report(decided)
            return decided
        time.sleep(POLL_SECONDS)


def _of_all_nodes(decided: End, nodes: Nodes, members: Members) -> End:
    """Tell the other nodes what decided here, and take what decided there if it says more or came first."""
    if _weight(decided) > 1 and not decided.node:
        nodes.report(decided)
    there = nodes.end
    if there is None or there.rank in members:
        return decided
    return there if _weight(there) > _weight(decided) or _weight(there) == 4 else decided


def _kill(members: Members) -> None:
    """Kill every process that still runs, and all that it has started."""
    for member in members.values():
        with suppress(ProcessLookupError):
            os.killpg(member.pid, signal.SIGKILL)
    for member in members.values():
        member.wait()


@contextmanager
def _forwarding(members: Members) -> Iterator[None]:
    """The first signal asks the first process (it tells the others) to stop after its step; the second ends all."""
    asked: list[int] = []

    def handle(number: int) -> None:
        if asked:
            interrupt(number)
        asked.append(number)
        first = min(members)
        if members[first].poll() is None:
            members[first].send_signal(number)
        if first > 0:  # process 0 says so itself
            os.write(2, ASKED)

    with answered_by(handle):
        yield
