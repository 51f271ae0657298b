"""Tasksets made of verifiers' own classes as task sets: what they ask, what their rewards give, what is an error."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from podsrl.errors import UnavailableError, UsageError
from podsrl.integrations.verifiers import REWARD, load, reward, task_set
from podsrl.score import Scorer
from podsrl.tasks import load_tasks
from podsrl.types import Rollout, Task

is_installed = importlib.util.find_spec("verifiers") is not None
Write = Callable[[str], str]
needs_verifiers = pytest.mark.skipif(not is_installed, reason="verifiers is not installed (make test-peers)")

SUMS = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Config(vf.TaskConfig):
    bonus: float = 0.25


class Sum(vf.Task[Data, vf.State, Config]):
    @vf.reward
    async def right(self, task, trace) -> float:
        return float(task.answer in trace.last_reply)

    @vf.reward(weight=0.5)
    async def parts(self, trace) -> dict[str, float]:
        return {"short": float(len(trace.last_reply) < 9), "asked": float("+" in trace.messages[-2].content)}

    @vf.reward
    async def bonus(self, trace) -> float:
        if trace.last_reply == "boom":
            raise ValueError("out of luck")
        return self.config.bonus * trace.num_turns

    @vf.metric
    async def length(self, trace) -> float:
        return len(trace.last_reply)


class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for a in range(5):
            for b in range(5):
                yield Sum(Data(prompt=f"{a}+{b}=", answer=str(a + b)))


__all__ = ["Sums"]
"""
ONE = """
import verifiers.v1 as vf
class Other(vf.Task):
{body}
    @vf.reward
    async def good(self, trace{more}) -> float:
        return 1.0
class Others(vf.Taskset[Other, vf.TasksetConfig]):
    {taskset}
    def load(self):
        return [Other(vf.TaskData(**{data})) for _ in range(2)]
__all__ = ["Others"]
"""


def test_without_verifiers_there_is_one_line_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1.utils", None)
    with pytest.raises(UnavailableError, match=r"0\.4.*pip install 'podsrl\[verifiers\]'"):
        load(path="sums", num_eval=4, seed=0)


def test_a_column_names_only_a_class_of_tasks_and_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", ModuleType("verifiers"))
    monkeypatch.setitem(sys.modules, "verifiers.v1", ModuleType("verifiers.v1"))
    monkeypatch.setitem(sys.modules, "verifiers.v1.task", module := ModuleType("verifiers.v1.task"))
    module.Task = type("Task", (), {})  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "this", raising=False)
    for kind in ("this:d", "builtins:print", "collections:OrderedDict", "os", "verifiers.v1.task:No"):
        columns = {"verifiers_task": kind, "verifiers_data": "{}", "verifiers_config": "{}"}
        with pytest.raises(UsageError, match=rf"verifiers_task = '{kind}'.*below verifiers' Task"):
            reward(Task(id="a", prompt="?", answer="", columns=columns), "1")
    assert "this" not in sys.modules


@needs_verifiers
def test_questions_are_held_out_and_rewards_are_those_of_verifiers(write: Write) -> None:
    name = write(SUMS)
    tasks = load_tasks("podsrl.integrations.verifiers:load", path=name, chat=False, seed=3)
    assert (len(tasks.train), len(tasks.eval)) == (20, 5)
    task = next(task for task in tasks.train if task.prompt == "2+1=")
    assert (task.id, task.answer) == (f"{name}/11", "3")
    assert tasks.rewards == {REWARD: 1.0} and tasks.correct == REWARD and tasks.format is None and tasks.notes == ()
    assert reward(task, "it is 3 ") == 1 + 0.5 + 0.5 + 0.25
    assert reward(task, "I do not know") == 0.5 + 0.25
    with pytest.raises(ValueError, match="out of luck"):
        reward(task, "boom")


@needs_verifiers
def test_as_chat_the_trace_has_the_messages_that_the_policy_got(write: Write) -> None:
    name = write(SUMS)
    for options in ({}, {"system_prompt": "Be brief."}):
        task = load_tasks("podsrl.integrations.verifiers:load", path=name, num_eval=3, **options).train[0]
        assert task.prompt[-1] == {"role": "user", "content": "0+0="} and len(task.prompt) == 1 + len(options)
        assert reward(task, "0") == 2.25


@needs_verifiers
def test_a_loader_of_ones_own_gives_the_taskset_its_config(write: Write) -> None:
    sums = importlib.import_module(write(SUMS))
    import verifiers.v1 as vf

    train = sums.Sums(vf.TasksetConfig())
    tasks = task_set(train.skip(5), train.take(5), name="split")
    assert (len(tasks.train), len(tasks.eval)) == (20, 5)
    assert tasks.eval[0].id == "split/eval/0" and tasks.chat


@needs_verifiers
def test_workers_judge_within_limits_and_a_failure_is_one_rollouts_own(write: Write) -> None:
    name = write(SUMS)
    task = load_tasks("podsrl.integrations.verifiers:load", path=name, chat=False).train[1]
    texts = ["1", "boom", "7"]
    completions = [
        Rollout(group_id="r", index=i, token_ids=(1,), logprobs=(0.0,), finish_reason="stop", version=0)
        for i in range(3)
    ]
    with Scorer({REWARD: 1.0}, correct=REWARD, workers=1) as scorer:
        assert scorer.has_workers
        [rollouts] = scorer.score([task], [completions], [texts])
    assert [rollout.reward for rollout in rollouts][::2] == [2.25, 1.25]
    assert [rollout.is_valid for rollout in rollouts] == [True, False, True]
    assert f"out of luck ({name}.py" in str(rollouts[1].invalid_reason)


@needs_verifiers
def test_two_steps_of_training(write: Write, pods: Callable[..., tuple[int, str, str]]) -> None:
    name = write(SUMS)
    code, _, err = pods(
        *("train", "pods", "--task.name=podsrl.integrations.verifiers:load", f"--task.path={name}"),
        *("--task.chat=false", "--rollouts.num_prompts=2", "--rollouts.num_rollouts=8", "--select.num_kept=4"),
        *("--rollouts.max_new_tokens=8", "--eval.every_seconds=0", "--stop.seconds=0", "--stop.steps=2"),
        *("--model.device=cpu", "--out=run"),
    )
    assert code == 0, err
    steps = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    steps = [step for step in steps if "reward/all" in step]
    assert len(steps) == 2
    assert all(0.25 <= step["reward/all"] <= 2.25 for step in steps)


@needs_verifiers
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"body": "    NEEDS_CONTAINER = True"}, "container"),
        ({"data": {"prompt": "?", "image": "python:3.11"}}, "container"),
        ({"data": {"prompt": None}}, "user opens"),
        ({"data": {"prompt": [{"role": "tool", "tool_call_id": "a", "content": "b"}]}}, "tools"),
        ({"more": ", runtime"}, "'good' reads a runtime"),
        ({"body": "    async def setup(self, trace, runtime): ..."}, "'setup'"),
        ({"body": "    @vf.stop\n    async def enough(self, trace: vf.Trace) -> bool: return True"}, "turns"),
        ({"body": "    @classmethod\n    def toolsets(cls, config): return [object()]"}, "tools"),
        ({"taskset": "INFINITE = True"}, "without end"),
        ({"taskset": "toolsets = classmethod(lambda cls, config: [object()])"}, "tools"),
    ],
)
def test_more_than_one_completion_is_refused(changes: dict[str, object], named: str, write: Write) -> None:
    parts = {"body": "", "more": "", "taskset": "", "data": {"prompt": "?"}} | changes
    name = write(ONE.format(**parts))
    with pytest.raises(UsageError, match=f"{name}.*{named}.*wanted tasks whose answer is one completion"):
        load_tasks("podsrl.integrations.verifiers:load", path=name)


@needs_verifiers
@pytest.mark.parametrize(
    ("text", "named"), [("1 / 0", "ZeroDivisionError"), ("load_environment = print", "__all__"), (None, "not found")]
)
def test_what_is_no_taskset_is_one_line(text: str | None, named: str, write: Write) -> None:
    name = write(text) if text else "there_is_none"
    with pytest.raises(UsageError, match=f"task.path = '{name}'.*{named}"):
        load_tasks("podsrl.integrations.verifiers:load", path=name)


@needs_verifiers
def test_weights_that_no_answer_could_make_correct_are_a_warning(write: Write) -> None:
    name = write(SUMS.replace("@vf.reward\n", "@vf.reward(weight=0.125)\n"))
    [note] = load_tasks("podsrl.integrations.verifiers:load", path=name).notes
    assert "0.75" in note and "task.correct" in note
