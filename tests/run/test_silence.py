"""Steps that teach nothing: what a run says of them, and when it stops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.due import Due
from podsrl.run.health import first_look
from podsrl.run.loop import train
from podsrl.run.saving.folder import RunFolder
from podsrl.run.silence import NothingToLearn, Silence
from podsrl.run.step.counters import Progress
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group, made_up_group
from runs import config_of, newest


def answers(**changes: Any) -> Group:
    """Four answers, each with the changes."""
    group = made_up_group("q", 4)
    return replace(group, rollouts=tuple(replace(rollout, **changes) for rollout in group.rollouts))


def some_right(reward: float) -> Group:
    """One of four, and all get the same."""
    group = answers(reward=reward, is_correct=False)
    return replace(group, rollouts=(replace(group.rollouts[0], is_correct=True), *group.rollouts[1:]))


def cut(group: Group) -> Group:
    completions = [replace(rollout, finish_reason="length") for rollout in group.rollouts]
    return replace(group, rollouts=tuple(completions))


WRONG, RIGHT = answers(reward=0.0, is_correct=False), answers(reward=1.0, is_correct=True)
INVALID = answers(reward=float("nan"), is_correct=False, invalid_reason="no judge today")


def step(number: int, *groups: Group, left_out: tuple[Group, ...] = (), has_signal: bool = False) -> Any:
    return SimpleNamespace(
        progress=Progress(step=number),
        groups=groups,
        left_out=left_out,
        samples=[SimpleNamespace(has_advantage=has_signal)],
        load=SimpleNamespace(num_waiting=int(not groups)),
        is_empty=all(not rollout.is_valid for group in groups for rollout in group.rollouts),
    )


def said_of(*groups: Group, left_out: tuple[Group, ...] = ()) -> str:
    """After three steps."""
    said: list[str] = []
    silence = Silence(20, Due(last_valid_step=9), said.append)
    for number in (1, 2, 3):
        assert said == []
        silence.take(step(number, *groups, left_out=left_out))
    [line] = said
    return line


def test_the_reason_is_named_with_its_cure_and_an_answer() -> None:
    for line, reason, cure in (
        (said_of(WRONG, WRONG), "all answers are wrong", "easier questions"),
        (said_of(cut(WRONG)), "all answers are cut at the token limit", "rollouts.max_new_tokens"),
        (said_of(INVALID), "all rewards are invalid", "pods check-reward"),
        (said_of(WRONG, RIGHT), "rewards within a group are equal", "neither always solves nor never"),
        (
            said_of(some_right(1.0), *[answers(reward=1.0, is_correct=False)] * 39),
            "all rewards are 1, though 3 of 480",
            "tell",
        ),
        (said_of(some_right(0.0), WRONG), "all rewards are 0, though 3 of 24 answers are correct", "check-reward"),
        (said_of(some_right(0.0), INVALID, INVALID), "67% of the rewards are invalid", "pods check-reward"),
        (said_of(left_out=(some_right(0.5),)), "all rewards are 0.5, though", "tell"),
        (said_of(left_out=(WRONG,)), "systems left out every group", "without that system"),
        (said_of(left_out=(INVALID,)), "all rewards are invalid", "no judge today"),
        (said_of(*[WRONG] * 39, RIGHT), "98% of the answers are wrong", "easier questions"),
    ):
        assert line.startswith("warning: the last 3 steps") and reason in line and cure in line, line
        assert "'3 + 4 =' -> '7' (reference '7')" in line, line


def test_what_the_first_step_s_answers_earn_is_told_and_what_to_do_where_none_does() -> None:
    right, unformed = answers(reward=1.0, is_correct=True), answers(reward=0.5, is_formatted=False)
    assert first_look((WRONG, right, INVALID), has_form=False) == "4 of 12 sampled answers earn something"
    both = first_look((right, unformed), has_form=True)
    assert both == "8 of 8 sampled answers earn something, and 4 have the wanted form"
    assert "pods check-reward" in first_look((INVALID,), has_form=False)
    nothing = first_look((WRONG, answers(reward=-0.5, is_correct=False)), has_form=False)
    assert nothing.startswith("0 of 8 sampled answers earn something: ")
    assert all(option in nothing for option in ("task.name", "task.system_prompt", "model.path"))


def test_a_run_tells_it_after_its_first_step_alone(tmp_path: Path) -> None:
    assert [line for line in run_of(tmp_path, stop_at=2)[1] if "sampled answers" in line] == [
        "4 of 4 sampled answers earn something"
    ]
    assert not any("sampled answers" in line for line in run_of(tmp_path, resumes=True)[1])


def test_a_solved_task_is_no_warning() -> None:
    for line in (said_of(RIGHT), said_of(cut(RIGHT)), said_of(left_out=(RIGHT,))):
        assert "warning" not in line and "all answers are correct" in line and "num_rollouts" not in line


def test_it_is_said_once_and_again_at_the_end() -> None:
    said: list[str] = []
    silence = Silence(0, Due(), said.append)
    for number in range(1, 31):
        groups = (WRONG,) if number < 25 else ()  # then all wait
        silence.take(step(number, *groups, has_signal=number == 5))
        assert not silence.is_end(Progress(step=number))
    assert len(said) == 1
    silence.say(Progress(step=30))
    assert len(said) == 2 and "the last 25 steps" in said[1]


def test_a_signal_in_time_keeps_a_run_from_stopping() -> None:
    ends = {
        signal: [number for number in range(1, 9) if ended(signal, number)] for signal in (0, 4, 5)
    }  # without_signal = 4
    assert ends == {0: [4, 5, 6, 7, 8], 4: [], 5: [4]}


def ended(signal: int, number: int) -> bool:
    silence = Silence(4, Due(), lambda line: None)
    for each in range(1, number + 1):
        silence.take(step(each, WRONG, has_signal=each == signal))
    return silence.is_end(Progress(step=number))


# --- whole runs ---


def run_of(
    folder: Path, *options: str, limit: int = 5, stop_at: int = -1, resumes: bool = False
) -> tuple[int, list[str]]:
    """Train where every reward is the same; its last step, and what was said."""
    rewards = 'task.rewards={"light_rewards:constant" = 1.0}'
    small = ("rollouts.num_prompts=1", "rollouts.num_rollouts=4", "select.num_kept=2", "rollouts.max_new_tokens=2")
    rest = ("task.num_eval=1", "stop.steps=7", f"stop.without_signal={limit}")
    trainer, due = Trainer(config_of(rewards, *small, *rest, *options)), Due()
    logs, said = RunFolder(folder), list[str]()
    if resumes:
        checkpoint = newest(logs.checkpoints)
        trainer.load(checkpoint)
        due = Due(**checkpoint.state["schedule"])
    else:
        logs.create("")
    try:
        train(
            trainer,
            logs,
            due,
            on_record=lambda record: None,
            should_stop=lambda: trainer.progress.step == stop_at,
            say=said.append,
        )
    except NothingToLearn as error:
        said.append(f"stopped: {error}")
    return trainer.progress.step, said


def test_a_run_that_learns_nothing_stops_at_one_step_whether_it_is_resumed_or_not(tmp_path: Path) -> None:
    last, [_, *said] = run_of(tmp_path / "whole")
    assert last == 5 and [path.name for path in (tmp_path / "whole" / "checkpoints").iterdir()] == ["step-00000005"]
    assert "the last 3 steps" in said[0] and said[1].startswith("stopped: none of 5 steps")
    assert run_of(tmp_path / "parts", stop_at=2)[0] == 2
    last, said = run_of(tmp_path / "parts", resumes=True)
    assert last == 5 and said[-1].startswith("stopped: none of 5 steps") and "--stop.without_signal=0" in said[-1]
    assert run_of(tmp_path / "parts", resumes=True)[0] == 5
    assert run_of(tmp_path / "parts", limit=0, resumes=True)[0] == 7


def test_a_hard_set_with_mixed_groups_alone_goes_on_after_its_first_steps(tmp_path: Path) -> None:
    last, [_, *said] = run_of(tmp_path, "systems=mixed", limit=0)
    assert last == 7 and len(said) == 2 and all("taught nothing" in line for line in said)


def test_the_option_alone_leaves_the_run_its_steps() -> None:
    assert load_config("grpo", ["stop.without_signal=0"]).stop.without_signal == 0
    for bad in ("-1", "1.5", "x"):
        with pytest.raises(UsageError, match=r"stop\.without_signal"):
            load_config("pods", [f"stop.without_signal={bad}"])
