"""Runs a program on its tests: which of them has it passed?

What the tests want stays out of the program's sandbox. Of pairs, the outputs are compared here. Other tests run in a
sandbox of their own (`inside.judge`), which calls the program's functions in the other one and gets plain values back.
"""

from __future__ import annotations

import ast
import builtins
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from podsrl.errors import UsageError
from podsrl.score.sandbox.inside import MAX_MESSAGE, Line, decode, encode
from podsrl.score.sandbox.process import BWRAP, REMOTE, Limits, Sandbox

_MAX_TESTS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTests:
    """The tests of a task, of one kind."""

    asserts: tuple[str, ...] = ()
    """Statements, each a test, which fails where it raises."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Standard input, and the output that is wanted of it; white space at the ends of lines and of the whole does not
    count."""
    text: str = ""
    """A file: unittest's classes, functions `test_*`, or `check(candidate)`; without any of them it is one test."""
    setup: str = ""
    """Statements that come before `asserts` or `text`."""
    entry_point: str = ""
    """The function that `check` gets; a name of the program even where a built-in function or a module has it too."""

    @property
    def names(self) -> list[str]:
        """What the tests take from the program: what they neither define nor import, and Python does not have."""
        return [name for name, is_module in self._unknown.items() if not is_module]

    @property
    def modules(self) -> list[str]:
        """Modules of the standard library that the tests use without importing them."""
        return [name for name, is_module in self._unknown.items() if is_module]

    @property
    def _unknown(self) -> dict[str, bool]:
        """Name -> whether it is a module's. One that is never followed by a dot is a function's."""
        free, dotted = _free_names("\n".join((self.setup, *self.asserts, self.text)))
        found = {name for name in free if not hasattr(builtins, name)} | ({self.entry_point} - {""})
        modules = (dotted & sys.stdlib_module_names) - {self.entry_point}
        return {name: name in modules for name in sorted(found)}

    def check(self) -> None:
        """UsageError: there are none, one is no Python, or they are too long to be sent."""
        if not (self.asserts or self.pairs or self.text.strip()):
            raise UsageError("there are no tests")
        for statement in (self.setup, *self.asserts, self.text):
            try:
                compile(statement, "<test>", "exec")
            except (SyntaxError, ValueError) as error:
                raise UsageError(f"the test {statement[:60]!r} is no Python: {error}") from error
        inputs = (("an input has", given) for given, _ in self.pairs)
        for what, sent in (*inputs, ("together they have", _content(self))):
            if (size := len(encode(sent))) > MAX_MESSAGE:
                raise UsageError(f"{what} {size:,} bytes; wanted at most {MAX_MESSAGE:,}: leave out what is longer")


def run_tests(program: str, tests: ProgramTests, *, limits: Limits = Limits(), kind: str = BWRAP) -> list[bool]:  # noqa: B008
    """Whether a program passes each of its tests; those that the limits left no time for have failed.

    A file of tests that a program cannot be tried on counts as one test. PodsError: the service of the remote kind
    fails.

    Example:
        >>> tests = ProgramTests(asserts=("assert double(2) == 4", "assert double(3) == 6"))
        >>> run_tests("def double(x): return x * x", tests, kind="weaker")
        [True, False]
    """
    if kind == REMOTE:
        return _elsewhere(program, tests, limits)
    end = time.monotonic() + limits.seconds
    results, number = list[bool](), len(tests.pairs or tests.asserts) or 1
    with ExitStack() as stack:
        verdicts = _pairs if tests.pairs else _others
        try:
            for is_passed in verdicts(stack, program, tests, limits, kind, lambda: end - time.monotonic()):
                if isinstance(is_passed, bool):
                    results.append(is_passed)
                else:
                    number = is_passed
                if len(results) >= number:
                    break
        except (EOFError, TimeoutError, ValueError):
            pass
    return results[:number] + [False] * (number - len(results))


def _pairs(
    stack: ExitStack, program: str, tests: ProgramTests, limits: Limits, kind: str, left: Callable[[], float]
) -> Iterator[bool | int]:
    """Whether each has passed."""
    ours, theirs = _sockets(stack)
    _start(stack, "run", [theirs], limits, kind)
    line = Line(ours.fileno(), left)
    line.send(encode(program))
    for given, wanted in tests.pairs:
        line.send(encode(given))
        yield _is_wanted(_value(line), wanted)


def _others(
    stack: ExitStack, program: str, tests: ProgramTests, limits: Limits, kind: str, left: Callable[[], float]
) -> Iterator[bool | int]:
    """The number of tests, and then whether each has passed."""
    ours, theirs = _sockets(stack)
    of_tests, of_program = _sockets(stack)
    of_tests.setblocking(True)
    _start(stack, "serve", [of_program], limits, kind)
    _start(stack, "judge", [theirs, of_tests], limits, kind)
    line = Line(ours.fileno(), left)
    line.send(encode(program))
    line.send(encode(_content(tests)))
    number = _value(line)
    if not _is_number(number):
        return
    yield number
    for _ in range(number):
        yield _value(line) is True


def _elsewhere(program: str, tests: ProgramTests, limits: Limits) -> list[bool]:
    """The results of `run_tests` from a service."""
    from podsrl.score.sandbox.remote import judged_there, printed_there

    if tests.pairs:
        found = printed_there(program, [given for given, _ in tests.pairs], limits)
        return [_is_wanted(value, wanted) for value, (_, wanted) in zip(found, tests.pairs, strict=True)]
    number, *passed = judged_there(program, _content(tests), limits) or [0]
    number = number if _is_number(number) else len(tests.asserts) or 1
    results = [is_passed is True for is_passed in passed[:number]]
    return results + [False] * (number - len(results))


def _content(tests: ProgramTests) -> dict[str, Any]:
    """The tests as `inside.judge` gets them."""
    content: dict[str, Any] = {"asserts": [*tests.asserts], "text": tests.text, "setup": tests.setup}
    return content | {"names": tests.names, "modules": tests.modules, "entry": tests.entry_point}


def _is_number(value: object) -> bool:
    """Of tests."""
    return type(value) is int and 0 < value <= _MAX_TESTS


def _is_wanted(value: object, wanted: str) -> bool:
    """Whether a run has ended well, and printed that."""
    match value:
        case (0, bytes(output), False):
            return _lines(output.decode("utf-8", "replace")) == _lines(wanted)
    return False


def _sockets(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Two ends: one for this process, without waiting, and one to hand over."""
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)
    stack.enter_context(theirs)
    ours.setblocking(False)
    return ours, theirs


def _start(stack: ExitStack, role: str, ends: Sequence[socket.socket], limits: Limits, kind: str) -> None:
    """Start a sandbox that has these ends alone, and dies with the stack."""
    sandbox = Sandbox(role, [end.fileno() for end in ends], limits, kind)
    stack.callback(sandbox.kill)
    for end in ends:
        end.close()


def _value(line: Line) -> Any:
    """What a sandbox sends; ValueError: nothing that can be read."""
    form = line.receive()
    try:
        return decode(form)
    except Exception as error:
        raise ValueError("no value") from error


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _free_names(text: str) -> tuple[set[str], set[str]]:
    """Names that a text reads and nowhere binds; and names before a dot."""
    read, bound, dotted = set[str](), set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Attribute(value=ast.Name(id=name)):
                dotted.add(name)
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case ast.ClassDef(name=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add(other or name.partition(".")[0])
    return read - bound, dotted
