"""A generator whose worker is a Ray actor, on this machine or on another one of the cluster.

Actors only forward to the plain `Worker`. Ray never makes one anew by itself: the new one would have no weights, and
nobody would know. An actor that dies, or whose node does, is a `LostGenerator`, which the pool replaces.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from torch import Tensor

from podsrl.errors import LostGenerator, PodsError
from podsrl.generate import EngineStats, Generator, Request, Watch, add_stats
from podsrl.records import decode_completions
from podsrl.scale.generators.ray_cluster import START_SECONDS, Need, describe_nodes
from podsrl.scale.generators.ray_join import check_cluster_lives, lives
from podsrl.scale.generators.weights import SharedWeights, mapped
from podsrl.scale.generators.worker import Blueprint, Worker, encode_requests, packed
from podsrl.sync import SyncError
from podsrl.types import Completion

_CHECK_SECONDS = 5.0
"""Between two looks whether the cluster is still there."""
_ABORT = "abort"
"""Name of the group of calls that an actor answers while it generates."""


class Actor:
    """The worker's methods, as Ray calls them: one thread does one call after the other, and `abort` has its own."""

    def start(self, blueprint: str) -> dict[str, Any]:
        """Make the worker, apart from `__init__` so that its errors arrive with their types.

        Returns:
            Its facts, "node": the address of the machine, and "pid": the process id there.
        """
        import ray

        self._worker = Worker(Blueprint.of_json(blueprint))
        return self._worker.facts() | {"node": ray.util.get_node_ip_address(), "pid": os.getpid()}

    def generate(self, requests: bytes, number: int, watch: bytes) -> Iterator[bytes | dict[str, Any]]:
        """As `Worker.generate`, then its counts."""
        yield from self._worker.generate(requests, number, watch)
        yield self._worker.counts()

    def call(self, name: str, *arguments: Any) -> Any:
        """Call another method of the worker."""
        return getattr(self._worker, name)(*arguments)


class RayGenerator(Generator):
    """A member of a pool.

    Args:
        blueprint: of the worker.
        group: placement group of the run's actors (`ray_cluster.reserve`).
        index: which place of it this one takes; places of lost ones are taken again.
        need: what it takes of a node.
        timeout_seconds: of every wait for an answer once it has started.

    Raises:
        LostGenerator: (from any method) the actor died, its node or the cluster did, or it did not start in time.
        PodsError: (from the first use) the worker cannot be made.
    """

    version = 0

    def __init__(self, blueprint: Blueprint, group: Any, index: int, need: Need, *, timeout_seconds: float) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        check_cluster_lives()
        self._name, self._timeout_seconds = f"Ray generator {index}", timeout_seconds
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        options = {
            "num_cpus": need.num_cpus,
            "num_gpus": need.num_gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {_ABORT: 1},  # a thread beside the one that generates
            "scheduling_strategy": place,
            "runtime_env": {"env_vars": {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}},
        }
        self._actor: Any = ray.remote(**options)(Actor).remote()
        self._start = self._actor.start.remote(blueprint.to_json())
        self._facts: dict[str, Any] | None = None
        self.stats, self.peak_kv_bytes = EngineStats(), 0
        self._number = 0  # of the newest call of `generate`

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        """ "beside", and those of the worker's generator that need no place in this process."""
        return frozenset({"beside", *self.facts["abilities"]}) - {"partial"}

    @property
    def facts(self) -> dict[str, Any]:
        """What `Actor.start` gives."""
        import ray

        if self._facts is None:
            try:
                self._facts = self._result(self._start, START_SECONDS)
            except ray.exceptions.GetTimeoutError:
                raise LostGenerator(
                    f"{self._name} did not start within {START_SECONDS:g} s; the cluster has {describe_nodes()}",
                    is_final=True,
                ) from None
        return self._facts

    def generate(self, requests: Iterable[Request], *, watch: Watch | None = None) -> Iterator[Completion]:
        """Begin now; the actor makes the watch anew. UsageError: it is no `Steering`, or cannot be sent."""
        self.facts  # noqa: B018  # it has started
        self._number += 1
        stream = self._actor.generate.options(num_returns="streaming").remote(
            encode_requests(list(requests)), self._number, packed(watch)
        )
        return self._read(stream)

    def abort(self, ids: Iterable[str | tuple[str, int]]) -> None:
        self._actor.call.options(concurrency_group=_ABORT).remote("abort", list(ids), self._number)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        store = ObjectStore()
        store.put(named_tensors, version)
        store.give(self)

    def take_weights(self, table: Any, data: Any) -> None:
        """Sample from weights in the object store; `data` is the reference."""
        if self._call("load_weights", table, data) != table["digest"]:
            raise SyncError(f"{self._name} on node {self.facts['node']} received other weights than it was sent")
        self.version = table["version"]

    def describe(self, requests: Sequence[Request]) -> str:
        return str(self._call("describe", encode_requests(requests)))

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        token, logprob = self._call("first_logprob", list(prompt_ids))
        return token, logprob

    def close(self) -> None:
        """End the actor."""
        import ray

        if ray.is_initialized() and lives():  # otherwise Ray would start a cluster for this call
            with suppress(Exception):  # it may be gone
                ray.kill(self._actor)

    def _read(self, stream: Any) -> Iterator[Completion]:
        import ray

        counts: dict[str, Any] = {}
        with self._watched():
            while True:
                if not _is_there(stream, self._timeout_seconds):
                    raise self._silent("completion")
                try:
                    reference = next(stream)
                except StopIteration:
                    break
                found = ray.get(reference)
                if isinstance(found, bytes):
                    yield from decode_completions(found)
                else:
                    counts = found
        # Only now: an actor that dies between its counts and its end is asked for all again, and that is counted.
        self.stats = add_stats([self.stats, EngineStats(**counts["stats"])])
        self.peak_kv_bytes = max(self.peak_kv_bytes, counts["peak_kv_bytes"])

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the worker, and wait. References among the arguments are resolved on the actor's node."""
        import ray

        self.facts  # noqa: B018  # it has started
        try:
            return self._result(self._actor.call.remote(name, *arguments), self._timeout_seconds)
        except ray.exceptions.GetTimeoutError:
            raise self._silent(f"answer to {name}") from None

    def _result(self, reference: Any, seconds: float) -> Any:
        import ray

        with self._watched():
            return ray.get(reference, timeout=seconds if _is_there(reference, seconds) else 0)

    def _silent(self, wanted: str) -> LostGenerator:
        seconds = self._timeout_seconds
        return LostGenerator(f"{self._name}: no {wanted} within scale.timeout_seconds = {seconds:g}")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Errors of the worker as they are, and those of Ray as `LostGenerator`."""
        import ray

        try:
            yield
        except ray.exceptions.GetTimeoutError:
            raise
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, PodsError):
                raise cause from None
            raise PodsError(f"{self._name}: {type(cause).__name__}: {cause}") from error
        except ray.exceptions.RayError as error:
            check_cluster_lives()
            where = f" on node {self._facts['node']}" if self._facts else ""
            raise LostGenerator(f"{self._name}{where}: {' '.join(str(error).split())[:300]}") from None


def _is_there(reference: Any, seconds: float) -> bool:
    """Wait for a result. LostGenerator: the cluster has ended meanwhile."""
    import ray

    deadline = time.monotonic() + seconds
    check_cluster_lives()
    while not ray.wait([reference], timeout=min(_CHECK_SECONDS, max(0.0, deadline - time.monotonic())))[0]:
        check_cluster_lives()
        if time.monotonic() >= deadline:
            return False
    return True


class ObjectStore:
    """The newest weights in Ray's object store: written once, read by the actors of a node in shared memory.

    A `Store` of a `Pool` of `RayGenerator`s.
    """

    def __init__(self) -> None:
        self._table: Any = None
        self._data: Any = None

    def put(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        import ray

        check_cluster_lives()
        self._data = None  # gives back what the last weights took
        shared = SharedWeights()
        try:
            shared.put(named_tensors, version)
            self._table = shared.table
            self._data = ray.put(np.frombuffer(mapped(shared.descriptor, self._table), dtype=np.uint8))
        finally:
            shared.close()

    def give(self, member: Generator) -> None:
        assert isinstance(member, RayGenerator)
        member.take_weights(self._table, self._data)

    def close(self) -> None:
        self._data = None
