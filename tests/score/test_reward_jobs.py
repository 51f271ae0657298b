"""What processes say to each other: tasks arrive as they are, and no answer is believed without a look."""

import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podsrl.errors import RewardError
from podsrl.lib.channel import Malformed
from podsrl.score.base import Fault, Values
from podsrl.score.workers.jobs import RowsJob, read_task, write_task
from podsrl.score.workers.turns import Reply, TurnJob
from podsrl.types import Task, TokenMarkup

PLAIN = write_task(Task(id="a", prompt="x", answer="1"))


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_every_text_survives_lone_surrogates_too(text: str) -> None:
    task = Task(id=text, prompt=text, answer=text, columns={text: text})
    assert read_task(write_task(task)) == task


def test_a_chat_with_special_tokens_and_its_columns_survive() -> None:
    message = MappingProxyType({"role": "system", "content": TokenMarkup("<|im_start|>")})
    task = Task(id="c", prompt=(message,), answer="1", columns={"span": (1, {2}), "blob": b"\xff"})
    sent = read_task(write_task(task))
    assert sent == task and type(sent.prompt[0]["content"]) is TokenMarkup  # type: ignore[index]


def test_what_cannot_be_sent_is_an_error_that_names_its_column() -> None:
    task = Task(id="odd one", prompt="x", answer="1", columns={"fine": 1, "checker": lambda: 1})
    with pytest.raises(RewardError, match=r"column 'checker' of task 'odd one' cannot be sent"):
        write_task(task)
    assert read_task(write_task(task, reads=lambda column: column == "fine")).columns == {"fine": 1}


def test_an_answer_for_rows_is_checked_value_by_value() -> None:
    job = RowsJob("f", [PLAIN] * 2, ["a", "b"], [(), ()])
    good = {"values": [0.5, None], "faults": [[1, "none", "why"]]}
    found = job.read(good)
    assert isinstance(found, Values) and found.faults == {1: Fault(kind="none", reason="why")}
    assert str(job.read({"broken": "no list"})) == "no list"
    bad: list[dict[str, Any]] = [
        {"values": [0.5]},
        {"values": [0.5, 1.0]},
        {"values": [None, None]},
        {"values": [1, None]},
        {"values": [math.nan, None]},
        {"values": [math.inf, None]},
        {"values": ["a", None]},
        {"faults": [[2, "none", "why"]]},
        {"faults": [[-1, "none", "why"]]},
        {"faults": [["1", "none", "why"]]},
        {"faults": [[1, "odd", "why"]]},
        {"faults": [[1, "none", "x" * 5000]]},
        {"faults": [1]},
    ]
    for body in (*(good | change for change in bad), None, 1, 0.5, [], {}):
        with pytest.raises(Malformed):
            job.read(body)


def test_an_answer_for_a_turn_is_checked_too() -> None:
    job = TurnJob("f", PLAIN, ["a"])
    assert job.read({"texts": ["b"], "calls": [], "reward": None}) == Reply(("b",))
    assert job.read(["none", "why"]) == Fault(kind="none", reason="why")
    bad = [{"texts": [1], "calls": [], "reward": None}, {"texts": [], "calls": [], "reward": math.nan}, ["odd", "why"]]
    for body in (*bad, None, 0.5):
        with pytest.raises(Malformed):
            job.read(body)
