"""What goes over the line between a program and its tests."""

from __future__ import annotations

import os
from typing import Any

import pytest

from podsrl.score.sandbox.inside import MAX_MESSAGE, Line, ProgramError, decode, encode, exception, renew

PLAIN = [
    None,
    True,
    False,
    0,
    -(10**5000),
    1.5,
    float("inf"),
    complex(1, -2),
    "ä\ud800",
    b"\0\xff",
    [1, [2, ()]],
    (1,),
    {1, "a"},
    frozenset({2}),
    {"k": [None], (1, 2): {}},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_come_as_they_were_sent(value: Any) -> None:
    found = decode(encode(value))
    assert found == value and type(found) is type(value)


def test_of_a_subclass_the_plain_part_is_sent() -> None:
    class Whole(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__
        __index__ = __repr__ = lambda self: 5  # type: ignore[assignment]

    class Text(str):
        def encode(self, *given: Any) -> bytes:  # type: ignore[override]
            return b"other"

    found = decode(encode([Whole(3), Text("text")]))
    assert found == [3, "text"] and [*map(type, found)] == [int, str]


FORMS = [*b" x i i1 i2:1 i-1: l2:N l999999999:N NN o0: S1:l0: i1:g".split(b" "), b"l1:" * 101 + b"N"]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_value_is_refused(form: bytes) -> None:
    with pytest.raises((ValueError, IndexError, KeyError, TypeError)):
        decode(form)


def test_values_that_cannot_be_sent_are_refused() -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="more than 100 values within each other"):
        encode(deep)
    with pytest.raises(TypeError, match="object is no plain value"):
        encode([object()])


def test_renew_changes_in_place() -> None:
    inner, mapping, numbers = [1], {"k": [1], "old": 0}, {1}
    outer = [inner, mapping, numbers, "x"]
    assert renew(outer, [[1, 2], {"k": [3]}, {4}, "y"]) is outer
    assert (inner, mapping, numbers, outer[3]) == ([1, 2], {"k": [3]}, {4}, "y")
    assert renew(inner, [5]) is inner and inner == [5]
    assert renew((1,), (2,)) == (2,)


def test_a_program_raises_python_s_exceptions_or_program_error() -> None:
    assert type(exception("KeyError", "k")) is KeyError
    for name in ("SystemExit", "KeyboardInterrupt", "EOFError", "print", "Own", 5):
        assert type(exception(name, "why")) is ProgramError
    assert str(exception("Own", "why")) == "Own: why"


def test_a_line_refuses_what_is_too_long_and_waits_no_longer_than_it_may() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(ValueError, match="too long to be sent"):
            Line(writer).send(bytes(MAX_MESSAGE + 1))
        with pytest.raises(TimeoutError):
            Line(reader, lambda: 0.01).receive()
        os.write(writer, b"\0\0\0\1T")
        assert Line(reader, lambda: 0.01).receive() == b"T"
        os.write(writer, (MAX_MESSAGE + 1).to_bytes(4, "big"))
        with pytest.raises(EOFError):
            Line(reader).receive()
    finally:
        os.close(writer)
        with pytest.raises(EOFError):
            Line(reader).receive()
        os.close(reader)
