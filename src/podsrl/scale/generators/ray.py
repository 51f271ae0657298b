"""Generators whose workers are Ray actors, on this machine or on other ones of a cluster. It is imported where Ray is.

Ray never makes an actor anew by itself: the new one would have no weights, and nobody would know. One that dies, or
whose node does, is a `LostGenerator`, which the pool replaces.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from torch import Tensor

from podsrl.errors import LostGenerator, UsageError, one_line
from podsrl.lib.channel import Frame
from podsrl.lib.child import Lost
from podsrl.scale.generators.child import Service
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.ray_cluster import (
    CLOSE_SECONDS,
    START_SECONDS,
    Amounts,
    Cluster,
    in_words,
    nodes_of_cluster,
    num_places,
)
from podsrl.scale.generators.remote import RemoteGenerator
from podsrl.scale.generators.weights import SharedWeights, Table, mapped
from podsrl.scale.generators.worker import Blueprint

_VARIABLES = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}


class RayGenerator(RemoteGenerator):
    """A worker in an actor.

    Args:
        blueprint: of the worker.
        name: for messages.
        need: what it takes of a node.
        timeout_seconds: once it has started, beyond so long a silence while something is awaited it is lost.
    """

    def __init__(self, blueprint: Blueprint, name: str, need: Amounts, *, timeout_seconds: float) -> None:
        self._actor: Any = ray.remote(
            num_cpus=need["CPU"],
            num_gpus=need.get("GPU", 0),
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups={"put": 1},  # a thread beside the one that generates
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _VARIABLES},
        )(Service).remote()
        self._kill = weakref.finalize(self, _kill, self._actor)
        self._kill.atexit = False  # Ray ends before
        self._started_seconds = timeout_seconds
        messages = self._actor.answers.options(num_returns="streaming").remote()
        super().__init__(name, blueprint, partial(_received, messages), START_SECONDS)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self.take(*_stored(named_tensors, version))

    def hear(self, frame: Frame) -> None:
        self._timeout_seconds = self._started_seconds
        super().hear(frame)

    def close(self) -> None:
        """End the actor."""
        self._kill()
        self._reader.join(CLOSE_SECONDS)  # once Ray is shut down, its next call would start a cluster

    def _send(self, head: dict[str, Any], body: bytes, data: Any) -> None:
        """Ray resolves a reference to weights on the actor's node, and keeps the order of messages."""
        self._actor.put.options(concurrency_group="put").remote(head, body, data)

    def _lost(self, reason: str) -> LostGenerator:
        is_new = not reason and self._answers[0] is None
        if is_new:
            free = in_words(ray.available_resources())
            reason = f"it did not start within {START_SECONDS:g} s, and {free} of the Ray cluster are free"
        silent = f"no message within scale.timeout_seconds = {self._timeout_seconds:g}"
        return LostGenerator(f"{self._name} is lost ({reason or silent})", is_final=is_new)


def _received(messages: Any, seconds: float) -> Frame:
    try:
        if not ray.wait([messages], timeout=seconds)[0]:
            raise TimeoutError
        return Frame(*ray.get(next(messages)))
    except StopIteration:
        raise Lost("it sends nothing more") from None
    except ray.exceptions.RayError as error:
        raise Lost(one_line(str(error), 300)) from None


def _kill(actor: Any) -> None:
    if ray.is_initialized():  # otherwise Ray would start a cluster for this call
        with suppress(Exception):  # it may be gone
            ray.kill(actor)


class ObjectStore:
    """This process's connection to a cluster, and the newest weights there: put once, read by the actors of a node.

    A `Store` of a `Pool` of `RayGenerator`s.

    Args:
        address: of the cluster.
        local: the cluster, where it is to end with this process.
        is_shared: other processes use `local` too, so it does not end with this connection.

    Raises:
        UsageError: Ray refuses, such as where the program is connected to a cluster already.
    """

    def __init__(self, address: str, local: Cluster | None = None, *, is_shared: bool = False) -> None:
        self._local, self._is_shared = local, is_shared
        self._weights: tuple[Table, Any] | None = None
        options = {"address": address, "namespace": "podsrl", "log_to_driver": False, "configure_logging": False}
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            with ThreadPoolExecutor(1) as thread:  # in the main thread, Ray would answer SIGTERM
                thread.submit(ray.init, **options).result()
        except Exception as error:
            raise UsageError(f"scale.ray = {address!r}: {one_line(str(error))}") from None

    def put(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._weights = None  # gives back what the last weights took
        self._weights = _stored(named_tensors, version)

    def give(self, member: Any) -> None:
        assert self._weights is not None
        member.take(*self._weights)

    def close(self) -> None:
        """Leave the cluster."""
        self._weights = None
        ray.shutdown()
        if self._local is not None and not self._is_shared:
            self._local.close()


def _stored(named_tensors: Iterable[tuple[str, Tensor]], version: int) -> tuple[Table, Any]:
    """Weights in the object store: their table, and a reference to their bytes."""
    with closing(SharedWeights()) as shared:
        shared.put(named_tensors, version)
        assert shared.table is not None
        return shared.table, ray.put(np.frombuffer(mapped(shared.descriptor, shared.table), dtype=np.uint8))


def ray_pool(store: ObjectStore, blueprint: Blueprint, num: int, need: Amounts, *, timeout_seconds: float) -> Pool:
    """A pool of `RayGenerator`s, spread over the nodes of the cluster that `store` has joined.

    Args:
        store: is closed with the pool.
        blueprint: of each worker; its paths and its device are those of this process.
        num: actors of this process.
        need: what each takes of a node.
        timeout_seconds: of every wait for an actor that has started.
    """
    num_nodes = sum(num_places(has, need) > 0 for has in nodes_of_cluster())
    plan = _for_nodes(blueprint, -(-num // max(1, num_nodes)))
    make = partial(RayGenerator, plan, need=need, timeout_seconds=timeout_seconds)
    factories = [partial(make, name=f"Ray generator {i}") for i in range(num)]
    what = f"{num} Ray actor{'s' * (num > 1)} on {num_nodes} node{'s' * (num_nodes != 1)}"
    return Pool(factories, store, what=what)


def _for_nodes(blueprint: Blueprint, num_workers_here: int) -> Blueprint:
    """The blueprint as an actor needs it: it starts in another folder, on another machine, and sees one GPU if any."""
    model: dict[str, Any] = dict(blueprint.model)
    if Path(model["path"]).exists():
        model["path"] = str(Path(model["path"]).resolve())
    device = "cuda" if blueprint.setting["device"].startswith("cuda") else blueprint.setting["device"]
    return replace(
        blueprint, model=model, setting=blueprint.setting | {"device": device}, num_workers_here=num_workers_here
    )
