"""Functions to be written: their exact questions, references that pass their own tests, and what is held out."""

from __future__ import annotations

from collections import Counter

import pytest

from podsrl.errors import UsageError
from podsrl.tasks import load_tasks
from podsrl.tasks.functions import NUM_TESTS, Template, function_task, load_functions, templates
from podsrl.types import Task

TRIPLE = Template(
    level=2,
    name="triple",
    arguments="numbers",
    kinds="n",
    asks="each of the numbers times <k>",
    body="    return [number * <k> for number in numbers]",
    values={"k": (2, 5)},
)


def all_tasks() -> list[Task]:
    tasks = load_functions(levels=None, num_eval=None)
    return [*tasks.train, *tasks.eval]


def test_a_question_has_its_exact_text_an_example_and_tests() -> None:
    task = function_task(TRIPLE, {"k": 3})
    first = task.columns["tests"][0]
    call, _, result = first.removeprefix("assert ").partition(" == ")
    assert task.prompt == (
        "Write a Python function `triple(numbers)` that returns each of the numbers times 3. "
        f"For example, `{call}` is `{result}`.\n"
    )
    assert task.id == "triple(k = 3)"
    assert task.answer == "def triple(numbers):\n    return [number * 3 for number in numbers]"
    numbers = eval(call.removeprefix("triple"))
    assert [3 * number for number in numbers] == eval(result)


def test_every_reference_passes_its_tests_and_no_constant_passes_most() -> None:
    tasks = all_tasks()
    for task in tasks:
        space: dict[str, object] = {}
        exec(task.answer, space)
        tests = task.columns["tests"]
        for test in tests:
            exec(test, space)
        results = Counter(test.partition(" == ")[2] for test in tests)
        assert len(set(tests)) == len(tests) == NUM_TESTS and max(results.values()) <= NUM_TESTS // 2, task.id
    assert len(tasks) == len({task.id for task in tasks}) == 469


def test_one_in_eight_is_held_out_on_every_level_and_fewer_are_a_prefix() -> None:
    tasks = load_functions(levels=None, num_eval=None)
    assert (len(tasks.train), len(tasks.eval)) == (422, 47)
    assert load_functions(levels=None, num_eval=5).eval == tasks.eval[:5]
    assert {task.columns["level"] for task in tasks.eval} == {1, 2, 3}
    assert not {task.id for task in tasks.train} & {task.id for task in tasks.eval}


def test_levels_have_their_shares() -> None:
    tasks = load_functions(levels={1: 0.25, 3: 0.75}, num_eval=None)
    for side in (tasks.train, tasks.eval):
        counts = Counter(task.columns["level"] for task in side)
        assert counts.keys() == {1, 3} and abs(counts[1] / len(side) - 0.25) < 0.05
    assert {task.columns["level"] for task in load_functions(levels={2: 1.0}, num_eval=1).train} == {2}


def test_values_out_of_range_are_named() -> None:
    with pytest.raises(UsageError, match=r"task.levels names \[4\]; wanted levels out of \[1, 2, 3\]"):
        load_functions(levels={4: 1.0}, num_eval=None)
    with pytest.raises(UsageError, match=r"task.num_eval = 48; 'functions' has 47 held-out questions of these levels"):
        load_functions(levels=None, num_eval=48)


def test_the_set_is_judged_by_its_tests_and_asked_as_chat() -> None:
    tasks = load_tasks("functions", num_eval=1)
    assert (tasks.rewards, tasks.correct, tasks.format) == ({"code_tests": 1.0}, "code_tests", None)
    [message] = tasks.eval[0].prompt
    assert isinstance(message, dict) and message["role"] == "user"
    assert len({template.name for template in templates()}) == len(templates()) == 48
