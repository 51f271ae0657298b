"""The launchers of one run on several machines (nodes): they meet, check that they agree, and end together.

They meet in torch's TCPStore, which the launcher of node 0 holds; the run's processes meet in it too, as torchrun's do.
torch's elastic agent would end all processes of a node as soon as one ends, so the process that merely lost another
would be blamed, and it does not tell the other nodes which process failed.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any
from uuid import uuid4

from podsrl.config.load import changed_keys
from podsrl.errors import PodsError, UsageError, one_line
from podsrl.lib.callbacks import Say
from podsrl.scale.launch import INTERRUPTED, End
from podsrl.scale.rendezvous import Place, listen, store_type, wait_for_listener

SILENCE_SECONDS = 30.0
"""A node that has not answered for so long is taken for lost: a machine that is switched off closes no connection."""
POLL_SECONDS = 0.25


class Nodes:
    """This node among all, from the first contact to the end; a context.

    One thread uses the store, which may block while a machine does not answer; the methods never do.

    Args:
        place: of this node.
        folder: the run's, as node 0 names it.
        say: called with each line that a user reads while waiting.
        answer_seconds: how long what listens at the rendezvous address has to answer as torch's store does.

    Raises:
        UsageError: the rendezvous address cannot be bound or reached, the rank is taken, or node 0 counts other nodes.
    """

    def __init__(self, place: Place, folder: str, say: Say, *, answer_seconds: float = 30.0) -> None:
        self.place, self._say, self._answer_seconds = place, say, answer_seconds
        self.num_processes, self.first_rank, self.folder = 0, 0, folder
        self._deadline = time.monotonic() + place.seconds
        self._sent: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._heard: dict[str, str] = {}
        self._answered, self._failure = time.monotonic(), ""
        self._has_reported = self._is_leaving = False
        self._beats = dict.fromkeys(range(1, place.num_nodes), (b"", time.monotonic()))
        make = partial(store_type(), place.host, place.port)
        if place.rank == 0:
            make = partial(make, is_master=True, master_listen_fd=listen(place).detach())
        else:
            wait_for_listener(place, self._deadline, say)
        self._thread = threading.Thread(target=self._serve, args=(make,), daemon=True, name="nodes")
        self._thread.start()
        self._register()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Tell the other nodes if and why this one fails, then leave them."""
        if isinstance(error, PodsError):
            self.report(End(-1, 1, one_line(str(error))))
        elif isinstance(error, KeyboardInterrupt):
            self.report(End(-1, INTERRUPTED[0], "interrupted"))
        elif error is not None:
            self.report(End(-1, 1, f"{type(error).__name__}: {one_line(str(error))}"))
        self._sent.put((f"done/{self.place.rank}", "yes"))
        self._is_leaving = True
        seconds = None if self.place.rank == 0 else self._answer_seconds  # only another machine's store can block
        self._thread.join(seconds)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of every process of this node, with torchrun's names."""
        return {
            "MASTER_ADDR": self.place.host,
            "MASTER_PORT": str(self.place.port),
            "WORLD_SIZE": str(self.num_processes),
            "GROUP_RANK": str(self.place.rank),
            "GROUP_WORLD_SIZE": str(self.place.num_nodes),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }

    def agree(self, num_processes: int, facts: Mapping[str, Any]) -> None:
        """Wait until every node is here, and compare what has to be the same on all of them.

        Args:
            num_processes: on this node; another node may have another number.
            facts: plain JSON.

        Raises:
            UsageError: a node did not come in time, or differs.
            PodsError: another node has failed.
        """
        self._sent.put((f"facts/{self.place.rank}", json.dumps({"processes": num_processes, "facts": facts})))
        ranks = range(self.place.num_nodes)
        self._await(lambda: all(f"facts/{rank}" in self._heard for rank in ranks))
        told = [json.loads(self._heard[f"facts/{rank}"]) for rank in ranks]
        for rank in ranks[1:]:
            differences = changed_keys(told[0]["facts"], told[rank]["facts"])
            if differences:
                raise UsageError(
                    f"{self.name(0)} and {self.name(rank)} differ: {', '.join(differences)}; a run wants the same "
                    "versions, config and data on every node"
                )
        counts = [each["processes"] for each in told]
        self.num_processes, self.first_rank = sum(counts), sum(counts[: self.place.rank])
        each = ", ".join(f"{self.name(rank)}: {count}" for rank, count in enumerate(counts))
        self._say(f"{len(counts)} nodes, {self.num_processes} processes ({each})")

    def name(self, rank: int) -> str:
        """A node as messages name it."""
        host = self._heard.get(f"host/{rank}")
        return f"node {rank}" + (f" ({host})" if host else "")

    def report(self, end: End) -> None:
        """Tell all nodes, once, that the run has to end; the first node that says so decides."""
        if self._has_reported:
            return
        self._has_reported = True
        log = end.log and f"{socket.gethostname()}:{end.log}"
        told = End(end.rank, end.code, end.last_line, log=log, node=self.name(self.place.rank))
        self._sent.put(("end", json.dumps(asdict(told))))

    @property
    def end(self) -> End | None:
        """Why the run has to end, by the first node that knew; None while it goes on."""
        if "end" in self._heard:
            return End(**json.loads(self._heard["end"]))
        silence = time.monotonic() - self._answered
        if self._failure or silence > SILENCE_SECONDS:
            why = "ended" if self._failure else f"has not answered for {silence:.0f} s"
            where = f"{self.place.host}:{self.place.port}"
            return End(-1, 1, f"its launcher {why}, or the network to {where} is down", node=self.name(0))
        return None

    def _register(self) -> None:
        """Wait until node 0 knows this node."""
        first = time.monotonic() + self._answer_seconds
        while "run" not in self._heard and "refused" not in self._heard:
            if self._failure or time.monotonic() > first:
                raise UsageError(
                    f"--rendezvous {self.place.host}:{self.place.port}: something listens there, but it is no "
                    f"`pods launch --node-rank 0` ({self._failure or f'no answer in {self._answer_seconds:.0f} s'})"
                )
            time.sleep(0.02)
        if "refused" in self._heard:
            raise UsageError(self._heard["refused"])
        self.folder = json.loads(self._heard["run"])["folder"]

    def _await(self, is_there: Callable[[], bool]) -> None:
        while not is_there():
            if (end := self.end) is not None:
                raise PodsError(f"{end.node}: {end.last_line}")
            missing = [rank for rank in range(self.place.num_nodes) if f"host/{rank}" not in self._heard]
            if missing and time.monotonic() > self._deadline:
                joined = self.place.num_nodes - len(missing)
                raise UsageError(
                    f"{joined} of {self.place.num_nodes} nodes joined within --join-seconds {self.place.seconds:g}; "
                    f"missing: --node-rank {', '.join(map(str, missing))}; start `pods launch` there too, with "
                    f"--rendezvous {self.place.host}:{self.place.port}"
                )
            time.sleep(0.05)

    # --- the thread ---

    def _serve(self, make: Callable[..., Any]) -> None:
        try:
            store = make(timeout=timedelta(seconds=self._answer_seconds), wait_for_workers=False)
            if not self._enter(store):
                return
            while not self._is_over():
                self._exchange(store)
                self._answered = time.monotonic()
                time.sleep(POLL_SECONDS)
        except Exception as error:  # of torch's, some of which are of no public type
            self._failure = one_line(str(error))

    def _enter(self, store: Any) -> bool:
        """Take this node's rank."""
        place, host = self.place, socket.gethostname()
        if place.rank == 0:
            store.set("pods/run", json.dumps({"nodes": place.num_nodes, "folder": self.folder}))
        while not store.check(["pods/run"]):
            time.sleep(0.02)
        run = store.get("pods/run").decode()
        if (num_nodes := json.loads(run)["nodes"]) != place.num_nodes:
            self._heard["refused"] = f"--nodes {place.num_nodes}: node 0 was started with --nodes {num_nodes}"
        elif store.compare_set(f"pods/host/{place.rank}", "", name := f"{host}/{uuid4().hex}") != name.encode():
            taken = store.get(f"pods/host/{place.rank}").decode().partition("/")[0]
            self._heard["refused"] = f"--node-rank {place.rank} is taken already, by a launcher on {taken}"
        else:
            self._heard["run"] = run
        return "run" in self._heard

    def _is_over(self) -> bool:
        """Whether nothing is left to say, and, where this node holds the store, nobody needs it any more."""
        others = [rank for rank in self._beats if f"host/{rank}" in self._heard and f"done/{rank}" not in self._heard]
        return self._is_leaving and self._sent.empty() and not (self.place.rank == 0 and others)

    def _exchange(self, store: Any) -> None:
        """Say what is to be said, and hear what is new."""
        rank, ranks = self.place.rank, range(self.place.num_nodes)
        while not self._sent.empty():
            key, value = self._sent.get()
            store.compare_set(f"pods/{key}", "", value)
        store.set(f"pods/beat/{rank}", str(time.monotonic()))
        keys: list[str] = []
        if self.num_processes == 0:
            keys += [f"{what}/{each}" for what in ("facts", "host") for each in ranks]  # told in the other order
        if rank == 0:
            keys += [f"done/{each}" for each in ranks]
            self._watch_beats(store)
        for key in (*keys, "end"):  # the reason for an end after the facts that it is about
            if key not in self._heard and store.check([f"pods/{key}"]):
                value = store.get(f"pods/{key}").decode()
                self._heard[key] = value.partition("/")[0] if key.startswith("host/") else value

    def _watch_beats(self, store: Any) -> None:
        """End the run if a node has fallen silent."""
        now = time.monotonic()
        for rank, (last, since) in self._beats.items():
            if f"host/{rank}" not in self._heard or f"done/{rank}" in self._heard:
                continue
            beat = store.get(f"pods/beat/{rank}") if store.check([f"pods/beat/{rank}"]) else b""
            if beat != last or last == b"":
                self._beats[rank] = beat, now
            elif now - since > SILENCE_SECONDS:
                line = f"silent for {now - since:.0f} s: its launcher was killed, or its machine or network is off"
                end = End(-1, 1, line, node=self.name(rank))
                store.compare_set("pods/end", "", json.dumps(asdict(end)))
                self._heard[f"done/{rank}"] = "lost"
