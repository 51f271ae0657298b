import itertools
from dataclasses import replace

import pytest

from podsrl.errors import UsageError
from podsrl.tasks.base import TaskSet, TasksOnDemand
from podsrl.tasks.split import held_apart, hold_out, take_eval, without_held_out
from podsrl.types import Task

TASKS = [Task(id=f"{number}", prompt=f"{number}+0=", answer=f"{number}") for number in range(20)]
HELD_OUT = ["5", "7", "13", "16", "17"]


def test_both_sides_are_all_tasks_in_their_order() -> None:
    train, held_out = hold_out("mine", TASKS, 7, seed=0)
    assert len(held_out) == 7
    assert sorted([*train, *held_out], key=TASKS.index) == TASKS
    for side in (train, held_out):
        assert list(side) == sorted(side, key=TASKS.index)


def test_a_smaller_number_is_part_of_a_larger_one() -> None:
    taken = [set(map(TASKS.index, take_eval("mine", TASKS, count, seed=0))) for count in range(1, 21)]
    assert [len(part) for part in taken] == list(range(1, 21))
    assert all(small < large for small, large in itertools.pairwise(taken))


def test_what_is_taken_stays_in_order_and_depends_on_the_seed_alone() -> None:
    taken = [take_eval("mine", TASKS, 8, seed=seed) for seed in range(5)]
    assert all(list(part) == sorted(part, key=TASKS.index) for part in taken)
    assert len({tuple(task.id for task in part) for part in taken}) == 5
    assert taken[0] == take_eval("mine", TASKS, 8, seed=0)


def test_what_is_held_out_is_the_same_as_last_year() -> None:
    assert [task.id for task in take_eval("mine", TASKS, 5, seed=0)] == HELD_OUT
    assert [task.id for task in hold_out("mine", TASKS, 5, seed=0)[1]] == HELD_OUT


def test_where_none_can_be_held_out_no_number_is_advised() -> None:
    with pytest.raises(UsageError, match=r"mine has 1 rows; .*: none can be held out: add rows$"):
        hold_out("mine", TASKS[:1], 1, seed=0)
    with pytest.raises(
        UsageError, match=r"40 of them with a prompt that another row shares; .*: none can be held out: .* copies"
    ):
        hold_out("mine", [*TASKS, *TASKS], None, seed=0)


@pytest.mark.parametrize("count", [-1, 21])
def test_more_than_the_split_has_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=rf"task.num_eval = {count}: mine has 20 rows; choose 0 \(all\) \.\. 20"):
        take_eval("mine", TASKS, count, seed=0)


@pytest.mark.parametrize(("size", "held_out"), [(2, 1), (4, 1), (9, 1), (10, 2), (300, 60), (1279, 255), (5000, 256)])
def test_a_file_holds_out_a_fifth_and_256_at_most(size: int, held_out: int) -> None:
    tasks = [Task(id=f"{number}", prompt=f"{number}+0=", answer=f"{number}") for number in range(size)]
    assert [len(side) for side in hold_out("mine", tasks, None, seed=0)] == [size - held_out, held_out]
    assert hold_out("mine", tasks, None, seed=0) == hold_out("mine", tasks, held_out, seed=0)


def test_a_default_holds_out_no_prompt_that_others_share() -> None:
    tasks = [*TASKS[:2], *(Task(id=f"again-{number}", prompt="again", answer="1") for number in range(18))]
    assert {task.id for task in hold_out("mine", tasks, None, seed=0)[1]} == {"0", "1"}


def test_a_split_gives_256_or_all_that_there_are() -> None:
    assert take_eval("mine", TASKS, None, seed=0) == take_eval("mine", TASKS, 0, seed=3) == tuple(TASKS)
    tasks = [Task(id=f"{number}", prompt=f"{number}+0=", answer=f"{number}") for number in range(300)]
    assert take_eval("mine", tasks, None, seed=0) == take_eval("mine", tasks, 256, seed=0)


def test_all_of_its_own_split_needs_one() -> None:
    with pytest.raises(UsageError, match=r"1 \.\. 19 or add rows \(0 is for sets with a test split of their own\)"):
        hold_out("mine", TASKS, 0, seed=0)


def test_questions_on_both_sides_are_not_trained_on() -> None:
    chat = ({"role": "user", "content": "twice"},)
    twice = [Task(id=f"chat-{number}", prompt=chat, answer="1") for number in range(2)]
    kept, notes = without_held_out([*TASKS[:4], twice[0]], [TASKS[1], TASKS[7], twice[1]])
    assert kept == (TASKS[0], TASKS[2], TASKS[3])
    assert notes == ("2 of 5 training questions are also in the test split and are left out of training",)
    assert without_held_out(TASKS[:2], TASKS[2:]) == (tuple(TASKS[:2]), ())


def test_ids_in_both_parts_are_refused_with_their_number_and_the_first_of_them() -> None:
    leaking = TaskSet(name="mine", train=TASKS[4:], eval=tuple(TASKS[:9]))
    with pytest.raises(UsageError, match=r"'mine': .* share 5 ids \('4', '5', '6', …\)"):
        held_apart(leaking)
    apart = replace(leaking, train=TASKS[9:])
    assert held_apart(apart) == apart


def test_of_a_set_made_on_demand_no_task_that_is_held_out_can_be_read() -> None:
    made: list[int] = []

    def make(place: int) -> Task:
        made.append(place)
        return TASKS[place % 20]

    huge = TaskSet(name="mine", train=TasksOnDemand(range(10**9), make), eval=(TASKS[7],))
    train = held_apart(huge).train
    assert (len(train), made) == (10**9, [])
    assert train[10**9 - 12] == TASKS[8]
    with pytest.raises(UsageError, match=r"share 1 id \('7'\)"):
        train[10**9 - 13]
    with pytest.raises(UsageError, match=r"\('7'\)"):
        list(train[5:9])


def test_a_held_out_text_under_another_id_is_counted() -> None:
    again = [replace(task, id=f"again {task.id}") for task in TASKS[:3]]
    assert held_apart(
        TaskSet(name="mine", train=[*again, *TASKS[5:]], eval=tuple(TASKS[:2]), notes=("old",))
    ).notes == (
        "old",
        "2 of 18 training questions have texts of held-out ones, under another id: they are trained on",
    )
