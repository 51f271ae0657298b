"""An environment in its worker processes: whatever it does, one call alone is lost."""

from __future__ import annotations

import math

import pytest

from podsrl.errors import UsageError
from podsrl.score import Environment, Reply, Scorer
from podsrl.score.base import Fault
from podsrl.score.workers.turns import read_reply
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
    ("value", "found"),
    [
        (("go", 1), Reply(("go",), reward=1.0)),
        ((None, 0.5), Reply(reward=0.5)),
        (("go", None), Reply(("go",))),
        (("go", math.nan), "environment 'mine' returned nan, not a finite number"),
        (("go", "1"), "environment 'mine' returned '1' (str), not a number"),
        ((b"go", 1.0), "environment 'mine' returned b'go', not a text"),
        ((("go", 1.0), 2.0), "environment 'mine' returned ('go', 1.0), not a text"),
        (("go", 1.0, 2.0), "environment 'mine' returned ('go', 1.0, 2.0), not a text"),
    ],
)
def test_a_reply_may_have_a_reward(value: object, found: object) -> None:
    reply = read_reply("mine", value)
    assert (reply.reason if isinstance(reply, Fault) else reply) == found


def test_the_reward_environment_has_the_weight_1() -> None:
    with pytest.raises(UsageError, match=r"weight of 'environment' is 0\.5; wanted 1"):
        Scorer({"environment": 0.5}, correct="environment")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gym", "task.environment = 'gym' is no environment"),
        ("environments:nothing", "no 'nothing' in 'environments'"),
        ("environments:three_arguments", r"takes \(task: .*wanted a function reply\(task, turns\)"),
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
