from collections.abc import Sequence
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.tasks import SYSTEM_PROMPTS
from podsrl.tasks.base import TaskSet
from podsrl.tasks.chat import ask
from podsrl.types import Task

TEXT = Task(id="text", prompt="1+2=\n", answer="3", columns={"level": 1})
CHAT = Task(id="chat", prompt=({"role": "user", "content": "2+2="},), answer="4")
OWN_SYSTEM = Task(
    id="own", prompt=({"role": "system", "content": "Be kind."}, {"role": "user", "content": "5+5="}), answer="10"
)


def tasks_of(*tasks: Task, chat: bool = False) -> TaskSet:
    return TaskSet(name="mine", train=tasks, eval=tasks[:1], chat=chat)


@pytest.mark.parametrize(("own", "chosen"), [(True, None), (False, True), (True, True)])
def test_a_text_prompt_becomes_a_message_without_its_line_break(own: bool, chosen: bool | None) -> None:
    asked = ask(tasks_of(TEXT, chat=own), chat=chosen)
    for task in (*asked.train, *asked.eval):
        assert task == Task(id="text", prompt=({"role": "user", "content": "1+2="},), answer="3", columns={"level": 1})


@pytest.mark.parametrize(("own", "chosen"), [(True, False), (False, None), (False, False)])
def test_without_chat_a_text_prompt_stays_as_it_is(own: bool, chosen: bool | None) -> None:
    asked = ask(tasks_of(TEXT, chat=own), chat=chosen)
    assert (asked.train, asked.eval) == ((TEXT,), (TEXT,))


@pytest.mark.parametrize("chosen", [None, True])
def test_messages_stay_messages(chosen: bool | None) -> None:
    for task in (CHAT, OWN_SYSTEM):
        assert ask(tasks_of(task), chat=chosen).train == (task,)


@pytest.mark.parametrize(
    ("task", "chat", "system_prompt", "message"),
    [
        (CHAT, False, None, r"task.chat = false, but task 'chat' is chat messages"),
        (TEXT, None, "Be brief.", r"is set, but task 'text' is asked as plain text: set task"),
        (TEXT, False, "Be brief.", r"is set, but task 'text' is asked as plain text: set task"),
        (OWN_SYSTEM, None, "Be brief.", r"task 'own' has a system message of its own: leave one of them out"),
        (CHAT, None, "pods_single_gpus", r"'pods_single_gpus' is unknown. Did you mean 'pods_single_gpu'\?"),
        (CHAT, None, " ", r"task.system_prompt is empty; leave it out for none"),
    ],
)
def test_what_cannot_be_asked_so_is_refused(
    task: Task, chat: bool | None, system_prompt: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ask(tasks_of(task), chat=chat, system_prompt=system_prompt)


def test_a_system_prompt_comes_first() -> None:
    asked = ask(tasks_of(TEXT, CHAT), chat=True, system_prompt="Be brief.")
    system = {"role": "system", "content": "Be brief."}
    assert [task.prompt for task in asked.train] == [
        (system, {"role": "user", "content": "1+2="}),
        (system, {"role": "user", "content": "2+2="}),
    ]


@pytest.mark.parametrize("name", ["pods_single_gpu", "pods_multi_gpu"])
def test_known_system_prompts_ask_for_the_tags_that_the_rewards_look_for(name: str) -> None:
    asked = ask(tasks_of(CHAT), system_prompt=name).eval[0].prompt
    assert asked[0] == {"role": "system", "content": SYSTEM_PROMPTS[name]}
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert tag in SYSTEM_PROMPTS[name]


class OnDemand(Sequence[Task]):
    """Counts what it makes; does not know slices, as a user's own need not."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError
        self.made += 1
        return Task(id=f"{index}", prompt=f"{index}+1=\n", answer=f"{index + 1}")


def test_a_set_that_makes_tasks_on_demand_goes_on_doing_so() -> None:
    train = OnDemand()
    asked = ask(TaskSet(name="many", train=train, eval=(TEXT,)), chat=True).train
    assert (len(asked), train.made) == (1_000_000, 0)
    assert asked[41].prompt == ({"role": "user", "content": "41+1="},)
    assert [task.id for task in asked[1_000_000 - 4 :: 2]] == ["999996", "999998"]
    assert train.made == 3
