"""What runs inside of a sandbox. Python gets this file as text (`python -c`), so it imports only what starts fast.

    serve   holds a program's functions, and calls them for the tests
    judge   holds the tests, and calls the program's functions in the other sandbox: it alone says what has passed
    run     runs a program once for each standard input, and gives what it printed
    taped   does one of these on a service, which gives nothing but what a whole program printed (`Tape`)

`serve` and `judge` share nothing but a socket. Over it go plain values (None, bool, int, float, complex, str, bytes,
list, tuple, set, frozenset, dict), and numbers that stand for objects of the other side: `Remote`. So a program never
sees what a test compares its values with, and no object of its own takes part in a comparison. All that it can do to
the tests is to send values, which are read without calling anything.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

MAX_MESSAGE = 4 << 20
"""Bytes; a longer one ends the connection."""
MAX_DEPTH = 100
"""Of values within values."""
_CONTAINERS: "dict[str, Any]" = {"l": list, "t": tuple, "S": set, "Z": frozenset}


class ProgramError(Exception):
    """The program raised what is no built-in exception."""


class Line:
    """Messages over a socket: four bytes of length, then a value. `seconds_left` bounds each wait, where it is given.

    EOFError: the other side is gone, or sent what is no message. TimeoutError: the time is over.
    """

    def __init__(self, descriptor: int, seconds_left: "Any" = None) -> None:
        self._descriptor, self._seconds_left = descriptor, seconds_left

    def send(self, form: bytes) -> None:
        if len(form) > MAX_MESSAGE:
            raise ValueError("too long to be sent")
        rest = memoryview(len(form).to_bytes(4, "big") + form)
        while rest:
            self._wait(is_writing=True)
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                continue
            except OSError:
                raise EOFError from None

    def receive(self) -> bytes:
        length = int.from_bytes(self._read(4), "big")
        if length > MAX_MESSAGE:
            raise EOFError
        return self._read(length)

    def _read(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            self._wait(is_writing=False)
            try:
                part = os.read(self._descriptor, min(length - len(found), 1 << 16))
            except BlockingIOError:
                continue
            except OSError:
                raise EOFError from None
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def _wait(self, is_writing: bool) -> None:
        if self._seconds_left is None:
            return
        import select

        ends = [self._descriptor]
        left = self._seconds_left()
        if left <= 0 or not any(select.select([] if is_writing else ends, ends if is_writing else [], [], left)):
            raise TimeoutError


class Tape:
    """Takes the place of a `Line` where the two sides never run at once: each runs again whenever the other has spoken.

    What is said is written down, as one line with `mark`. Where `heard` is at its end, the process ends, so that what
    runs cannot tell. Tests go on with a notice ("w") and EOFError: what they ask from there on is what they will
    probably ask next.

    Args:
        heard: all that the other side has said so far.
        guesses: what it will probably answer, by what is asked; one that is taken is written down ("g").
        is_gone: it will say no more.
        goes_on: these are the tests.
    """

    def __init__(
        self,
        descriptor: int,
        mark: str,
        heard: "list[bytes]",
        guesses: "dict[bytes, bytes] | None" = None,
        is_gone: bool = False,
        goes_on: bool = False,
    ) -> None:
        self._descriptor, self._mark, self._heard, self._guesses = descriptor, mark, heard, guesses or {}
        self._is_gone, self._goes_on, self._asked = is_gone, goes_on, b""

    def send(self, form: bytes) -> None:
        self._asked = form
        self._note(self._mark, form)

    def receive(self) -> bytes:
        if self._heard:
            return self._heard.pop(0)
        if self._asked in self._guesses:
            guess = self._guesses[self._asked]
            self._note("g", guess)
            return guess
        if not self._goes_on:
            os._exit(0)
        if not self._is_gone:
            self._is_gone, self._guesses = True, {}
            self._note("w", b"")
        raise EOFError

    def _note(self, mark: str, form: bytes) -> None:
        import binascii

        rest = memoryview(mark.encode() + binascii.b2a_base64(form))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def encode(value: "Any", refer: "Any" = None, depth: int = 0) -> bytes:
    """Write a value; `refer` writes what is not plain. Of a plain type's subclass the plain part is written."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} values within each other")
    if value is None or value is True or value is False:
        return b"N" if value is None else b"T" if value else b"F"
    if refer is not None and type(value) is Remote:
        return refer(value)  # type: ignore[no-any-return]
    for kind, tag in ((int, "i"), (float, "f"), (complex, "c"), (str, "s"), (bytes, "b")):
        if isinstance(value, kind):
            return _text(tag, _WRITE[tag](value))
    for tag, container in _CONTAINERS.items():
        if isinstance(value, container):
            items = [encode(item, refer, depth + 1) for item in value]
            return f"{tag}{len(items)}:".encode() + b"".join(items)
    if isinstance(value, dict):
        pairs = [encode(part, refer, depth + 1) for pair in value.items() for part in pair]
        return f"d{len(value)}:".encode() + b"".join(pairs)
    if refer is None:
        raise TypeError(f"{type(value).__name__} is no plain value")
    return refer(value)  # type: ignore[no-any-return]


_WRITE: "dict[str, Any]" = {
    "i": lambda value: format(int.__index__(value), "x").encode(),  # no limit of digits, and linear
    "f": lambda value: float.__repr__(value).encode(),
    "c": lambda value: f"{value.real!r} {value.imag!r}".encode(),
    "s": lambda value: str.encode(value, "utf-8", "surrogatepass"),
    "b": bytes,
}
_READ: "dict[str, Any]" = {
    "i": lambda data: int(data, 16),
    "f": float,
    "c": lambda data: complex(*map(float, data.split())),
    "s": lambda data: data.decode("utf-8", "surrogatepass"),
    "b": bytes,
}


def _text(tag: str, data: bytes) -> bytes:
    return f"{tag}{len(data)}:".encode() + data


def decode(data: bytes, dereference: "Any" = None) -> "Any":
    """Read a value; any exception: it is none. `dereference(tag, number)` gives objects."""
    value, end = _decode(data, 0, dereference, 0)
    if end != len(data):
        raise ValueError("more than one value")
    return value


def _decode(data: bytes, at: int, dereference: "Any", depth: int) -> "tuple[Any, int]":
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    tag = chr(data[at])
    if tag in "NTF":
        return {"N": None, "T": True, "F": False}[tag], at + 1
    colon = data.index(b":", at, at + 12)
    number, at = int(data[at + 1 : colon]), colon + 1
    if number < 0:
        raise ValueError("negative")
    if tag in _READ:
        if at + number > len(data):
            raise ValueError("cut")
        return _READ[tag](data[at : at + number]), at + number
    if tag in "oy" and dereference is not None:
        return dereference(tag, number), at
    items = []
    for _ in range(2 * number if tag == "d" else number):
        item, at = _decode(data, at, dereference, depth + 1)
        items.append(item)
    if tag == "d":
        return dict(zip(items[::2], items[1::2])), at  # noqa: B905  # of older Pythons too
    return _CONTAINERS[tag](items), at


class Remote:
    """An object of the other side. It is called, read and walked through there; it is never compared."""

    __slots__ = ("_peer", "_place")

    def __init__(self, peer: "Peer", place: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_place", place)

    def __call__(self, *given: "Any", **named: "Any") -> "Any":
        return self._peer.call(self, [list(given), named])

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("get", name)

    def __setattr__(self, name: str, value: "Any") -> None:
        self._ask("set", name, value)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise TypeError("tests compare plain values; this is an object of the program's own")

    def __hash__(self) -> int:
        return hash(self._place)

    def __iter__(self) -> "Any":
        return self._ask("iter")

    def __next__(self) -> "Any":
        return self._ask("next")

    def __len__(self) -> int:
        return self._ask("len")  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return self._ask("bool")  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return self._ask("str")  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return self._ask("repr")  # type: ignore[no-any-return]

    def __getitem__(self, key: "Any") -> "Any":
        return self._ask("getitem", key)

    def __setitem__(self, key: "Any", value: "Any") -> None:
        self._ask("setitem", key, value)

    def __delitem__(self, key: "Any") -> None:
        self._ask("delitem", key)

    def _ask(self, what: str, *given: "Any") -> "Any":
        return self._peer.ask(what, self, *given)


class Peer:
    """One end of the line between the tests and the program.

    Args:
        objects: what the other side may name, by its place; more come as values are sent.
        is_program: it does what is asked of its objects. The other one lets them be called alone, and hands over no
            objects but functions: a program must not get hold of the tests by the attributes of something.
    """

    def __init__(self, line: "Line | Tape", objects: "list[Any]", is_program: bool) -> None:
        self._line, self._objects, self._is_program = line, objects, is_program

    def ask(self, what: str, *given: "Any") -> "Any":
        """Ask for something, and answer questions until the answer is there. It raises what the other side raised."""
        return self._ask(what, given)[0]

    def call(self, function: "Any", arguments: "list[Any]") -> "Any":
        """Call a function there; lists, dicts and sets that it changed are changed here."""
        value, after = self._ask("call", (function, arguments))
        if after is not None:
            renew(arguments, after)
        return value

    def _ask(self, what: str, given: "tuple[Any, ...]") -> "tuple[Any, Any]":
        self._line.send(self.form(what, given))
        while True:
            kind, *rest = self._decode(self._line.receive())
            if kind == "ask":
                self._answer(*rest)
            elif kind == "value":
                value, after = rest
                return value, after
            else:
                name, text = rest
                raise exception(name, text)

    def form(self, what: str, given: "tuple[Any, ...]") -> bytes:
        """How something is asked for."""
        return self._encode(("ask", what, given))

    def serve(self) -> "NoReturn":
        """Answer questions until the other side is gone, which EOFError says."""
        while True:
            kind, *rest = self._decode(self._line.receive())
            if kind == "ask":
                self._answer(*rest)

    def _answer(self, what: str, given: "tuple[Any, ...]") -> None:
        try:
            form = self._encode(("value", *self._do(what, given)))
            if len(form) > MAX_MESSAGE:
                raise ValueError("too long to be sent")
        except EOFError:
            raise
        except BaseException as error:  # SystemExit too
            form = encode(("error", type(error).__name__, _message(error)))
        self._line.send(form)

    def _do(self, what: str, given: "tuple[Any, ...]") -> "tuple[Any, Any]":
        if what == "call":
            function, arguments = given
            before = self._encode(arguments)
            positional, named = arguments
            value = function(*positional, **named)
            return value, arguments if self._encode(arguments) != before else None
        if not self._is_program:
            raise PermissionError("only functions of a test can be called")
        return _DO[what](*given), None

    def _encode(self, value: "Any") -> bytes:
        return encode(value, self._refer)

    def _refer(self, value: "Any") -> bytes:
        if type(value) is Remote:
            return f"y{value._place}:".encode()
        if not (self._is_program or callable(value)):
            raise TypeError(f"a test hands over a {type(value).__name__}; wanted plain values or functions")
        for place, known in enumerate(self._objects):
            if known is value:
                return f"o{place}:".encode()
        self._objects.append(value)
        return f"o{len(self._objects) - 1}:".encode()

    def _decode(self, form: bytes) -> "Any":
        return decode(form, lambda tag, place: Remote(self, place) if tag == "o" else self._objects[place])


def _names(module: "Any", wanted: "list[str]") -> "dict[str, Any]":
    return {name: getattr(module, name) for name in wanted if hasattr(module, name)}


_DO: "dict[str, Any]" = {
    "names": _names,
    "get": getattr,
    "set": setattr,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "getitem": lambda value, key: value[key],
    "setitem": lambda value, key, item: value.__setitem__(key, item),
    "delitem": lambda value, key: value.__delitem__(key),
}


def renew(old: "Any", new: "Any") -> "Any":
    """Give a value the content of another: in place, as deep as the kinds and lengths are the same."""
    if type(old) is not type(new) or type(old) not in (list, dict, set):
        return new
    if isinstance(old, list):
        old[:] = [renew(*pair) for pair in zip(old, new)] if len(old) == len(new) else new  # noqa: B905
    elif isinstance(old, dict):
        items = {key: renew(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(items)
    else:
        old.clear()
        old.update(new)
    return old


def exception(name: "Any", text: "Any") -> Exception:
    """The built-in exception of that name; no other leaves a program."""
    import builtins

    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, (EOFError, UnicodeError)):
        return kind(text)
    return ProgramError(f"{name}: {text}")


def _message(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except BaseException:
        return ""


def limit(limits: "list[int]") -> None:
    """Lower this process's own limits, for good: of memory, processes, file size and CPU time; 0: as it is."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU)
    for kind, most in [*zip(kinds, limits), (resource.RLIMIT_NOFILE, 64)]:  # noqa: B905
        if not most:
            continue
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # in the weaker mode; a sandbox has no /proc
            file.write("1000")
    except OSError:
        pass


def taped() -> None:
    """Do what standard input says, in its one line, with `Tape`s that write to standard output."""
    import binascii

    role, name, limits, content = decode(binascii.a2b_base64(sys.stdin.buffer.read()))
    output, nothing = os.dup(1), os.open("/dev/null", os.O_RDWR)
    os.write(output, name.encode() + b"\n")
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    max_output, *limits = limits
    limit(limits)
    if role == "serve":
        serve(Tape(output, "s", content))
    elif role == "judge":
        said, heard, guesses, is_gone = content
        judge(Tape(output, "v", said), Tape(output, "s", heard, guesses, is_gone, goes_on=True))
    else:
        run(Tape(output, "s", content), max_output)


def load(code: str, name: str) -> "Any":
    """A program as a module of that name."""
    import builtins

    module = type(sys)(name)
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)  # which Python does not start with
    sys.modules[name] = module
    exec(compile(code, "<program>", "exec"), module.__dict__)
    return module


def serve(line: "Line | Tape") -> None:
    """Load the program that comes first, then answer the tests."""
    code = decode(line.receive())
    try:
        module: Any = load(code, "solution")
    except BaseException as error:
        form = encode(("error", type(error).__name__, _message(error)))
        line.receive()
        line.send(form)
        return
    Peer(line, [module], is_program=True).serve()


def judge(line: "Line | Tape", program: "Line | Tape") -> None:
    """Get a program and its tests; run these, and tell how many there are and then whether each has passed."""
    program.send(line.receive())
    tests = decode(line.receive())
    peer = Peer(program, [], is_program=False)
    module = Remote(peer, 0)
    space: dict[str, Any] = {"__name__": "tests", "__builtins__": __builtins__}
    try:
        given = peer.ask("names", module, tests["names"])
        space.update({name: given[name] for name in tests["names"] if name in given})
    except Exception:  # the program cannot be loaded
        line.send(encode(0))
        return
    sys.modules["solution"] = Solution(module)
    for name in tests["modules"]:
        try:
            space[name] = __import__(name)
        except ImportError:  # it is of another system's Python; what needs it fails
            continue
    try:
        exec(compile(tests["setup"], "<setup>", "exec"), space)
        cases = asserts(tests["asserts"], space) if tests["asserts"] else in_text(tests["text"], space, tests["entry"])
        number, passed = next(cases), cases
    except BaseException:
        line.send(encode(0))
        return
    line.send(encode(number))
    for is_passed in passed:
        line.send(encode(bool(is_passed)))


class Solution(type(sys)):  # type: ignore[misc]
    """What the tests get from `import solution`."""

    def __init__(self, remote: Remote) -> None:
        super().__init__("solution")
        self.__dict__["_remote"] = remote

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.__dict__["_remote"], name)


def asserts(statements: "list[str]", space: "dict[str, Any]") -> "Iterator[Any]":
    """The number of statements, then whether each has passed."""
    yield len(statements)
    for statement in statements:
        yield _has_passed(lambda statement=statement: exec(compile(statement, "<test>", "exec"), space))


def in_text(text: str, space: "dict[str, Any]", entry: str) -> "Iterator[Any]":
    """The same for a file: unittest's tests, functions `test_*` and `check(candidate)`, or the file as one test."""
    exec(compile(text, "<tests>", "exec"), space)
    suites: list[Any] = []
    if "unittest" in sys.modules:
        import unittest

        loader = unittest.TestLoader()
        classes = [each for each in space.values() if isinstance(each, type) and issubclass(each, unittest.TestCase)]
        suites = [loader.loadTestsFromTestCase(each) for each in classes]
    # A function of the program may be called test_… too.
    own = {name: each for name, each in space.items() if type(each) is not Remote}
    functions = [each for name, each in own.items() if name.startswith("test_") and callable(each)]
    if entry in space and callable(space.get("check")):
        functions.append(lambda: space["check"](space[entry]))
    number = sum(suite.countTestCases() for suite in suites) + len(functions)
    yield number or 1
    if not number:
        yield True
    for function in functions:
        yield _has_passed(function)
    for suite in suites:
        yield from _of_suite(suite)


def _of_suite(suite: "Any") -> "Iterator[Any]":
    import unittest

    passed = []

    class Result(unittest.TestResult):
        def startTest(self, test: "Any") -> None:
            super().startTest(test)
            self.before = self._num_bad()

        def stopTest(self, test: "Any") -> None:
            super().stopTest(test)
            passed.append(self._num_bad() == self.before)

        def _num_bad(self) -> int:
            return len(self.failures) + len(self.errors) + len(self.skipped) + len(self.unexpectedSuccesses)

    result = Result()
    suite.run(result)
    yield from passed


def _has_passed(call: "Any") -> bool:
    try:
        call()
    except BaseException:
        return False
    return True


def run(line: "Line | Tape", max_output: int) -> None:
    """Run the program that comes first on each input that follows; tell (exit code, output, whether it was cut)."""
    code = decode(line.receive())
    while True:
        line.send(encode(_run(code, decode(line.receive()), max_output)))


def _run(code: str, text: str, max_output: int) -> "tuple[int, bytes, bool]":
    import select
    import signal

    reader, writer = os.pipe()
    given = os.memfd_create("input")
    os.write(given, text.encode("utf-8", "surrogatepass"))
    os.lseek(given, 0, os.SEEK_SET)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setsid()
            os.dup2(given, 0)
            os.dup2(writer, 1)
            os.closerange(3, 1 << 16)
            status = _main(code)
        finally:
            os._exit(status)
    os.close(writer)
    os.close(given)
    os.set_blocking(reader, False)
    output, ended, status = bytearray(), False, 1
    while True:
        ready = select.select([reader], [], [], 0 if ended else 0.02)[0]
        part = os.read(reader, 1 << 16) if ready else b""
        output += part
        if len(output) > max_output or (ended and not part):
            break
        if not ended and not part:
            found, how = os.waitpid(pid, os.WNOHANG)
            ended, status = found == pid, os.waitstatus_to_exitcode(how)
            if ready and not ended:  # it has closed its output
                _, how = os.waitpid(pid, 0)
                ended, status = True, os.waitstatus_to_exitcode(how)
    os.close(reader)
    try:  # noqa: SIM105  # contextlib starts slowly
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    if not ended:
        os.waitpid(pid, 0)
    return status, bytes(output[:max_output]), len(output) > max_output


def _main(code: str) -> int:
    """Run a program as Python runs a script. Its exit code."""
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    status = 0
    try:
        load(code, "__main__")
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    sys.stdout.flush()
    return status & 255


if __name__ == "__main__":
    # "taped", or ROLE DESCRIPTOR OTHER MAX_OUTPUT MEMORY PROCESSES FILE_SIZE CPU_SECONDS
    role, *numbers = sys.argv[1:]
    sys.argv = [""]
    try:
        if role == "taped":
            taped()
        else:
            first, second, max_output, *limits = map(int, numbers)
            limit(limits)
            if role == "serve":
                serve(Line(first))
            elif role == "judge":
                judge(Line(first), Line(second))
            else:
                run(Line(first), max_output)
    except EOFError:
        pass
    os._exit(0)  # without waiting for a program's threads
