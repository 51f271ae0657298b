"""Joining a Ray cluster and leaving it again, with one line where it cannot be joined."""

from __future__ import annotations

import atexit
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from podsrl.errors import LostGenerator, UnavailableError, UsageError

CONNECT_SECONDS = 3.0
"""Limit for an address to accept a connection, which the system does, however busy the program is."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # it would look for a project around the command
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a process without a GPU keeps CUDA_VISIBLE_DEVICES as it is
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # a cluster that refuses is asked for 3 seconds instead of 20
    "RAY_BACKEND_LOG_LEVEL": "error",
}
"""Of Ray, in this process only while it is imported and joined."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a cluster is, and the token that it wants where that is known."""

    host_port: str
    token: str = ""


def check_package() -> None:
    """UnavailableError: Ray is not installed here."""
    if find_spec("ray") is None:
        raise UnavailableError("scale.ray needs the package ray, which is not installed: pip install 'podsrl[ray]'")


def check_address(option: str, *, connect_seconds: float = CONNECT_SECONDS) -> None:
    """UsageError: `option` is no "HOST:PORT", or nothing listens there."""
    host, _, port = option.rpartition(":")
    host = host.strip("[]")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"scale.ray = {option!r}: wanted 'local', or the HOST:PORT that `ray start --head` prints")
    try:
        socket.create_connection((host, int(port)), timeout=connect_seconds).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnavailableError(
            f"scale.ray = {option!r}: nothing answers there ({reason}); start a cluster with `ray start --head "
            f"--port={port}`, or take the address that it printed"
        ) from None


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
    with _settings(address.token):
        import ray

        if is_there := ray.is_initialized():
            now = ray.get_runtime_context().gcs_address
            if not now.endswith(option[option.rindex(":") :]):
                raise UsageError(f"scale.ray = {option!r}: this process is connected to the Ray cluster {now} already")
        try:
            if not is_there:
                with _own_signals():
                    _read_token_again()
                    ray.init(address=option, namespace="podsrl", log_to_driver=False, configure_logging=False)
            context = ray.get_runtime_context()
            node = next(each for each in ray.nodes() if each["NodeID"] == context.get_node_id())
        except Exception as error:
            raise UsageError(f"scale.ray = {option!r}: {reason_in(error)}") from None
    _needed["the head of the Ray cluster"] = context.gcs_address
    _needed["the Ray node that this process uses"] = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    _joined.append(_joined[0] if _joined else is_there)


_needed: dict[str, str] = {}
"""What the joined cluster cannot be called without -> its address."""


def check_cluster_lives() -> None:
    """LostGenerator: the head of the joined cluster has ended, or the node that this process is connected to.

    Ray itself would end this process: without its node at the next call, without the head after a minute. Only a
    refused connection says so: what is busy answers late.
    """
    for what, address in _needed.items():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        except ConnectionRefusedError:
            gone = f"{what}, {address}, has ended: start a cluster again, and resume"
            raise LostGenerator(gone, is_final=True) from None
        except OSError:
            continue


def lives() -> bool:
    """Whether the joined cluster can still be called."""
    try:
        check_cluster_lives()
    except LostGenerator:
        return False
    return True


_joined: list[bool] = []
"""Calls of `join` without `leave`; whether the connection was there before them."""


def leave() -> None:
    """Undo one `join`. The last one ends the connection that the first one made, with actors and reservations."""
    was_there = _joined.pop()
    if not _joined and not was_there:
        import ray

        if not lives():
            atexit.unregister(ray.shutdown)
            return
        with _own_signals():
            ray.shutdown()


def token_variables(token: str) -> dict[str, str]:
    """Environment variables by which a process has a cluster's token; none without one."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}


@contextmanager
def _settings(token: str) -> Iterator[None]:
    """Ray's environment variables, while it is imported and joined; those that the user set stay."""
    new = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ} | token_variables(token)
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _read_token_again() -> None:
    """Ray reads the variables of its token once per process, and the program may have imported it long ago."""
    _raylet = import_module("ray._raylet")
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
        with suppress(ValueError):  # only the main thread may, and only there Ray does
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def reason_in(error: BaseException) -> str:
    """Why Ray raised, in one line."""
    text = f"{error} {error.__cause__ or ''}"
    if "Authentication" in text or "Unauthenticated" in text:
        return (
            "the cluster wants another token than this process has: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the "
            "text that `ray get-auth-token` prints on its head node"
        )
    return " ".join(str(error).split())[:500]
