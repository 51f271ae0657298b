"""Frames between two ends of a socket."""

from __future__ import annotations

import os
import socket
import threading

from podsrl.scale.generators.wire import Frame, receive, send


def test_frames_of_any_size_arrive_in_order_with_their_descriptors() -> None:
    ours, theirs = socket.socketpair()
    large = os.urandom(3 << 20)  # more than a socket holds at once
    reading, writing = os.pipe()

    def talk() -> None:
        send(ours, {"call": "generate", "text": "ünï"}, b"abc")
        send(ours, {}, b"", writing)
        send(ours, {"n": 0.1}, large)
        ours.close()

    with theirs:
        thread = threading.Thread(target=talk)
        thread.start()
        assert receive(theirs) == Frame({"call": "generate", "text": "ünï"}, b"abc")
        second = receive(theirs)
        assert second is not None and second.descriptor is not None
        os.write(second.descriptor, b"through")
        assert os.read(reading, 100) == b"through" and not os.get_inheritable(second.descriptor)
        assert receive(theirs) == Frame({"n": 0.1}, large)
        assert receive(theirs) is None
        thread.join()
        for descriptor in (reading, writing, second.descriptor):
            os.close(descriptor)


def test_an_end_within_a_frame_is_an_end() -> None:
    ours, theirs = socket.socketpair()
    whole, _ = socket.socketpair()
    with theirs, whole:
        ours.sendall((100).to_bytes(8, "little") + (7).to_bytes(8, "little") + b"{")
        ours.close()
        assert receive(theirs) is None
