"""What a person is told while a run goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from podsrl.cli import progress
from podsrl.cli.progress import LEAST_HEIGHT, Bar, Lines, Picture, TrainDisplay
from podsrl.config.load import load_config


def record(
    step: int, *, invalid: int = 0, zero_signal: int = 0, rollouts: int = 512, groups: int = 8
) -> dict[str, Any]:
    return {
        "step": step,
        "reward/all": 0.5,
        "accuracy/all": 0.091,
        "rollouts/all": rollouts,
        "rollouts/invalid": invalid,
        "invalid_reasons": ["reward 'mine' raised ValueError: no"] if invalid else [],
        "groups/all": groups,
        "groups/zero_signal": zero_signal,
        "seconds/total": 1.0,
        "seconds/train_elapsed": float(step),
    }


def warnings_of(records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, *overrides: str) -> list[str]:
    display = TrainDisplay(load_config("pods", list(overrides)), is_plain=True, folder=Path("run"))
    said: list[str] = []
    monkeypatch.setattr(display._shown, "say", said.append)
    for line in records:
        display.show(line)
    return said


STOPPED = {"rollouts/reward_timeouts": 2, "reward_timeout_reasons": ["reward 'math_correct' took longer than 10 s"]}


@pytest.mark.parametrize(
    ("second", "third", "counted", "reason"),
    [
        (record(2, invalid=3, rollouts=640), record(3, invalid=4), "3 of 640 rollouts", "raised ValueError: no"),
        (record(2) | STOPPED, record(3) | STOPPED, "2 of 512 answers", "took longer than 10 s"),
    ],
    ids=["invalid", "not judged"],
)
def test_the_first_rollouts_that_go_wrong_are_told_with_their_reason_and_only_once(
    second: dict[str, Any], third: dict[str, Any], counted: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning, told, *_ = warnings_of([record(1), second, third], monkeypatch)
    assert f"{counted} of step 2" in warning and reason in told


def test_a_reward_that_fails_is_told_in_a_block_with_the_answer_and_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    said = warnings_of([record(1, invalid=3) | {"invalid_example": "It's 4."}], monkeypatch)
    assert said[1:] == [
        "    reward 'mine' raised ValueError: no",
        """    on the answer "It's 4.\"""",
        "    it must return a number for any text, such as 0 for a wrong answer; to try it alone: "
        "pods check-reward run/groups.jsonl --reward mine",
    ]
    late = record(1, invalid=3) | {"invalid_reasons": ["reward 'mine' took longer than 10 s"]}
    assert warnings_of([late], monkeypatch)[1:] == ["    reward 'mine' took longer than 10 s"]


def test_the_end_says_how_many_were_invalid_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    display = TrainDisplay(load_config("pods", []), is_plain=True, folder=Path("run"))
    said: list[str] = []
    monkeypatch.setattr(display._shown, "say", said.append)
    with display:
        for line in (record(1), record(2, invalid=3), record(3), record(4, invalid=4)):
            display.show(line)
        said.clear()
    assert said == [
        "7 of 2,048 rollouts in 4 steps are invalid and not trained on; why stands in metrics.jsonl (rollouts/invalid)"
    ]


def evaluation(step: int, accuracy: float, **changes: float) -> dict[str, Any]:
    return {"step": step, "eval/accuracy": accuracy, "seconds/train_elapsed": float(step), **changes}


def test_both_accuracies_are_named_and_the_held_out_one_has_its_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    display = TrainDisplay(load_config("pods", ["--stop.steps=100", "--stop.seconds=0"]), True, Path("run"))
    display.show(evaluation(40, 0.027))
    capsys.readouterr()
    display.show(record(41))
    assert capsys.readouterr().err.split("  ", 3)[3] == (
        "step 41: accuracy: training 9.1%, held out 2.7% (step 40), mean reward 0.500, 512 rollouts/s\n"
    )
    display.evaluating(20, 256)
    assert capsys.readouterr().err.endswith("evaluating: 20 of 256 answers\n")


def test_every_evaluation_is_said_with_both_shares_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    said = warnings_of(
        [
            evaluation(0, 0.02, **{"eval/accuracy_and_format": 0.02}),
            record(1),
            evaluation(1, 0.5, **{"eval/accuracy_and_format": 0.25}),
        ],
        monkeypatch,
    )
    assert said == [
        "step 0: held-out accuracy 2.0% after 0.0 s of training",
        "step 1: held-out accuracy 50.0% (25.0% in the wanted form) after 1.0 s of training",
    ]


def test_one_question_is_shown_with_its_answer_at_the_first_evaluation_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = [
        {"eval/examples": [{"prompt": "1 + 1 =\n", "text": text, "is_correct": text == "2"}, {}]} for text in "432"
    ]
    steps = [evaluation(step, 0.5) | example for step, example in zip((0, 5, 10), examples, strict=True)]
    said = warnings_of(steps, monkeypatch, "stop.steps=10", "stop.seconds=0")
    assert [line for line in said if "→" in line] == ["    '1 + 1 =' → '4', wrong", "    '1 + 1 =' → '2', correct"]


class Screen(io.StringIO):
    """A file that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("height", "is_plain", "kind"),
    [(LEAST_HEIGHT, False, Picture), (LEAST_HEIGHT - 1, False, Bar), (LEAST_HEIGHT, True, Lines)],
)
def test_a_picture_is_drawn_where_the_terminal_has_room_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, height: int, is_plain: bool, kind: type
) -> None:
    screen = Console(file=Screen(), force_terminal=True, width=80, height=height)
    monkeypatch.setattr(progress, "errors", screen)
    assert isinstance(TrainDisplay(load_config("pods"), is_plain, tmp_path / "run")._shown, kind)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_picture_follows_the_runs_folder_below_what_is_said(tmp_path: Path, is_resumed: bool) -> None:
    """It is entered before there is a folder, or, of a run that is resumed, with one; its last look is at the end."""
    if is_resumed:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.toml").write_text("[stop]\nsteps = 40\n")
    console = Console(file=Screen(), force_terminal=True, width=80, height=LEAST_HEIGHT)
    with Picture(tmp_path / "run", console) as picture:
        picture.update(0, None, "loading")
        picture.say("step 0: held-out accuracy 2.7%")
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "config.toml").write_text("[stop]\nsteps = 40\n")
        (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(record(7)) + "\n")
    drawn = console.file.getvalue()  # type: ignore[attr-defined]  # a Screen
    assert drawn.index("held-out accuracy") < drawn.index("step 7 of 40")
    assert "loading" not in drawn[drawn.index("step 7 of 40") :]
