"""Messages between two ends of a socket: whole, in order, bounded, and without waiting where nobody wants to wait."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from podsrl.lib.channel import Channel, Frame, Malformed

HEADER = struct.Struct("<?QQ")


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    found = Channel(ours), Channel(theirs, takes_descriptors=True)
    yield found
    for end in found:
        end.close()


@pytest.fixture
def raw() -> Iterator[tuple[Channel, socket.socket]]:
    """The other end writes what it likes."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        yield channel, theirs
    channel.close()


def test_messages_of_any_size_arrive_in_order_with_their_descriptors(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    large = os.urandom(3 << 20)  # more than a socket holds at once
    reading, writing = os.pipe()

    def talk() -> None:
        ours.send({"call": "generate", "text": "ünï \ud83d\ude00\ud800"}, b"abc")
        ours.send(descriptor=writing)
        ours.send({"n": 0.1}, large)
        ours.send([], descriptor=writing)
        ours.close()

    thread = threading.Thread(target=talk)
    thread.start()
    assert theirs.receive() == Frame({"call": "generate", "text": "ünï \ud83d\ude00\ud800"}, b"abc")
    second = theirs.receive()
    assert second is not None and second.head is None and second.descriptor is not None
    os.write(second.descriptor, b"through")
    assert os.read(reading, 100) == b"through" and not os.get_inheritable(second.descriptor)
    assert theirs.receive() == Frame({"n": 0.1}, large)
    last = theirs.receive()
    assert last is not None and last.head == [] and last.descriptor not in (None, second.descriptor)
    assert theirs.receive() is None
    thread.join()
    for descriptor in (reading, writing, second.descriptor, last.descriptor):
        os.close(descriptor)  # type: ignore[arg-type]  # looked at above


def test_neither_end_waits_for_the_other(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.put(body=b"x" * 10_000_000)  # nobody reads
    assert ours.has_unsent
    assert list(ours.read()) == []
    with pytest.raises(TimeoutError):
        ours.send("more", seconds=0.01)
    with pytest.raises(TimeoutError):
        ours.receive(0.01)
    theirs.put([1])
    theirs.put([2])
    assert [frame.head for frame in ours.read()] == [[1], [2]]


def test_a_message_that_comes_in_parts_is_whole(raw: tuple[Channel, socket.socket]) -> None:
    channel, other = raw
    data = HEADER.pack(False, 3, 2) + b"[7]ab"
    for place in range(len(data)):
        assert list(channel.read()) == []
        other.sendall(data[place : place + 1])
    assert channel.receive(0.0) == Frame([7], b"ab")


def test_what_is_no_message_is_refused_and_what_came_before_is_kept(raw: tuple[Channel, socket.socket]) -> None:
    channel, other = raw
    channel.max_bytes = 10
    other.sendall(HEADER.pack(False, 3, 0) + b"[3]" + HEADER.pack(False, 8, 3))
    found = channel.read()
    assert next(found).head == [3]
    with pytest.raises(Malformed, match="over 10 bytes"):
        next(found)


@pytest.mark.parametrize("text", [b"\x80\x04N.", b"{", b"[" * 60_000, b"1" * 5000, b"\xff"])
def test_a_head_that_is_no_json_is_refused(raw: tuple[Channel, socket.socket], text: bytes) -> None:
    channel, other = raw
    other.sendall(HEADER.pack(False, len(text), 0) + text)
    with pytest.raises(Malformed):
        channel.receive()


def test_descriptors_that_nobody_wants_are_closed(raw: tuple[Channel, socket.socket]) -> None:
    channel, other = raw
    reading, writing = os.pipe()
    socket.send_fds(other, [HEADER.pack(True, 0, 0)], [writing])
    os.close(writing)
    with pytest.raises(Malformed):
        channel.receive()
    assert os.read(reading, 1) == b""  # nobody holds the other end
    os.close(reading)


def test_an_end_within_a_message_is_an_end(raw: tuple[Channel, socket.socket]) -> None:
    channel, other = raw
    other.sendall(HEADER.pack(False, 100, 7) + b"{")
    other.close()
    assert channel.receive() is None
    with pytest.raises(OSError):
        channel.send([1])
