"""A Ray cluster that a child process has joined or started; one line says what is wrong, before any model is read.

Ray ends a process that finds no cluster at an address, so a child tries it first. A child also holds the cluster that a
run starts: no signal to the run's process group reaches it, and it ends with the run, however that ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import Any

from podsrl.errors import UnavailableError, UsageError, one_line
from podsrl.lib.channel import Channel
from podsrl.lib.child import Child, Lost
from podsrl.lib.parent import outside_the_run

Amounts = Mapping[str, float]
"""What a node has or an actor takes, as Ray names it: {"CPU": 1, "GPU": 0.5}."""
START_SECONDS = 180.0
"""Limit for a cluster or an actor to start: a busy machine needs a minute."""
CLOSE_SECONDS = 10.0
"""Limit for one to end by itself."""
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a process without a GPU keeps CUDA_VISIBLE_DEVICES as it is
    "RAY_BACKEND_LOG_LEVEL": "error",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # no call starts a cluster, such as a late one of a thread
}
"""Environment variables for Ray, in every process of ours that imports it."""
_PATIENCE = {"RAY_gcs_rpc_server_connect_timeout_s": "5", "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
"""At an address that is no cluster, Ray would wait for 80 seconds."""
_CONNECT_SECONDS = 3.0


class Cluster:
    """A cluster that a child has joined; one that the child has started ends with it, and leaves nothing.

    Args:
        option: `scale.ray`.
        variables: environment variables of the child.
        options: of `ray.init`.

    Raises:
        UsageError: the message says why there is none.
        UnavailableError: Ray is not installed here.
    """

    def __init__(self, option: str, variables: Mapping[str, str], **options: Any) -> None:
        check_package()
        self._folder = tempfile.TemporaryDirectory(prefix="pods-ray-", ignore_cleanup_errors=True)
        self._child = Child(
            f"{__name__}:hold", self._folder.name, options, ends_itself=True, output=subprocess.DEVNULL,
            variables={**VARIABLES, **outside_the_run(), **variables},
        )  # fmt: skip
        self.address: str
        self.nodes: list[Amounts]
        """What each node has."""
        try:
            self.address, self.nodes, error = self._child.ask(seconds=START_SECONDS).head
        except Lost as lost:
            error = str(lost)
        if error:
            self.close()
            raise UsageError(f"scale.ray = {option!r}: {error}")

    def close(self) -> None:
        """End the child and what it has started."""
        self._child.channel.close()
        self._child.wait(CLOSE_SECONDS)
        self._child.kill()
        self._folder.cleanup()


def local_cluster(
    num_cpus: float, num_gpus: int, store_bytes: int, visible_gpus: str
) -> tuple[Cluster, dict[str, str]]:
    """A cluster of this machine, and the environment variables by which a process has its token.

    Without a token, every user of the machine could run code in the cluster.
    """
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)}
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "object_store_memory": store_bytes}
    variables = token | {"CUDA_VISIBLE_DEVICES": visible_gpus}
    return Cluster("local", variables, address="local", include_dashboard=False, **options), token


def check_package() -> None:
    """UnavailableError: Ray is not installed here."""
    if find_spec("ray") is None:
        raise UnavailableError("scale.ray needs the package ray, which is not installed: pip install 'podsrl[ray]'")


def check_cluster(option: str, num_actors: int, need: Amounts) -> None:
    """Check that a cluster answers, and could hold so many actors if nothing else ran there.

    Args:
        option: `scale.ray`: "HOST:PORT".
        num_actors: of the whole run.
        need: of each.

    Raises:
        UsageError: it does not; the message says why in one line.
    """
    host, _, port = option.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"scale.ray = {option!r}: wanted 'local', or the HOST:PORT that `ray start --head` prints")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise UnavailableError(
            f"scale.ray = {option!r}: nothing answers there ({error.strerror or error}); start a cluster with `ray "
            f"start --head --port={port}`, or take the address that it printed"
        ) from None
    try:
        with closing(Cluster(option, _PATIENCE, address=option)) as cluster:
            nodes = cluster.nodes
    except UsageError as error:
        raise UsageError(
            f"{error}; wanted the port of `ray start --head` (6379 unless it was given another one; the dashboard's is "
            "8265), and with RAY_AUTH_MODE=token in RAY_AUTH_TOKEN what `ray get-auth-token` prints there"
        ) from None
    if (num := sum(num_places(has, need) for has in nodes)) < num_actors:
        raise UsageError(
            f"scale.ray = {option!r}: scale.generators = {num_actors} wants {in_words(need)} for each, and the cluster "
            f"has room for {num}, with nodes of {'; '.join(map(in_words, nodes))}: add nodes with `ray start "
            "--address`, or lower scale.generators"
        )


def num_places(has: Amounts, need: Amounts) -> int:
    """How many actors a node could hold."""
    return min(int(has.get(name, 0) // amount) for name, amount in need.items())


def in_words(amounts: Amounts) -> str:
    """Cores and GPUs, for messages."""
    return f"{amounts.get('CPU', 0):g} CPU cores and {amounts.get('GPU', 0):g} GPUs"


def nodes_of_cluster() -> list[Amounts]:
    """What each node of the cluster has that this process has joined."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def hold(channel: Channel, folder: str, options: dict[str, Any]) -> None:
    """In the child: be in a cluster until the channel is closed; its files are in the folder, and go with it."""
    import ray

    own = {"_temp_dir": folder} if options["address"] == "local" else {}
    channel.receive()
    try:
        ray.init(log_to_driver=False, configure_logging=False, **own, **options)
        channel.send([ray.get_runtime_context().gcs_address, nodes_of_cluster(), ""])
        channel.receive()
    except Exception as error:
        channel.send(["", [], one_line(str(error)) or repr(error)])
    with suppress(Exception):
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
