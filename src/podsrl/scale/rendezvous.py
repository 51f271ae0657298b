"""Where the launchers of several machines meet: the address, who listens there, and who waits for it."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from podsrl.errors import UsageError
from podsrl.lib.callbacks import Say
from podsrl.scale.interface import LOOPBACK

_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
"""Environment variable that torch reads when it is imported."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the nodes this is, and where they meet."""

    rank: int
    """0 .. num_nodes - 1; node 0 holds the rendezvous."""
    num_nodes: int
    host: str
    port: int
    seconds: float
    """How long to wait for the other nodes."""


def find_place(num_nodes: int, rank: int | None, rendezvous: str | None, seconds: float) -> Place:
    """Check the options that name a node.

    Raises:
        UsageError: one is missing, or out of its range.

    Example:
        >>> find_place(2, 1, "10.0.0.1:29500", 600.0)
        Place(rank=1, num_nodes=2, host='10.0.0.1', port=29500, seconds=600.0)
    """
    if rendezvous is None or rank is None:
        raise UsageError(
            f"--nodes {num_nodes} wants --rendezvous HOST:PORT and --node-rank R: HOST is an address of node 0 that "
            f"every node reaches, PORT a free port there, R is 0 .. {num_nodes - 1} and another on every node"
        )
    if not 0 <= rank < num_nodes:
        raise UsageError(f"--node-rank {rank}: wanted 0 .. {num_nodes - 1}, since --nodes is {num_nodes}")
    host, _, port = rendezvous.rpartition(":")
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--rendezvous {rendezvous}: wanted HOST:PORT, e.g. 10.0.0.1:29500")
    return Place(rank, num_nodes, host.strip("[]"), int(port), seconds)


def store_type() -> Any:
    """torch's TCPStore."""
    is_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, "FATAL")  # else each lost connection is logged with a C++ trace of many lines
    from torch import distributed

    if not is_set:
        del os.environ[_LOG_LEVEL]
    return distributed.TCPStore  # type: ignore[attr-defined]


def listen(place: Place) -> socket.socket:
    """Listen at the rendezvous address, and only there."""
    what = f"--rendezvous {place.host}:{place.port}"
    try:
        family, kind, _, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        cure = "HOST has to be an address of node 0, which this launcher is, and PORT free there"
        raise UsageError(f"{what}: cannot listen there ({error.strerror or error}); {cure}") from None
    found = ipaddress.ip_address(address[0])
    if found.is_unspecified or (found.is_loopback and place.host not in LOOPBACK):
        listener.close()
        raise UsageError(
            f"{what}: this machine takes {place.host} for {address[0]}, where no other machine reaches it (see "
            "/etc/hosts); give an address of its network, as `ip -br address` lists them"
        )
    return listener


def wait_for_listener(place: Place, deadline: float, say: Say) -> None:
    """Wait until something listens at the rendezvous address."""
    what, has_said = f"{place.host}:{place.port}", False
    while True:
        try:
            socket.create_connection((place.host, place.port), timeout=5.0).close()
            return
        except OSError as error:
            why = error.strerror or str(error)
        if time.monotonic() > deadline:
            raise UsageError(
                f"--rendezvous {what} did not answer within --join-seconds {place.seconds:g} ({why}): start node 0 "
                "there, and let the nodes through each other's firewalls"
            )
        if not has_said:
            say(f"waiting up to {place.seconds:g} s for node 0 at {what} ({why})")
            has_said = True
        time.sleep(0.5)
