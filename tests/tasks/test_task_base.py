import pytest

from podsrl.errors import UsageError
from podsrl.tasks import TaskSet
from podsrl.types import Task

TASK = Task(id="a", prompt="1+2=", answer="3")


def test_a_task_set_that_holds_nothing_out_is_refused() -> None:
    with pytest.raises(UsageError, match="'mine' has no eval tasks"):
        TaskSet(name="mine", train=[TASK], eval=())


def test_a_task_set_may_be_for_evaluation_only() -> None:
    assert TaskSet(name="mine", train=(), eval=(TASK,)).train == ()
