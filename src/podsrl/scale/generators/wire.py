"""Messages between a run's process and a generator's process, over a Unix socket: a head of JSON, and bytes.

A frame is two lengths (little-endian, 8 bytes each), the head and the body; a file descriptor may come with it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

_LENGTHS = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    head: dict[str, Any]
    body: bytes = b""
    descriptor: int | None = None
    """A file descriptor that the receiver owns."""


def send(end: socket.socket, head: dict[str, Any], body: bytes = b"", descriptor: int | None = None) -> None:
    """Send one frame. OSError: the other end is closed, or did not read within the socket's time limit."""
    text = json.dumps(head).encode()
    data = _LENGTHS.pack(len(text), len(body)) + text
    if descriptor is not None:
        socket.send_fds(end, [data[:1]], [descriptor])
        data = data[1:]
    end.sendall(data)
    if body:
        end.sendall(body)


def receive(end: socket.socket) -> Frame | None:
    """Wait for one frame; None: the other end is closed. OSError: the connection broke."""
    first, descriptors, _, _ = socket.recv_fds(end, 1, 1)
    if not first:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    rest = _read(end, _LENGTHS.size - 1)
    if rest is None:
        return None
    text_bytes, body_bytes = _LENGTHS.unpack(first + rest)
    text, body = _read(end, text_bytes), _read(end, body_bytes)
    if text is None or body is None:
        return None
    return Frame(json.loads(text), bytes(body), descriptors[0] if descriptors else None)


def _read(end: socket.socket, count: int) -> bytearray | None:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = end.recv_into(view)
        if not got:
            return None
        view = view[got:]
    return data
