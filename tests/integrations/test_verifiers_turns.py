"""Environments of verifiers: what they say and give, by hand, and what cannot be played."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.integrations.verifiers_turns import REPLY, reply
from podsrl.score import EARNED, Environment
from podsrl.score.base import Fault
from podsrl.tasks import load_tasks
from podsrl.types import Task

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed (make test-peers)"
)
Write = Callable[[str], str]
GUESS = """
import random

import verifiers.v1 as vf


class Data(vf.TaskData):
    number: int


class Number(vf.Task[Data]):
    @vf.reward(weight=0.5)
    async def few(self, trace) -> float:
        return 1 / max(1, trace.num_turns)


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class Guess(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        mood = random.choice(["warm", "hot"])
        try:
            async with agents.player.interaction(task) as talk:
                said = await talk.turn()
                while not said.terminated:
                    guess = int(said.last_reply)
                    if guess == task.data.number:
                        talk.trace.record_reward("found", 1.0)
                        break
                    said = await talk.turn(f"{mood}: {'higher' if guess < task.data.number else 'lower'}\\n")
        except Exception:
            raise  # an environment may catch what its own code raises

    async def finalize(self, task, episode):
        [trace] = episode.traces
        if trace.num_turns > 2:
            trace.record_reward("slow", -0.25)


class Numbers(vf.Taskset[Number, vf.TasksetConfig]):
    def load(self):
        for number in range(10):
            yield Number(Data(prompt=f"Game {number}: which number?\\n", number=number))


__all__ = ["Numbers", "Guess"]
"""


def tasks_of(name: str, **options: Any) -> Any:
    return load_tasks("podsrl.integrations.verifiers:load", path=name, **options)


def game(name: str, number: int) -> Task:
    tasks = tasks_of(name)
    return next(
        task for task in (*tasks.train, *tasks.eval) if json.loads(task.columns["verifiers_data"])["number"] == number
    )


def test_the_set_brings_its_environment_which_gives_the_rewards(write: Write) -> None:
    tasks = tasks_of(write(GUESS))
    assert (tasks.environment, tasks.rewards, tasks.correct) == (REPLY, {EARNED: 1.0}, EARNED)
    assert (len(tasks.train), len(tasks.eval), tasks.chat, tasks.notes) == (8, 2, True, ())
    assert {task.prompt[0]["content"][:5] for task in tasks.eval} == {"Game "}


def test_replies_and_rewards_by_hand(write: Write) -> None:
    """few: 0.5, 0.25, 0.5 / 3 after one, two and three turns; slow: from the third on; found: 1."""
    task = game(write(GUESS), 4)
    said = [reply(task, turns) for turns in (["0"], ["0", "9"], ["0", "9", "4"])]
    mood = str(said[0][0]).partition(":")[0]
    assert [text for text, _ in said] == [f"{mood}: higher\n", f"{mood}: lower\n", None]
    assert [gain for _, gain in said[:2]] == [0.5, -0.25]
    assert sum(gain for _, gain in said) == pytest.approx(0.5 / 3 - 0.25 + 1, abs=2**-30)
    assert reply(task, ["4"]) == (None, 1.5)


def test_what_it_draws_is_the_same_at_every_turn_and_in_a_worker(write: Write) -> None:
    name = write(GUESS)
    tasks = [game(name, number) for number in range(1, 9)]
    moods = [str(reply(task, ["0"])[0]).partition(":")[0] for task in tasks]
    assert {*moods} == {"warm", "hot"}
    assert moods == [str(reply(task, ["0"] * 3)[0]).partition(":")[0] for task in tasks]
    environment = Environment(REPLY, workers=1)
    found = [environment.reply(environment.ask(task, ["0"])) for task in tasks]
    lost = environment.reply(environment.ask(tasks[0], ["zero"]))
    environment.close()
    assert [(each.texts[0], each.reward) for each in found if not isinstance(each, Fault)] == [
        reply(task, ["0"]) for task in tasks
    ]
    assert isinstance(lost, Fault) and f"invalid literal for int() with base 10: 'zero' ({name}.py" in lost.reason


def test_the_environment_may_speak_first_and_hide_the_tasks_prompt(write: Write) -> None:
    text = GUESS.replace(
        "agents.player.interaction(task)",
        'agents.player.interaction(type(task)(task.data.model_copy(update={"prompt": None}), task.config))',
    ).replace("await talk.turn()", 'await talk.turn("My number is " + str(task.data.number) + ". Say it.")')
    task = game(write(text), 3)
    assert task.prompt == ({"role": "user", "content": "My number is 3. Say it."},)
    assert reply(task, ["3"]) == (None, 1.5) and str(reply(task, ["2"])[0]).endswith("higher\n")


def test_the_agents_own_bound_on_turns_ends_the_conversation(write: Write) -> None:
    task = game(write(GUESS.replace("= vf.AgentConfig()", "= vf.AgentConfig(max_turns=2)")), 4)
    assert [reply(task, ["0"] * count)[0] is None for count in (1, 2)] == [False, True]


def test_two_steps_of_training(write: Write, pods: Callable[..., tuple[int, str, str]]) -> None:
    """The model's sums are no numbers: the environment here reads the last digit of whatever is said."""
    name = write(GUESS.replace("int(said.last_reply)", "sum(map(ord, said.last_reply)) % 10"))
    code, _, err = pods(
        *("train", "pods", "--task.name=podsrl.integrations.verifiers:load", f"--task.path={name}"),
        *("--task.chat=false", "--rollouts.num_prompts=2", "--rollouts.num_rollouts=8", "--select.num_kept=4"),
        *("--rollouts.max_new_tokens=120", "--task.max_turns=3", "--eval.every_seconds=0", "--stop.seconds=0"),
        *("--task.reward_workers=1", "--stop.steps=2", "--model.device=cpu", "--systems=gigpo", "--out=run"),
    )
    assert code == 0, err
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "reward/all" in line]
    assert len(steps) == 2 and all(1 < step["turns/mean"] <= 3 and step["tokens/given"] for step in steps)
    assert all(-0.25 <= step["reward/all"] <= 1.5 and step["rollouts/invalid"] == 0 for step in steps)


SEAT = "player: vf.AgentConfig = vf.AgentConfig()"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ((SEAT, f"{SEAT}\n    judge: vf.AgentConfig = vf.AgentConfig()"), "several agents: player, judge"),
        (("    async def finalize", "    async def start(self): ...\n\n    async def finalize"), "hook 'start'"),
        (("said = await talk.turn()", "return"), "asks its agent nothing"),
        (("await talk.turn()", 'await talk.turn([{"role": "user", "content": "?"}])'), "other messages than texts"),
        (("        mood =", "        await agents.player.run(task)\n        mood ="), None),
    ],
)
def test_what_cannot_be_played_is_named(changes: tuple[str, str], named: str | None, write: Write) -> None:
    name = write(GUESS.replace(*changes))
    if named is None:  # seen when the first talk is over
        with pytest.raises(UsageError, match="more than once per task"):
            reply(tasks_of(name).train[0], ["1"])
        return
    with pytest.raises(UsageError, match=f"{name}.*{named}"):
        tasks_of(name)
