"""The nodes of a Ray cluster, what each actor needs of them, and places for the actors.

Everything that can be wrong with a cluster is found by `check_cluster`, in bounded time and before any weights are
read: no answer, another protocol, a token that does not match, another version, or too few cores or GPUs. A child
looks, since Ray ends a process that finds no cluster at an address.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from podsrl.errors import UsageError
from podsrl.lib.channel import Channel
from podsrl.lib.child import Child, Lost
from podsrl.lib.parent import outside_the_run
from podsrl.scale.generators.ray_join import (
    ENVIRONMENT,
    Address,
    check_address,
    check_package,
    joined,
    reason_in,
)

START_SECONDS = 180.0
"""Limit for a local cluster, an actor or a task to start: a busy machine needs a minute."""
_PATIENCE = {"RAY_gcs_rpc_server_connect_timeout_s": "5", "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
"""At an address that is no cluster, Ray would wait for 80 seconds."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one actor takes of a node."""

    num_cpus: int = 1
    num_gpus: float = 0.0
    """A fraction where actors share a GPU."""

    def __str__(self) -> str:
        gpus = f" and {self.num_gpus:g} GPU" if self.num_gpus else ""
        return f"{self.num_cpus} CPU core{'' if self.num_cpus == 1 else 's'}{gpus}"

    @property
    def bundle(self) -> dict[str, float]:
        """As Ray writes it."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {})


def check_cluster(option: str, num_actors: int, need: Need) -> None:
    """Check that a cluster answers, fits this process, and has room for so many actors.

    Args:
        option: `scale.ray`: "HOST:PORT".
        num_actors: of the whole run.

    Raises:
        UsageError: it does not; the message says why in one line.
        UnavailableError: Ray is not installed here.
    """
    check_package()
    check_address(option)
    own = {name: value for name, value in (ENVIRONMENT | _PATIENCE).items() if name not in os.environ}
    function, wanted = "podsrl.scale.generators.ray_cluster:look", [option, num_actors, asdict(need)]
    child = Child(function, *wanted, variables=outside_the_run() | own, output=subprocess.DEVNULL)
    try:
        why_not = child.ask(seconds=START_SECONDS).head
    except Lost as lost:
        raise UsageError(
            f"scale.ray = {option!r}: what answers there is no Ray cluster ({lost}); wanted the port of `ray start "
            "--head` (6379 unless it was given another one), which is not that of the dashboard (8265)"
        ) from None
    finally:
        child.kill()
    if why_not:
        raise UsageError(why_not)


def look(channel: Channel, option: str, num_actors: int, need: dict[str, Any]) -> None:
    """In the child: answer why a cluster does not do; "" where it does."""
    channel.receive()
    why_not = ""
    try:
        examine(option, num_actors, Need(**need))
    except UsageError as error:
        why_not = str(error)
    channel.send(why_not)


def examine(option: str, num_actors: int, need: Need) -> None:
    """As `check_cluster`, in this process."""
    with joined(Address(option)):
        check_room(option, num_actors, need)
        _check_code(option, need)


def check_room(option: str, num_actors: int, need: Need) -> None:
    """UsageError: the nodes of the joined cluster could not hold so many actors even if nothing else ran there."""
    nodes = _nodes()
    num_places = sum(_places(resources, need) for resources in nodes.values())
    if num_places < num_actors:
        raise UsageError(
            f"scale.ray = {option!r}: scale.generators = {num_actors} wants {need} for each, and the cluster has room "
            f"for {num_places}: {describe_nodes(nodes)}; add nodes with `ray start --address`, or lower "
            "scale.generators"
        )


def reserve(option: str, num_actors: int, need: Need, *, seconds: float = 60.0) -> Any:
    """Reserve places for this process's actors, spread over the nodes.

    Returns:
        A placement group with one bundle per actor. It ends with this process's connection.

    Raises:
        UsageError: others hold the places, and do not give them back within so many seconds.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    check_room(option, num_actors, need)
    group = placement_group([need.bundle] * num_actors, strategy="SPREAD")
    if not group.wait(seconds):
        free = ray.available_resources()
        remove_placement_group(group)
        raise UsageError(
            f"scale.ray = {option!r}: {num_actors} generators want {need} each, and within {seconds:g} s the "
            f"cluster did not have them free: {_amounts(free)} of {_amounts(ray.cluster_resources())} are left; end "
            "what else runs there, or lower scale.generators"
        )
    return group


def num_nodes(need: Need) -> int:
    """Nodes of the joined cluster that could hold an actor."""
    return sum(_places(resources, need) > 0 for resources in _nodes().values())


def describe_nodes(nodes: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """The nodes of the joined cluster and what each has, in one line."""
    nodes = _nodes() if nodes is None else nodes
    each = ", ".join(f"{name.rpartition(' ')[0]} with {_amounts(has)}" for name, has in nodes.items())
    return f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} ({each})"


def _nodes() -> dict[str, Mapping[str, float]]:
    """ "HOST ID" of each node that lives -> its resources."""
    import ray

    return {
        f"{node['NodeManagerAddress']} {node['NodeID']}": node["Resources"] for node in ray.nodes() if node["Alive"]
    }


def _places(has: Mapping[str, float], need: Need) -> int:
    return min(int(has.get(name, 0) // amount) for name, amount in need.bundle.items())


def _amounts(has: Mapping[str, float]) -> str:
    return f"{has.get('CPU', 0):g} CPU cores and {has.get('GPU', 0):g} GPUs"


def _check_code(option: str, need: Need) -> None:
    """UsageError: a node that may hold an actor has no podsrl, or another version of it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    fit = [name for name, has in _nodes().items() if _places(has, need)]
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # where podsrl is missing this must run too
    try:
        asks = [
            ray.remote(num_cpus=0, max_retries=0)(_version_there)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(name.rpartition(" ")[2], soft=False))
            .remote()
            for name in fit
        ]
        found = ray.get(asks, timeout=START_SECONDS)
    except ray.exceptions.RayError as error:
        raise UsageError(f"scale.ray = {option!r}: the nodes do not run tasks: {reason_in(error)}") from None
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    here = version("podsrl")
    for name, there in zip(fit, found, strict=True):
        if there != here:
            what = f"has podsrl {there}" if there else "has no podsrl (or one without Ray generators)"
            raise UsageError(
                f"scale.ray = {option!r}: the Python of Ray on node {name.rpartition(' ')[0]} {what}, wanted {here} as "
                f"here: run pip install 'podsrl[ray]=={here}' there, and start its Ray again"
            )


def _version_there() -> str:
    """Of podsrl on a node; empty where it cannot be imported. It is sent by value: nothing of podsrl is read there."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        return version("podsrl") if find_spec("podsrl.scale.generators.ray") else ""
    except (ImportError, PackageNotFoundError):
        return ""
