"""On which network interface gloo waits for the processes of other machines.

Left alone, it takes the address of this machine's own name, which on many systems is a loopback address (/etc/hosts).
"""

from __future__ import annotations

import ipaddress
import os
import socket
import warnings

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable of gloo. A value that the user gave stays."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts by which a user means this machine alone."""


def listen_towards(host: str) -> None:
    """Make gloo use the interface whose address reaches `host`, where the run's processes meet."""
    if INTERFACE in os.environ:
        return
    address = _own_address(host)
    if address is None:
        return  # the rendezvous itself will say that it cannot be reached
    if ipaddress.ip_address(address).is_loopback and host not in LOOPBACK:
        warnings.warn(
            f"MASTER_ADDR={host} is the loopback address {address} on this machine, where no other machine reaches it: "
            f"if the run does not begin, set {INTERFACE} to an interface of the network (`ip -br address` lists them)",
            stacklevel=2,
        )
        return
    import psutil

    found = (name for name, each in psutil.net_if_addrs().items() if any(one.address == address for one in each))
    if name := next(found, ""):
        os.environ[INTERFACE] = name


def _own_address(host: str) -> str | None:
    """This machine's address on the way to `host`; nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as route:
            route.connect(address)
            return str(route.getsockname()[0])
    except OSError:
        return None
