"""Rewards for programs: what a model wrote is run on its task's tests, in a sandbox (docs/code-rewards.md).

The tests are in the task's columns. One piece of the completion counts, by a fixed order, never the best of several.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podsrl.errors import UsageError, short
from podsrl.score.base import TIME_LIMIT
from podsrl.score.sandbox import BWRAP, REMOTE, WEAKER, Limits, ProgramTests, require, run_tests
from podsrl.types import Task

_FENCE = "```"
_PYTHON = frozenset({"python", "python3", "py"})
_DEFINES = re.compile(r"^(?:async +def|def|class) ", re.MULTILINE)
_THOUGHT_END = "</think>"
TESTS = ("tests", "test_list", "test")
"""Columns that may hold the tests; the first that does counts."""
_SETUP = ("test_imports", "test_setup_code", "setup")
WANTED = (
    f"wanted one of the columns {', '.join(TESTS)}: a list of assert statements, a list of "
    '{"input": text, "output": text}, or the text of a file of tests'
)


def code_tests(task: Task, completion: str) -> float:
    """Whether the program in a completion passes all tests of its task: 1.0 or 0.0. UsageError: it has no tests."""
    return float(_share(task, completion, BWRAP) == 1)


def code_share(task: Task, completion: str) -> float:
    """The share of its task's tests that the program in a completion passes. UsageError: it has no tests."""
    return _share(task, completion, BWRAP)


def weaker_code_tests(task: Task, completion: str) -> float:
    """The value of `code_tests`, without bubblewrap: for programs that one would run by hand.

    Example:
        >>> task = Task(id="double", prompt="", answer="", columns={"tests": ["assert double(2) == 4"]})
        >>> weaker_code_tests(task, "So:\\n```python\\ndef double(x):\\n    return 2 * x\\n```\\nIt doubles x.")
        1.0
    """
    return float(_share(task, completion, WEAKER) == 1)


def weaker_code_share(task: Task, completion: str) -> float:
    """The value of `code_share`, without bubblewrap: for programs that one would run by hand."""
    return _share(task, completion, WEAKER)


def remote_code_tests(task: Task, completion: str) -> float:
    """The value of `code_tests`, from a SandboxFusion service. PodsError: the service fails, which is no value."""
    return float(_share(task, completion, REMOTE) == 1)


def remote_code_share(task: Task, completion: str) -> float:
    """The value of `code_share`, from a SandboxFusion service. PodsError: the service fails, which is no value."""
    return _share(task, completion, REMOTE)


def check_sandbox(name: str) -> None:
    """UsageError: the reward of that name cannot run programs on this machine."""
    require(next((kind for kind in (WEAKER, REMOTE) if name.startswith(kind)), BWRAP))


def find_code(completion: str) -> str | None:
    """The program in a completion; None where there is none.

    Only what follows the last `</think>` is looked at. Of blocks between fences that are marked as Python, or else of
    those without a mark, it is the last one that defines a function or a class at its top level, or else the last one.
    A block that nothing closes goes to the end; what indents its fence is taken off its lines. Without any fence it is
    the whole text.

    Example:
        >>> find_code("```python\\ndef f(): ...\\n```\\nFor example:\\n```python\\nprint(f())\\n```")
        'def f(): ...'
        >>> find_code("```bash\\nls\\n```"), find_code("x = 1")
        (None, 'x = 1')
    """
    text = completion.rpartition(_THOUGHT_END)[2]
    blocks = list[tuple[str, list[str]]]()
    is_inside, indent = False, 0
    for line in text.split("\n"):
        if line.strip().startswith(_FENCE) and not (is_inside and line.strip().strip("`")):
            is_inside = not is_inside
            if is_inside:
                indent = len(line) - len(line.lstrip())
                blocks.append((line.strip().strip("`").strip().lower(), []))
        elif is_inside:
            blocks[-1][1].append(line[:indent].lstrip() + line[indent:])
    if not blocks:
        return text
    for marks in (_PYTHON, {""}):
        found = ["\n".join(lines) for mark, lines in blocks if mark in marks]
        if found:
            return next((block for block in reversed(found) if _DEFINES.search(block)), found[-1])
    return None


def read_tests(task: Task) -> ProgramTests:
    """The tests in a task's columns. UsageError: there are none, or they cannot be read.

    Example:
        >>> read_tests(Task(id="a", prompt="", answer="", columns={"tests": [{"input": "1", "output": "2"}]})).pairs
        (('1', '2'),)
    """
    columns = task.columns
    name = next((name for name in TESTS if columns.get(name) is not None), None)
    if name is None:
        raise UsageError(f"task '{task.id}' has no tests; {WANTED}")
    found: Any = columns[name]
    setup = "\n".join(part for each in _SETUP for part in _texts(columns.get(each)))
    entry_point = columns.get("entry_point") or ""
    tests = ProgramTests(setup=setup, entry_point=entry_point if isinstance(entry_point, str) else "")
    try:
        match found:
            case str():
                tests = ProgramTests(text=found, setup=setup, entry_point=tests.entry_point)
            case [*items] if items and all(isinstance(item, str) for item in items):
                tests = ProgramTests(asserts=tuple(items), setup=setup, entry_point=tests.entry_point)
            case [*items] if items and all(map(_is_pair, items)):
                tests = ProgramTests(pairs=tuple((item["input"], item["output"]) for item in items))
            case _:
                raise UsageError(f"it holds {short(found, 60)}")
        tests.check()
    except UsageError as error:
        raise UsageError(f"column '{name}' of task '{task.id}': {error}; {WANTED}") from error
    return tests


def _is_pair(item: object) -> bool:
    return isinstance(item, Mapping) and all(isinstance(item.get(each), str) for each in ("input", "output"))


def _texts(value: object) -> list[str]:
    found = value if isinstance(value, (list, tuple)) else [value]
    return [text for text in found if isinstance(text, str)]


def _share(task: Task, completion: str, kind: str) -> float:
    tests, code = read_tests(task), find_code(completion)
    if code is None or not code.strip():
        return 0.0
    seconds = Limits().seconds if kind == REMOTE else min(Limits().seconds, TIME_LIMIT.get())
    passed = run_tests(code, tests, limits=Limits(seconds=seconds), kind=kind)
    return sum(passed) / len(passed)
