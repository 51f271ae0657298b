"""An environment in its worker processes: whatever it does, one call alone is lost."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.score import Environment, Reply
from podsrl.score.base import Fault
from podsrl.types import Task

TASK = Task(id="a", prompt="7+5", answer="12")


def test_calls_that_end_badly_are_faults_of_their_own_and_random_numbers_those_of_what_was_said() -> None:
    environment = Environment("environments:worst", workers=1, timeout_seconds=1)
    texts = ("hello", "hang", "die", "exit", "greedy", "bye")
    turns = (*(["x", text] for text in texts), ["draw"], ["draw"], ["x", "draw"])
    replies = [environment.reply(job) for job in [environment.ask(TASK, said) for said in turns]]
    environment.close()
    assert replies[0] == replies[5] == Reply(("12 2",))
    reasons = [
        reply.reason.removeprefix("environment 'environments:worst'") for reply in replies if isinstance(reply, Fault)
    ]
    assert len(reasons) == 4
    assert reasons[0].startswith(" took longer than 1 s") and reasons[1] == ": its worker died (exit code 7)"
    assert reasons[2].startswith(" raised SystemExit: 0") and reasons[3].startswith(" raised MemoryError")
    assert replies[6] == replies[7] != replies[8]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gym", "task.environment = 'gym' is no environment"),
        ("environments:nothing", "no 'nothing' in 'environments'"),
        ("environments:one_argument", r"takes \(task: .*wanted a function reply\(task, turns\)"),
    ],
)
def test_what_is_no_environment_is_named(name: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Environment(name)


def test_one_that_gives_no_text_is_refused_before_a_run() -> None:
    environment = Environment("operator:is_", workers=1)
    with pytest.raises(UsageError, match=r"'operator:is_' returned False, not a text; wanted a function reply"):
        environment.probe(TASK)
    environment.close()
