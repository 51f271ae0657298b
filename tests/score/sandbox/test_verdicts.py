"""Which tests a program passes: of each kind, with what programs and tests may do to each other, and within limits."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.score.sandbox import BWRAP, WEAKER, Limits, ProgramTests, run_tests
from podsrl.score.sandbox.inside import MAX_MESSAGE

PROGRAM = """
import math

LIMIT = 7

def double(x): return x * 2
def named(list, *, times=2): return list * times
def sort_here(rows, key=None): rows.sort(key=key)
def grow(grid): grid[0].append(1); grid[1]["k"] = {2}
def apply(function, *given): return function(*given)
def count(n): yield from range(n)
def fail(): raise KeyError("k")
def own_error(): raise OwnError("own")
def of_kind(kind): return {"tuple": (1, [2.5]), "set": {1, "a"}, "bytes": b"x", "none": None, "complex": 1j}[kind]
def large(): return 3 ** 20_000
def sum(a, b): return a + b

class OwnError(Exception): pass

class Stack:
    size = 0
    def __init__(self, *given): self.items = [*given]
    def push(self, item): self.items.append(item); self.size += 1
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
    def __getitem__(self, place): return self.items[place]
    def __setitem__(self, place, item): self.items[place] = item
    def __delitem__(self, place): del self.items[place]
    def __str__(self): return f"Stack of {len(self)}"
    def __eq__(self, other): return True
"""
pytestmark = pytest.mark.usefixtures("bubblewrap")


def test_each_assert_is_a_test() -> None:
    passes = [
        "assert double(2) == 4",
        "assert 4 == double(x=2) and double('ab') == 'abab'",
        "assert LIMIT == 7",
        "assert named(list=[1], times=3) == [1, 1, 1]",
        "assert abs(double(0.1) - 0.2) < 1e-9 and math.isclose(double(0.1), 0.2)",
        "rows = [3, 1, 2]\nsort_here(rows)\nassert rows == [1, 2, 3]",
        "sort_here(rows, key=lambda row: -row)\nassert rows == [3, 2, 1]",
        "grid = [[0], {}]\nfirst = grid[0]\ngrow(grid)\nassert grid == [[0, 1], {'k': {2}}] and first is grid[0]",
        "assert apply(max, 3, 5) == 5 and apply(lambda x: [x], 3) == [3]",
        "assert list(count(3)) == [0, 1, 2] and 2 in count(3)",
        "assert of_kind('tuple') == (1, [2.5]) and of_kind('set') == {'a', 1}",
        "assert of_kind('bytes') == b'x' and of_kind('none') is None and of_kind('complex') == 1j",
        "assert large() == 3 ** 20_000",
        "stack = Stack(1)\nstack.push(2)\nassert (len(stack), stack.size, stack[0]) == (2, 1, 1)",
        "assert str(stack) == 'Stack of 2' and callable(stack.pop)",
        "stack[0] = 5\ndel stack[1]\nstack.size = 9\nassert stack.items == [5]",
        "assert stack.size == 9 and stack.pop() == 5",
        "assert not stack and callable(double) and stack is stack and len({stack}) == 1",
        "try:\n    fail()\nexcept KeyError:\n    pass\nelse:\n    assert False",
        "try:\n    own_error()\nexcept Exception as error:\n    assert 'OwnError: own' in str(error)",
    ]
    fails = [
        "assert double(2) == 5",
        "assert unknown(2) == 4",
        "assert Stack(1) == Stack(1)",  # objects of the program's own are not compared
        "assert 3 == Stack(3)",
        "assert Stack(1) < 3",
        "assert isinstance(Stack(1), Stack)",
        "class Own: pass\ndouble(Own())",
        "exit()",
        "assert fail() == 1",
    ]
    results = run_tests(PROGRAM, ProgramTests(asserts=(*passes, *fails)))
    wanted = [*[True] * len(passes), *[False] * len(fails)]
    assert [(text, is_so) for text, is_so in zip((*passes, *fails), results, strict=True)] == [
        *zip((*passes, *fails), wanted, strict=True)
    ]


def test_names_that_tests_define_or_import_and_python_s_own_are_not_the_program_s() -> None:
    tests = ProgramTests(
        setup="import math\ndef helper(x): return 2 * x",
        asserts=(
            "assert double(3) == helper(3)",
            "total = sum([1, 2])",
            "assert len([math.pi, statistics.mean([1])]) == 2",
        ),
    )
    assert (tests.names, tests.modules) == (["double"], ["statistics"])
    program = "def double(x): return 6\ndef helper(x): return 0\ndef sum(a): raise ValueError"
    assert run_tests(program, tests) == [True] * 3
    built_in = ProgramTests(asserts=("assert sum(2, 3) == 5",), entry_point="sum")
    assert run_tests(PROGRAM, built_in) == [True]
    called = ProgramTests(asserts=("assert bisect(1) == queue.f() == 1", "msvcrt.getch()"), entry_point="queue")
    assert run_tests("def bisect(x): return x\nclass queue: f = lambda: 1", called) == [True, False]


def test_a_file_of_tests_has_unittest_s_tests_functions_and_check() -> None:
    text = """
import unittest
from solution import double
import solution

class Cases(unittest.TestCase):
    def test_right(self): self.assertEqual(double(2), 4)
    def test_wrong(self): self.assertEqual(double(2), 5)
    @unittest.skip("not now")
    def test_skipped(self): pass
    def test_raises(self):
        with self.assertRaises(KeyError): solution.fail()
    def test_parts(self):
        for x in (1, 2):
            with self.subTest(x=x): self.assertEqual(double(x), 2)

def test_function(): assert double(4) == 8

def check(candidate): assert candidate(1, 2) == 3
"""
    found = run_tests(PROGRAM, ProgramTests(text=text, entry_point="sum"))
    # test_function and check; then parts, raises, right, skipped, wrong in unittest's order
    assert found == [True, True, False, True, True, False, False]
    assert run_tests(PROGRAM, ProgramTests(text="assert double(1) == 2")) == [True]
    assert run_tests(PROGRAM, ProgramTests(text="assert double(1) == 3")) == [False]
    named = ProgramTests(text="def test_it(): assert test_of_program(1) == 1\nassert test_of_program(2) == 2")
    assert run_tests("def test_of_program(x): return x", named) == [True]


def test_printed_output_is_compared_without_white_space_at_ends() -> None:
    pairs = (("3\n", "6\n\n"), ("4", "8"), ("5", "10  \n"), ("6", "1 2"), ("7", "14\n\n15"), ("x", ""), ("9", "18"))
    program = "import sys\nx = int(input())\nprint(x * 2)\nif x == 9: sys.exit(1)"
    assert run_tests(program, ProgramTests(pairs=pairs)) == [True, True, True, False, False, False, False]
    thread = "import threading\nthreading.Thread(target=lambda: print(input())).start()"
    exits = "import atexit\natexit.register(print, 'ä')\nif __name__ == '__main__': exit()"
    long = ("print(len(input()))", ("x" * (MAX_MESSAGE // 2), str(MAX_MESSAGE // 2)))
    for script, pair in ((thread, ("hello", "hello")), (exits, ("", "ä")), long):
        assert run_tests(script, ProgramTests(pairs=(pair,) * 3)) == [True] * 3


def test_what_is_printed_beyond_the_limit_is_cut_and_fails() -> None:
    program = "print('x' * int(input()))"
    pairs = tuple((str(size), "x" * size) for size in (999, 1001, 10_000_000))
    assert run_tests(program, ProgramTests(pairs=pairs), limits=Limits(output_bytes=1000)) == [True, False, False]


def test_tests_before_the_end_of_the_time_count() -> None:
    program = "import time\ndef f(x):\n    if x == 2: time.sleep(60)\n    return x"
    asserts = tuple(f"assert f({x}) == {x}" for x in range(4))
    assert run_tests(program, ProgramTests(asserts=asserts), limits=Limits(seconds=2)) == [True, True, False, False]


def test_a_program_sees_no_variable_and_the_same_hashes_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    program = (
        "import os\nprint(sorted(os.environ), hash('a'), os.listdir('.'), os.getcwd(), os.path.exists('/etc/passwd'))"
    )
    first, second = (_printed(program) for _ in range(2))
    assert first == second and first.startswith("['HOME', 'LANG', 'PWD', 'PYTHONHASHSEED'] ")
    assert first.endswith(" [] /work False\n")


def _printed(program: str) -> str:
    from podsrl.score.sandbox import verdicts

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts, "_lines", lambda text: found.append(text) or [])
        run_tests(program, ProgramTests(pairs=(("", ""),)))
    return found[0]


def test_a_program_may_use_threads_and_files_of_the_limited_size() -> None:
    program = """
import threading
def f():
    threads = [threading.Thread(target=lambda: None) for _ in range(100)]
    for thread in threads: thread.start(); thread.join()
    open("a", "w").write("x" * 1000)
    return len(open("a").read())
def g():
    with open("b", "wb") as file: file.write(bytes(2 << 20))
"""
    tests = ProgramTests(asserts=("assert f() == 1000", "g()"))
    assert run_tests(program, tests, limits=Limits(disk_bytes=1 << 20)) == [True, False]
    assert run_tests(program, tests) == [True, True]


def test_the_weaker_mode_gives_the_same_verdicts() -> None:
    asserts = ProgramTests(asserts=("assert double(2) == 4", "assert double(2) == 5"))
    pairs = ProgramTests(pairs=(("1", "1"), ("2", "3")))
    for kind in (BWRAP, WEAKER):
        assert run_tests(PROGRAM, asserts, kind=kind) == [True, False]
        assert run_tests("print(input())", pairs, kind=kind) == [True, False]


@pytest.mark.parametrize(
    "tests, words",
    [
        (ProgramTests(), "there are no tests"),
        (ProgramTests(text=" \n"), "there are no tests"),
        (ProgramTests(asserts=("assert f(",)), "the test 'assert f(' is no Python"),
        (ProgramTests(asserts=("f()",), setup="import"), "the test 'import' is no Python"),
        (ProgramTests(pairs=(("x" * MAX_MESSAGE, ""),)), "an input has 4,194,313 bytes; wanted at most 4,194,304"),
        (ProgramTests(text="f()#" + "x" * MAX_MESSAGE), "together they have 4,194,390 bytes"),
    ],
)
def test_tests_that_cannot_be_run_are_named(tests: ProgramTests, words: str) -> None:
    with pytest.raises(UsageError, match="^" + words.replace("(", r"\(")):
        tests.check()
