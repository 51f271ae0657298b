"""A Ray cluster as a run needs it: one that it starts on this machine, or one that runs already; reached and left again.

Everything that can be wrong with a cluster is found by `check_cluster`, in bounded time and before any weights are
read: no answer, another protocol, a token that does not match, another version, or too few cores or GPUs.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from podsrl.errors import UnavailableError, UsageError

PROBE_SECONDS = 3.0
"""Limit for an address to accept a connection, and again for it to answer."""
START_SECONDS = 180.0
"""Limit for a local cluster to start, and for each actor: a busy machine needs a minute."""
PLACE_SECONDS = 60.0
"""Limit for a cluster to find free places for the actors."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # it would look for a project around the command
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a process without a GPU keeps CUDA_VISIBLE_DEVICES as it is
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # a cluster that refuses is asked for 3 seconds instead of 20
    "RAY_BACKEND_LOG_LEVEL": "error",
}
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of HTTP/2 begins, gRPC's too: a fixed text, and an empty frame of settings (type 4)."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one actor takes of a node."""

    num_cpus: int = 1
    num_gpus: int = 0

    def __str__(self) -> str:
        gpus = f" and {self.num_gpus} GPU" if self.num_gpus else ""
        return f"{self.num_cpus} CPU core{'' if self.num_cpus == 1 else 's'}{gpus}"

    @property
    def bundle(self) -> dict[str, float]:
        """As Ray writes it."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {})


@dataclass(frozen=True, slots=True)
class Address:
    """Where a cluster is, and the token that it wants where that is known."""

    host_port: str
    token: str = ""


def check_package() -> None:
    """UnavailableError: Ray is not installed here."""
    if find_spec("ray") is None:
        raise UnavailableError("scale.ray needs the package ray, which is not installed: pip install 'podsrl[ray]'")


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
    with joined(Address(option)):
        check_room(option, num_actors, need)
        _check_code(option, need)


def probe(option: str) -> None:
    """UsageError: `option` is no "HOST:PORT", or nothing that speaks gRPC answers there within seconds."""
    host, _, port = option.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"scale.ray = {option!r}: wanted 'local', or the HOST:PORT that `ray start --head` prints")
    try:
        with socket.create_connection((host, int(port)), timeout=PROBE_SECONDS) as connection:
            connection.settimeout(PROBE_SECONDS)
            try:
                connection.sendall(_HTTP2)
                answer = connection.recv(9)
            except OSError:
                answer = b""
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"scale.ray = {option!r}: nothing answers there ({reason}); start a cluster with `ray start --head "
            f"--port={port}`, or take the address that it printed"
        ) from None
    if answer[3:4] != b"\x04":
        raise UsageError(
            f"scale.ray = {option!r}: what answers there is no Ray cluster; wanted the port of `ray start --head` "
            "(6379 unless it was given another one), which is not that of the dashboard (8265)"
        )


@contextmanager
def joined(address: Address) -> Iterator[None]:
    """Be a member of a cluster for a while. UsageError: it cannot be joined, for a reason that the message names."""
    join(address)
    try:
        yield
    finally:
        leave()


def join(address: Address) -> None:
    """Connect this process to a cluster; a connection that the program has already is used, and is not ended later.

    Raises:
        UsageError: it cannot be joined, for a reason that the message names.
    """
    option = address.host_port
    probe(option)
    with _settings(address.token):
        import ray

        if ray.is_initialized():
            return
        try:
            with _silence(), _own_signals():
                _read_token_again()
                ray.init(address=option, namespace="podsrl", log_to_driver=False, configure_logging=False)
        except Exception as error:
            raise UsageError(f"scale.ray = {option!r}: {_reason(error)}") from None
    global _is_joined
    _is_joined = True


_is_joined = False


def leave() -> None:
    """End the connection that `join` made; actors and reservations of this process end with it."""
    global _is_joined
    if _is_joined:
        import ray

        _is_joined = False
        with _own_signals():
            ray.shutdown()


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


def reserve(option: str, num_actors: int, need: Need) -> Any:
    """Reserve places for this process's actors, spread over the nodes.

    Returns:
        A placement group with one bundle per actor. It ends with this process's connection.

    Raises:
        UsageError: others hold the places, and do not give them back within `PLACE_SECONDS`.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    check_room(option, num_actors, need)
    group = placement_group([need.bundle] * num_actors, strategy="SPREAD")
    if not group.wait(PLACE_SECONDS):
        free = ray.available_resources()
        remove_placement_group(group)
        raise UsageError(
            f"scale.ray = {option!r}: {num_actors} generators want {need} each, and within {PLACE_SECONDS:g} s the "
            f"cluster did not have them free: {_amounts(free)} of {_amounts(ray.cluster_resources())} are left; end "
            "what else runs there, or lower scale.generators"
        )
    return group


def describe_nodes(nodes: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """The nodes of the joined cluster and what each has, in one line."""
    nodes = _nodes() if nodes is None else nodes
    each = ", ".join(f"{name.rpartition(' ')[0]} with {_amounts(has)}" for name, has in nodes.items())
    return f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} ({each})"


def _nodes() -> dict[str, Mapping[str, float]]:
    """"HOST ID" of each node that lives -> its resources."""
    import ray

    return {f"{node['NodeManagerAddress']} {node['NodeID']}": node["Resources"] for node in ray.nodes() if node["Alive"]}


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
        raise UsageError(f"scale.ray = {option!r}: the nodes do not run tasks: {_reason(error)}") from None
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


class LocalCluster:
    """A Ray cluster of this machine, in processes below one that ends with this one and leaves nothing behind.

    Args:
        need: what each actor takes.
        num_actors: of the whole run, on this machine.
        store_bytes: of the object store, in shared memory.
        hidden_gpus: so many of the first GPUs are other processes'.

    Raises:
        UsageError: it does not start; the message says why.
    """

    def __init__(self, need: Need, num_actors: int, store_bytes: int, gpus: str | None = None) -> None:
        check_package()
        token = secrets.token_hex(32)  # without one, every user of the machine could run code in the cluster
        options = {
            "num_cpus": need.num_cpus * num_actors,
            "num_gpus": need.num_gpus * num_actors,
            "object_store_memory": store_bytes,
        }
        environment = os.environ | _ENVIRONMENT | _auth(token)
        environment |= {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        start = "from podsrl.scale.generators.ray_keeper import main; main()"
        path = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; {start}"
        self._errors = tempfile.TemporaryFile()
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-c", path, str(os.getpid()), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal is for this process alone
        )
        try:
            self.address = Address(self._answer(), token)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process of the cluster, and remove its files."""
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(START_SECONDS)
        self._keeper.stdout.close()
        self._errors.close()

    def _answer(self) -> str:
        stdout = self._keeper.stdout
        assert stdout is not None
        is_ready = select.select([stdout], [], [], START_SECONDS)[0]
        answer = json.loads(stdout.readline() or "{}") if is_ready else {}
        if "address" in answer:
            return str(answer["address"])
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        reason = answer.get("error") or (last[0] if is_ready and last else f"no answer within {START_SECONDS:g} s")
        raise UsageError(f"scale.ray = 'local': Ray could not start a cluster here: {reason}")


def _auth(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}


@contextmanager
def _settings(token: str) -> Iterator[None]:
    """Ray's environment variables, while it is imported and joined; those that the user set stay."""
    new = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ} | _auth(token)
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _read_token_again() -> None:
    """Ray reads the variables of its token once per process, and the program may have imported it long ago."""
    from ray import _raylet

    _raylet.Config.initialize("")
    _raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Whoever answers the signals goes on to do so; Ray would exit at SIGTERM."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _silence() -> Iterator[None]:
    """Send what native code writes to standard error nowhere: the exception says the same."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _reason(error: BaseException) -> str:
    """Why Ray raised, in one line."""
    text = f"{error} {error.__cause__ or ''}"
    if "Authentication" in text or "Unauthenticated" in text:
        return (
            "the cluster wants another token than this process has: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the "
            "text that `ray get-auth-token` prints on its head node"
        )
    return " ".join(str(error).split())[:500]
