import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from loops import each
from podsrl.errors import RewardError, UsageError
from podsrl.score.base import Rows, Values
from podsrl.score.forms import BatchForm, RowForm, judge_of
from podsrl.types import Task

TEXT = Task(id="1+2", prompt="1+2=", answer="3", columns={"level": 5})
CHAT = Task(id="2+2", prompt=({"role": "user", "content": "2+2="},), answer="4", columns={"level": 6})
ROWS = Rows(tasks=[TEXT, TEXT, CHAT], texts=["3", "three", "4"], token_ids=[(3,), (20, 21), (4,)])


def is_nan_where_faulty(values: Values) -> bool:
    return [row for row, value in enumerate(values.values) if math.isnan(value)] == sorted(values.faults)


def of_openrlhf(queries: list[str], prompts: list[str], labels: list[str], **kwargs: Any) -> dict[str, Any]:
    right = [query == prompt + label for query, prompt, label in zip(queries, prompts, labels, strict=True)]
    rewards = torch.tensor([float(each) for each in right])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"right": rewards.mean()}}


class Exact:
    def __call__(self, task: Task, completion: str) -> bool:
        return completion == task.answer

    def method(self, task: Task, completion: str) -> bool:
        return completion == task.answer


class Lengths:
    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[int]:
        return [len(ids) for ids in columns["completion_ids"]]


def exact(task: Task, completion: str, *, scale: float = 1.0) -> float:
    return scale * (completion == task.answer)


def by_level(completions: list[Any], level: list[int], factor: int = 1) -> list[int]:
    return [factor * number for number in level]


@pytest.mark.parametrize(
    ("form", "function", "values"),
    [
        (RowForm, exact, [1.0, 0.0, 1.0]),
        (RowForm, lambda task, text: len(text) / 10, [0.1, 0.5, 0.1]),
        (RowForm, lambda *both: len(both), [2.0, 2.0, 2.0]),
        (RowForm, Exact(), [1.0, 0.0, 1.0]),
        (RowForm, Exact().method, [1.0, 0.0, 1.0]),
        (RowForm, functools.partial(exact, scale=0.5), [0.5, 0.0, 0.5]),
        (BatchForm, by_level, [5.0, 5.0, 6.0]),
        (BatchForm, lambda prompts, completions, **rest: [len(answer) for answer in rest["answer"]], [1.0, 1.0, 1.0]),
        (BatchForm, lambda completion_ids, **rest: [ids[0] for ids in completion_ids], [3.0, 20.0, 4.0]),
        (BatchForm, lambda completions, **rest: np.arange(len(completions)) > 0, [0.0, 1.0, 1.0]),
        (BatchForm, lambda completions, **rest: (1, True, 0.5), [1.0, 1.0, 0.5]),
        (BatchForm, Lengths(), [1.0, 2.0, 1.0]),
        (BatchForm, functools.partial(by_level, factor=2), [10.0, 10.0, 12.0]),
        (BatchForm, functools.partial(by_level, level=[7, 8, 9]), [7.0, 8.0, 9.0]),
        (BatchForm, functools.partial(lambda completions, **rest: rest["level"], level=[7, 8, 9]), [7.0, 8.0, 9.0]),
        (BatchForm, of_openrlhf, [1.0, 0.0, 1.0]),
    ],
)
def test_functions_of_each_form_are_known_and_judge_each_row(
    form: type, function: Callable[..., Any], values: list[float]
) -> None:
    judge = judge_of("f", function)
    assert isinstance(judge, form) and judge(ROWS) == Values(values=values, faults={})
    assert judge(ROWS.part(slice(0, 0))) == Values(values=[], faults={})


def test_the_row_form_is_called_once_for_equal_completions_of_a_task() -> None:
    calls: list[tuple[str, str]] = []

    def reward(task: Task, text: str) -> float:
        calls.append((task.id, text))
        if text == "bad":
            raise ValueError(text)
        return float(len(calls))

    texts = ["3", "bad", "3", "4", "bad", "3"]
    rows = Rows(tasks=[TEXT] * 5 + [CHAT], texts=texts, token_ids=[()] * 6)
    found = judge_of("own", reward)(rows)
    assert calls == [("1+2", "3"), ("1+2", "bad"), ("1+2", "4"), ("2+2", "3")]
    assert [found.values[i] for i in (0, 2, 3, 5)] == [1.0, 1.0, 3.0, 4.0] and list(found.faults) == [1, 4]


def test_trl_form_is_given_text_for_text_prompts_and_messages_for_chat() -> None:
    seen: dict[str, Any] = {}

    def spy(**everything: Any) -> list[float]:
        raise AssertionError("not called: it has no parameter that names its form")

    def keep(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
        seen.update(prompts=prompts, completions=completions, **columns)
        return [0.0] * len(prompts)

    judge_of("keep", keep)(ROWS)
    assert seen == {
        "prompts": ["1+2=", "1+2=", [{"role": "user", "content": "2+2="}]],
        "completions": ["3", "three", [{"role": "assistant", "content": "4"}]],
        "completion_ids": [[3], [20, 21], [4]],
        "id": ["1+2", "1+2", "2+2"],
        "answer": ["3", "3", "4"],
        "level": [5, 5, 6],
    }
    with pytest.raises(UsageError, match=r"reward 'spy' takes \(\*\*everything"):
        judge_of("spy", spy)


def test_a_column_of_only_some_tasks_is_none_for_the_others() -> None:
    other = Task(id="x", prompt="x", answer="y", columns={"hint": "h"})
    rows = Rows(tasks=[TEXT, other], texts=["a", "b"], token_ids=[(1,), (2,)])
    seen: list[Any] = []
    judge_of("f", lambda completions, level, hint: seen.extend([level, hint]) or [0, 0])(rows)
    assert seen == [[5, None], [None, "h"]]


def test_a_data_set_s_own_answer_column_goes_before_the_reference_answer() -> None:
    task = Task(id="x", prompt="x", answer="3", columns={"answer": "long way to 3", "prompts": "never"})
    seen: list[Any] = []
    rows = Rows(tasks=[task], texts=["a"], token_ids=[(1,)])
    judge_of("f", lambda prompts, completions, answer: seen.extend([prompts, answer]) or [0])(rows)
    assert seen == [["x"], ["long way to 3"]]


def test_a_function_cannot_change_the_prompt_of_a_task() -> None:
    def vandal(prompts: list[Any], completions: list[Any]) -> list[float]:
        prompts[2][0]["content"] = "changed"
        return [0.0] * 3

    judge_of("f", vandal)(ROWS)
    assert CHAT.prompt == ({"role": "user", "content": "2+2="},)


def fails_on_three(task: Task, completion: str) -> float:
    if completion == "three":
        raise ZeroDivisionError("by three")
    return 1.0


def test_an_exception_in_the_row_form_makes_only_its_row_faulty() -> None:
    values = judge_of("mine", fails_on_three)(ROWS)
    assert values.values[::2] == [1.0, 1.0]
    line = fails_on_three.__code__.co_firstlineno + 2
    assert {row: fault.reason for row, fault in values.faults.items()} == {
        1: f"reward 'mine' raised ZeroDivisionError: by three (test_reward_forms.py, line {line}: "
        'raise ZeroDivisionError("by three"))'
    }
    assert is_nan_where_faulty(values)


def test_an_exception_in_trl_form_is_retried_row_by_row() -> None:
    batches: list[int] = []

    def parse(completions: list[Any], **rest: Any) -> list[float]:
        batches.append(len(completions))
        return [float(text if isinstance(text, str) else text[0]["content"]) for text in completions]

    values = judge_of("parse", parse)(ROWS)
    assert batches == [3, 1, 1, 1]
    assert values.values[::2] == [3.0, 4.0]
    line = parse.__code__.co_firstlineno + 2
    reason = "reward 'parse' raised ValueError: could not convert string to float: 'three'"
    [(row, fault)] = values.faults.items()
    assert (row, fault.kind) == (1, "raised")
    assert fault.reason.startswith(f"{reason} (test_reward_forms.py, line {line}: return [float(")
    assert is_nan_where_faulty(values)


def test_a_function_of_openrlhf_form_gets_whole_texts_and_answers() -> None:
    judge = judge_of("f", of_openrlhf)
    own = Task(id="own", prompt="1+2=", answer="3", columns={"labels": "three", "queries": "1+2=three"})
    assert judge(Rows(tasks=[own], texts=["3"], token_ids=[(3,)])).values == [1.0]
    with pytest.raises(RewardError, match="references"):
        judge_of("f", lambda queries, prompts, references: [1.0])(ROWS)
    with pytest.raises(RewardError, match="labels"):  # a name that only functions with `queries` get
        judge_of("f", lambda prompts, completions, labels: [1.0])(ROWS)


def test_a_batch_of_one_that_raises_is_not_called_twice() -> None:
    calls: list[int] = []

    def broken(completions: list[str]) -> list[float]:
        calls.append(len(completions))
        raise RuntimeError("always")

    reason = judge_of("broken", broken)(ROWS.part(slice(0, 1))).faults[0].reason
    assert reason.startswith("reward 'broken' raised RuntimeError: always (")
    assert calls == [1]


def test_none_and_nan_inside_a_list_make_only_their_rows_faulty() -> None:
    values = judge_of("f", lambda completions: [None, 0.5, math.nan])(ROWS)
    assert [(row, fault.kind) for row, fault in values.faults.items()] == [(0, "none"), (2, "not_finite")]
    assert values.values[1] == 0.5
    assert is_nan_where_faulty(values)


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        ([1.0, 2.0], "a list of 2"),
        ([], "a list of 0"),
        (np.zeros(4), "a list of 4"),
        (None, "a NoneType"),
        (1.0, "a float"),
        (np.float64(1), "a float"),
        ("abc", "a str"),
        ({0: 1.0, 1: 1.0, 2: 1.0}, "a dict"),
        ((value for value in (1, 2, 3)), "a generator"),
    ],
)
def test_a_batch_of_the_wrong_shape_breaks_the_contract(returned: object, got: str) -> None:
    message = f"reward 'f' returned {got}; wanted a list of 3 numbers, one for each completion"
    with pytest.raises(RewardError, match=re.escape(message)):
        judge_of("f", lambda completions: returned)(ROWS)


def test_a_wrong_length_during_the_retry_breaks_the_contract_too() -> None:
    def odd(completions: list[str]) -> list[float]:
        if len(completions) > 1:
            raise RuntimeError("too many")
        return [1.0, 2.0]

    with pytest.raises(RewardError, match="reward 'odd' returned a list of 2; wanted a list of 1 numbers"):
        judge_of("odd", odd)(ROWS)


def test_a_column_that_no_task_has_breaks_the_contract() -> None:
    with pytest.raises(
        RewardError, match=r"reward 'f' needs \['levle'\], but task '1\+2' has none. Did you mean 'level'"
    ):
        judge_of("f", lambda completions, levle: [0.0])(ROWS)


def test_ctrl_c_is_no_function_s_fault() -> None:
    def pressed(*_: object, **columns: object) -> float:
        raise KeyboardInterrupt

    for function in (pressed, lambda completions: pressed()):
        with pytest.raises(KeyboardInterrupt):
            judge_of("f", function)(ROWS)


def hostile(name: str, error: BaseException) -> object:
    """Raises where it is asked for one attribute, and where it is shown."""

    class Hostile:
        def __getattribute__(self, asked: str) -> Any:
            if asked == name:
                raise error
            return super().__getattribute__(asked)

        def __repr__(self) -> str:
            raise error

    return Hostile()


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(0)], ids=repr)
@each("name", ["item", "shape", "__class__", "tolist", "nothing"])
def test_a_value_that_raises_when_it_is_read_makes_its_row_faulty(name: str, error: BaseException) -> None:
    value = hostile(name, error)
    values = judge_of("f", lambda task, text: value if text == "three" else 1.0)(ROWS)
    assert values.values[::2] == [1.0, 1.0] and values.faults[1].kind == "raised"
    assert type(error).__name__ in values.faults[1].reason
    values = judge_of("f", lambda completions: [1.0, value, 1.0])(ROWS)
    assert values.values[::2] == [1.0, 1.0] and values.faults[1].kind == "raised"


async def asynchronous(task: Task, text: str) -> float:
    return 1.0


class Asynchronous:
    async def __call__(self, completions: list[str]) -> list[float]:
        return [1.0]


def by_position(completions: list[str], /) -> list[float]:
    return [1.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (5, "reward 'f' has the type int, not a function; wanted f(task, completion_text)"),
        (None, "reward 'f' has the type NoneType, not a function"),
        (Exact, "reward 'f' is a class, not a function"),
        (asynchronous, "reward 'f' is asynchronous (async def), which is not supported"),
        (functools.partial(asynchronous), "reward 'f' is asynchronous"),
        (Asynchronous(), "reward 'f' is asynchronous"),
        (lambda text: 1.0, "reward 'f' takes (text) (too many positional arguments); wanted f(task, completion_text)"),
        (lambda: 1.0, "reward 'f' takes () (too many positional arguments)"),
        (lambda a, b, c: 1.0, "reward 'f' takes (a, b, c) (missing a required argument: 'c')"),
        (by_position, "reward 'f' takes ['completions'] by position only, but is called by keyword: remove the '/'"),
        (max, "reward 'f': no signature found for builtin"),
        (lambda text, task: 1.0, "task comes first"),
    ],
)
def test_what_fits_neither_form_is_refused(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        judge_of("f", function)
