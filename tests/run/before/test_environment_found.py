"""What a run says of its environment before it begins."""

from __future__ import annotations

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.before.environment import find_environment, turn_notes
from podsrl.tasks import load_tasks


def test_without_an_environment_a_bound_on_turns_is_said_to_change_nothing() -> None:
    tasks = load_tasks("arithmetic", digits=1, num_eval=4)
    for options, said in (([], ()), (["task.max_turns=3"], ("task.max_turns changes nothing here",))):
        config = load_config("pods", options)
        environment, warnings = find_environment(config, tasks, tasks.eval[0])
        assert environment is None and turn_notes(config, environment) == ()
        assert [warning.partition(":")[0] for warning in warnings] == [*said]


@pytest.mark.parametrize("own", [(), ("task.environment=environments:echo",)])
def test_the_sets_own_environment_is_taken_unless_another_is_named(own: tuple[str, ...]) -> None:
    config = load_config("columns", [*own, "task.reward_workers=1"])
    tasks = load_tasks("columns", digits=1, num_eval=4)
    environment, warnings = find_environment(config, tasks, tasks.eval[0])
    assert environment is not None and warnings == ()
    name = "environments:echo" if own else "columns"
    assert turn_notes(config, environment) == (
        f"{name} answers the model's turns, at most 8 turns per rollout (task.max_turns)",
    )
    environment.close()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("environments:three_arguments", "takes .*wanted a function reply"),
        ("conversations:Mute", "is a class without a method hear; wanted"),
        ("conversations:nothing", "started None, which has no method hear, when it was started for task '.*'; wanted"),
        ("conversations:breaks", r"raised ValueError: no such door \(conversations.py, line .*wanted"),
        ("conversations:sleeps", "took longer than 0.5 s and was stopped, when it was started for task"),
        ("conversations:Bytes", "returned b'x', not a text; wanted"),
    ],
)
def test_what_cannot_answer_is_one_line(name: str, match: str) -> None:
    options = [f"task.environment={name}", "task.reward_workers=1", "task.reward_timeout_seconds=0.5"]
    tasks = load_tasks("columns", digits=1, num_eval=4)
    with pytest.raises(UsageError, match=f"^task.environment = '{name}'.*{match}") as error:
        find_environment(load_config("columns", options), tasks, tasks.eval[0])
    assert "\n" not in str(error.value)


def test_tools_are_taken_and_tried() -> None:
    config = load_config("pods", ["task.tools=kitchen:price,kitchen:weigh", "task.chat=true", "task.reward_workers=1"])
    tasks = load_tasks("arithmetic", digits=1, num_eval=4, chat=True)
    environment, warnings = find_environment(config, tasks, tasks.eval[0])
    assert environment is not None and warnings == () and [*environment.tools] == ["price", "weigh"]
    environment.close()
