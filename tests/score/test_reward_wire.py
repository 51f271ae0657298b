"""What processes say to each other: exact, bounded, and never believed without a look."""

import json
import math
import random
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loops import each
from podsrl.errors import RewardError
from podsrl.lib.channel import Malformed
from podsrl.score.base import Fault, Rows
from podsrl.score.forms import judge_of
from podsrl.score.workers.jobs import BatchJob, RowJob, capture, read_tasks, restore, task_to_json
from podsrl.score.workers.wire import Unsendable, from_json, to_json
from podsrl.types import Task, TokenMarkup

PLAIN = Task(id="a", prompt="x", answer="1")


def written(value: Any) -> Any:
    return json.loads(json.dumps(value, ensure_ascii=False))


def sent(task: Task) -> Task:
    return read_tasks(written([task_to_json(task)]))[0]


def through(value: Any) -> Any:
    return from_json(written(to_json(value)))


@given(st.text(st.characters(codec=None, exclude_categories=())))
@example("$")  # marks what JSON does not have
def test_every_text_survives_lone_surrogates_too(text: str) -> None:
    assert through(text) == text
    assert sent(Task(id=text, prompt=text, answer=text, columns={text: text})) == Task(
        id=text, prompt=text, answer=text, columns={text: text}
    )


@given(st.floats(allow_nan=False))
def test_every_float_survives_to_the_last_bit(number: float) -> None:
    assert math.copysign(1, through(number)) == math.copysign(1, number) and through(number) == number


@each(
    "value",
    [
        None,
        True,
        -(10**5000),
        [1, [2.5, "a"], {}],
        {"a": {"$": 1}, "$": [2]},
        {1: "a", (2, "b"): None, None: 3},
        (1, (2, [3])),
        {1, "a"},
        frozenset({(1, 2)}),
        b"\0\xff",
        bytearray(b"ab"),
        date(2026, 1, 31),
        time(1, 2, 3, 4),
        datetime(2026, 1, 31, 1, 2, 3, 4),
        datetime(2026, 1, 31, tzinfo=UTC),
        timedelta(-1, 2, 3),
        Decimal("1.10"),
        Fraction(1, 3),
        1 - 2j,
        np.float32(0.1),
        np.int64(3),
        np.str_("ab"),
        np.datetime64("2026-01-31"),
    ],
)
def test_other_values_survive_with_their_types(value: Any) -> None:
    found = through(value)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("array", [np.eye(3, dtype=np.float32), np.zeros((0, 2)), np.array(["a", "bcd"]), np.array(7)])
def test_arrays_survive(array: np.ndarray[Any, Any]) -> None:
    found = through(array)
    assert found.dtype == array.dtype and found.shape == array.shape and (found == array).all()
    found[...] = array  # a copy that may be written to


def test_mappings_become_dictionaries_and_nan_stays() -> None:
    assert through(MappingProxyType({"a": 1})) == {"a": 1} == through(OrderedDict(a=1))
    assert math.isnan(through(math.nan))


def test_a_chat_and_its_columns_survive() -> None:
    chat = Task(id="c", prompt=({"role": "user", "content": "x", "$": "odd"},), answer="1", columns={"span": (1, 2)})
    assert sent(chat) == chat


@pytest.mark.parametrize("value", [lambda: 1, object(), int, np.array([object()]), [{"deep": {1: object()}}]])
def test_what_cannot_be_sent_is_an_error_that_names_column_and_kind(value: Any) -> None:
    with pytest.raises(Unsendable):
        to_json(value)
    task = Task(id="odd one", prompt="x", answer="1", columns={"fine": 1, "checker": value})
    with pytest.raises(RewardError, match=r"column 'checker' of task 'odd one' cannot be sent"):
        task_to_json(task)
    assert task_to_json(task, reads=lambda column: column == "fine")


def test_a_value_that_holds_itself_cannot_be_sent() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RewardError, match="column 'a'"):
        task_to_json(Task(id="t", prompt="x", answer="1", columns={"a": endless}))


ROW = RowJob("f", task_to_json(PLAIN), "text")


@each(
    "body",
    [None, 1, True, "1.0", math.inf, math.nan, [], {}, ["raised"], ["raised", 1], [[], "a"], ["odd", "a"]],
)
def test_an_answer_for_a_row_is_a_number_or_a_known_fault(body: Any) -> None:
    for wrong in (body, ["raised", "x" * 5000]):
        with pytest.raises(Malformed):
            ROW.read(wrong)
    assert ROW.read(0.5) == 0.5 and ROW.read(["none", "why"]) == Fault(kind="none", reason="why")


def test_an_answer_for_a_batch_is_checked_value_by_value() -> None:
    form: Any = judge_of("f", lambda completions: [0.0] * len(completions))
    job = BatchJob("f", form, Rows(tasks=[PLAIN] * 2, texts=["a", "b"], token_ids=[(), ()]))
    good = {"values": [0.5, None], "faults": [[1, "none", "why"]], "random": capture()}
    assert job.read(good).faults == {1: Fault(kind="none", reason="why")}
    bad: list[dict[str, Any]] = [
        {"values": [0.5]},
        {"values": [0.5, 1.0]},
        {"values": [None, None]},
        {"values": [1, None]},
        {"values": [math.nan, None]},
        {"values": ["a", None]},
        {"faults": [[2, "none", "why"]]},
        {"faults": [[-1, "none", "why"]]},
        {"faults": [["1", "none", "why"]]},
        {"faults": [[1, "odd", "why"]]},
        {"faults": [1]},
        {"random": {}},
        {"random": {**capture(), "python": [3, [1, 2], None]}},
        {"random": {**capture(), "numpy": ["MT19937", [1], 0, 0, 0.0]}},
        {"random": {**capture(), "torch": "AAAA"}},
    ]
    import torch  # noqa: F401  # so that its state is looked at

    for change in bad:
        with pytest.raises(Malformed):
            job.read(good | change)


def test_the_state_of_all_generators_goes_over_and_comes_back() -> None:
    import torch

    random.gauss(0, 1)
    np.random.standard_normal()
    state = written(capture())
    drawn = (random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.rand(), torch.rand(3).tolist())
    restore(state)
    again = (random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.rand(), torch.rand(3).tolist())
    assert drawn == again


def test_a_prompt_with_special_tokens_crosses_as_what_it_is() -> None:
    messages = ({"role": "system", "content": TokenMarkup("<|im_start|>")},)
    [message] = through(messages)
    assert message["content"] == "<|im_start|>" and type(message["content"]) is TokenMarkup
