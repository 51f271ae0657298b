"""Sums asked column by column: the conversation of a perfect model, and of others."""

from __future__ import annotations

from podsrl.config.load import load_config
from podsrl.score.rewards.stated import correct
from podsrl.tasks import load_tasks
from podsrl.tasks.arithmetic import addition_task
from podsrl.tasks.columns import columns_of, reply


def conversation(a: int, b: int, *, carries: bool) -> str:
    """Of a model that adds each column, with or without the carry of its own last turn."""
    task, turns, text, carry, digits = addition_task(a, b), list[str](), "", 0, ""
    said: str | None = columns_of(task)[0]
    while said is not None:
        text += said
        if said == "Answer: ":
            turns.append(f"{digits}.")
        else:
            total = sum(map(int, said.removesuffix("=").split("+"))) + carry
            carry = total // 10 if carries else 0
            is_last = len(turns) + 1 == len(columns_of(task))
            digits = (str(total) if is_last else str(total % 10)) + digits
            turns.append(f"{total} ")
        text += turns[-1]
        said = reply(task, turns)
    return text


def test_a_model_that_carries_is_right_and_one_that_does_not_where_nothing_is_carried() -> None:
    assert conversation(160, 442, carries=True) == "0+2=2 6+4=10 1+4=6 Answer: 602."
    for a in range(10, 100, 3):
        for b in range(10, 100, 7):
            task = addition_task(a, b)
            assert correct(task, conversation(a, b, carries=True)) == 1
            assert correct(task, conversation(a, b, carries=False)) == (a % 10 + b % 10 < 10)


def test_what_is_no_number_and_a_space_ends_it() -> None:
    task = addition_task(47, 85)
    assert [reply(task, [text]) for text in ("12", "", " ", "12. ", "-1 ", "² ", "twelve ")] == [None] * 7
    assert reply(task, ["0 "]) == "4+8="  # right or wrong


def test_the_set_is_that_of_sums_with_the_first_column_asked() -> None:
    sums, columns = (load_tasks(name, digits=3, num_eval=4) for name in ("arithmetic", "columns"))
    assert (
        columns.environment == "columns" == load_config("columns", []).task.name
        and columns.name == "columns, digits = 3"
    )
    for side, other in ((sums.eval, columns.eval), (sums.train, columns.train)):
        one, asked = side[3], other[3]
        assert (asked.id, asked.answer) == (one.id, one.answer) and len(side) == len(other)
        assert asked.prompt == f"{one.prompt}{columns_of(one)[0]}"
