"""What a run says of its environment before it begins."""

from __future__ import annotations

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.before.environment import check_earned, find_environment, turn_notes
from podsrl.tasks import load_tasks


def test_without_an_environment_a_bound_on_turns_is_said_to_change_nothing() -> None:
    tasks = load_tasks("arithmetic", digits=1, num_eval=4)
    for options, said in (([], ()), (["task.max_turns=3"], ("task.max_turns changes nothing here",))):
        config = load_config("pods", options)
        environment, warnings = find_environment(config, tasks, tasks.eval[0])
        assert environment is None and turn_notes(config, environment) == ()
        assert [warning.partition(":")[0] for warning in warnings] == [*said]


def test_what_looks_at_rollouts_while_they_are_written_is_refused() -> None:
    tasks, plain = load_tasks("columns", digits=1, num_eval=4), load_config("columns", [])
    config = plain.model_copy(update={"steer": plain.steer.model_copy(update={"prune": "mine:prune"})})
    with pytest.raises(UsageError, match=r"steer.prune = 'mine:prune'.*task.environment = 'columns'.*leave one of"):
        find_environment(config, tasks, tasks.eval[0])


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


def test_tools_are_taken_and_tried() -> None:
    config = load_config("pods", ["task.tools=kitchen:price,kitchen:weigh", "task.chat=true", "task.reward_workers=1"])
    tasks = load_tasks("arithmetic", digits=1, num_eval=4, chat=True)
    environment, warnings = find_environment(config, tasks, tasks.eval[0])
    assert environment is not None and warnings == () and [*environment.tools] == ["price", "weigh"]
    environment.close()


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("columns", ["kitchen:price"], "and task.environment = 'columns' both answer the model's turns: leave one of"),
        ("arithmetic", ["kitchen:price", "task.environment=environments:echo"], "and task.environment = 'env.* both"),
        ("arithmetic", ["kitchen:price"], "questions are plain text: set task.chat = true"),
        ("arithmetic", ["kitchen:spoon", "task.chat=true"], "no 'spoon' in 'kitchen'"),
    ],
)
def test_tools_that_cannot_be_used_are_named(name: str, options: list[str], match: str) -> None:
    config = load_config("pods", [f"task.tools={options[0]}", *options[1:]])
    tasks = load_tasks(name, digits=1, num_eval=4, chat=config.task.chat)
    with pytest.raises(UsageError, match=match):
        find_environment(config, tasks, tasks.eval[0])


def test_the_reward_of_an_environment_wants_one() -> None:
    check_earned(None, {"correct", None})
    with pytest.raises(UsageError, match=r"'environment' is what task.environment gives.*: name a function there"):
        check_earned(None, {"environment"})
