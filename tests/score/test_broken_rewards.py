"""A user's reward that is broken, in any option and of any form, gives one line with its place in the user's file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.score import Scorer
from podsrl.types import Task

Pods = Callable[..., tuple[int, str, str]]
TASK = Task(id="1+2", prompt="1+2=", answer="3")
MODULES = {
    "br_exits": ("import sys\nsys.exit(0)\n", "SystemExit: 0 (br_exits.py, line 2)"),
    "br_syntax": ("def f(:\n", "(br_syntax.py, line 1)"),
    "br_empty": ("g = 1\n", "no 'f' in 'br_empty'"),
    "br_number": ("f = 5\n", "has the type int; wanted f(task, completion_text)"),
    "br_class": ("class f: pass\n", "is a class, not a function; wanted f(task, completion_text)"),
    "br_three": ("def f(a, b, c): pass\n", "takes (a, b, c)"),
}
WHEN_CALLED = """
import json, sys

def helper(text):
    return json.loads(text)["reward"]

class Judge:
    def __call__(self, task, text):
        return undefined

row_name = lambda task, text: undefined
row_library = lambda task, text: helper(text)
judge = Judge()

def row_exit(task, text):
    sys.exit(0)

def batch_name(prompts, completions, **columns):
    return [undefined for _ in completions]

def batch_exit(completions):
    sys.exit(0)
"""
LINES = {"row_name": 11, "row_library": 5, "judge": 9, "row_exit": 16, "batch_name": 19, "batch_exit": 22}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, (text, _) in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "br_called.py").write_text(WHEN_CALLED)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in (*MODULES, "br_called"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("option", ["rewards", "correct", "format"])
@pytest.mark.parametrize("module", MODULES)
def test_a_broken_module_is_one_line_in_every_option(folder: Path, option: str, module: str) -> None:
    name, reason = f"{module}:f", MODULES[module][1]
    with pytest.raises(UsageError) as caught:
        Scorer(
            {name if option == "rewards" else "correct": 1.0},
            name if option == "correct" else "correct",
            format=name if option == "format" else None,
        )
    message = str(caught.value)
    assert reason in message and name in message and "\n" not in message


@pytest.mark.parametrize("function", LINES)
def test_a_function_that_fails_when_it_is_called_names_its_line_to_the_probe(folder: Path, function: str) -> None:
    with Scorer({f"br_called:{function}": 1.0}, "correct", workers=1) as scorer:
        warnings = scorer.probe(TASK)
    assert warnings and all("\n" not in warning for warning in warnings)
    assert all(f"br_called.py, line {LINES[function]}: " in warning for warning in warnings), warnings


def test_the_probe_shows_the_user_s_own_lines_the_answer_and_the_cure(folder: Path) -> None:
    with Scorer({"br_called:row_library": 1.0}, "correct", workers=1) as scorer:
        [warning, *_] = scorer.probe(TASK)
    assert warning.endswith(
        "(br_called.py, line 12: row_library = lambda task, text: helper(text); br_called.py, line 5: return "
        """json.loads(text)["reward"]), on 'Answer: 0.': it must return a number for any text, such as 0 for a wrong """
        "answer"
    )


@pytest.mark.parametrize("module", ["br_exits", "br_syntax", "br_class"])
def test_the_command_line_shows_one_line_and_no_traceback(folder: Path, pods: Pods, module: str) -> None:
    code, _, said = pods("check-reward", "--attack", "--reward", f"{module}:f")
    assert (code, "Traceback" in said) == (2, False)
    assert MODULES[module][1] in " ".join(said.split())
