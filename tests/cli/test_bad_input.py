"""What a person types wrong: one line that names it and its cure, exit code 2, and no minutes spent."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loops import each
from podsrl.cli.main import _what_the_system_refused

Pods = Callable[..., tuple[int, str, str]]


def check_refused(ended: tuple[int, str, str], wanted: list[str]) -> None:
    code, _, errors = ended
    assert code == 2, errors
    assert errors.startswith("error: ") and errors.count("\n") == 1, errors
    for text in wanted:
        assert text in errors


def test_a_refusal_of_the_installed_command_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "podsrl.cli", "train", "podz"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    check_refused((done.returncode, done.stdout, done.stderr), ["podz", "Did you mean 'pods'?"])


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["train", "pods", "--select.num_kept", "8", "9"], ["unexpected '9' after 'pods'"]),
        (["train", "pods", "--quick"], ["--quick"]),
        (["train", "pods", "--model.gradient_checkpointing", "maybe"], ["unexpected 'maybe'"]),
        (["eval", "pods", "--optim.lr=1e-3"], ["--optim.lr", "does not read it"]),
        (["train", "demo"], ["use pods compare"]),
        (["eval", "runs/none"], ["runs/none", "no such folder"]),
        (["compare", "pods"], ["use pods train"]),
        (["train"], ["needs a config or --resume RUN", "pods train pods"]),
        (["train", "pods", "--resume", "nowhere"], ["--resume nowhere", "leave pods out"]),
        (["train", "pods", "--task.rewards=mine:right"], ["task.rewards = 'mine:right'", """'{"mine:right" = 1.0}'"""]),
        (["launch", "pods"], ["--processes K", "at least 1"]),
        (["launch", "pods", "--processes=-1"], ["--processes -1", "at least 1"]),
        (["launch", "pods", "--processes=2", "--dry-run"], ["--dry-run", "pods train"]),
        (["train", "--resume", "nowhere"], ["nowhere", "no config.toml"]),
        (["compare", "demo", "--base.stop.seconds=0"], ["both 0"]),
        (["compare", "demo", "--processes", "0"], ["--processes 0: wanted at least 1"]),
        (["compare", "demo", "--arms.pods.select.num_kept=640"], ["arm 'pods'", "select.num_kept = 640"]),
        (
            ["train", "pods", "--systems=dars", "--select.num_kept=2000"],
            ["select.num_kept = 2000 is more than rollouts.num_rollouts = 64", "at most 256 of a question"],
        ),
        (
            ["train", "pods", "--systems=dars", "--options={dars = {most = 9000000}}"],
            ["systems = dars", "9000000 rollouts", "memory holds all"],
        ),
        (
            ["plan", "pods", "--systems=random", "--options={random = {at = 3}}"],
            ["look of systems = 'random'", "--systems="],
        ),
        (["plan", "pods", "--systems=gigpo,dars"], ["rollouts of systems = 'dars'", "--systems="]),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], wanted: list[str], pods: Pods, tmp_path: Path
) -> None:
    check_refused(pods(*arguments), wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mine", ["Did you mean 'mine.toml'?"]),
        ("mine.tml", ["Did you mean 'mine.toml'?"]),
        ("runs/a", ["--resume runs/a", "runs/a/config.toml"]),
        ("questions.jsonl", ["not valid TOML", "task.path"]),
    ],
)
def test_a_name_that_is_no_config_says_what_was_meant(name: str, wanted: list[str], pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("seed = 1")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "config.toml").write_text("seed = 1")
    (tmp_path / "questions.jsonl").write_text('{"question": "1 + 1", "answer": 2}')
    check_refused(pods("train", name), wanted)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--select.rule=max_varianse"], ["max_varianse", "Did you mean 'max_variance'?"]),
        (["--loss.clip=none", "--loss.clip_low=0.2"], ["clip_low"]),
        (["--task.name=steps", "--task.levels={hard = 1.0}"], ["task.levels"]),
        (["--task.rewards={corect = 1.0}"], ["corect", "Did you mean 'correct'?"]),
        (["--model.path=builtin:arithmetics"], ["builtin:arithmetics", "Did you mean 'arithmetic'?"]),
        (["--model.device=cuda:99"], ["model.device"]),
        (["--rollouts.max_prompt_tokens=5"], ["rollouts.max_prompt_tokens"]),
    ],
)
def test_what_only_loading_can_see_is_found_before_training(
    arguments: list[str], wanted: list[str], pods: Pods, tmp_path: Path
) -> None:
    check_refused(pods("train", "pods", *arguments, "--out", "run"), wanted)
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_says_does_not_steer_the_terminal(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text('"a\\u001b]0;mine\\u0007\\u009b2J" = 1\n')
    ended = pods("train", "odd.toml")
    check_refused(ended, [r"\x1b]0;mine\x07\x9b2J"])
    assert "\x1b" not in ended[2] and "\x9b" not in ended[2]


def test_what_the_data_says_in_a_warning_a_line_or_a_table_does_not_either(pods: Pods, tmp_path: Path) -> None:
    rows = [{"id": f"\x1b[2J{n}", "question": f"{n}\x1b[31m?", "answer": f"#### {n}\x9b2J"} for n in range(20)]
    (tmp_path / "odd.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = ("--task.name=jsonl", "--task.path=odd.jsonl")
    for words in (("train", "pods", *data, "--dry-run", "--all"), ("eval", "pods", *data, "--num-questions=2")):
        code, printed, errors = pods(*words)
        text = printed + errors
        assert code == 0 and r"(task '\x1b[2J" in text and "\x1b" not in text and "\x9b" not in text


@pytest.mark.parametrize("name", [r"\[/]", r"\\[/red]", r"\[bold]x", "[/]", "a\\"])
def test_brackets_in_a_message_are_text(pods: Pods, name: str) -> None:
    check_refused(pods("train", name), [f"config {name}: no such file"])


def test_a_folder_of_runs_is_answered_with_the_runs_in_it(pods: Pods) -> None:
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.toml").write_text("")
    for words in (["report", "runs"], ["eval", "runs"], ["report", "runs/c"], ["train", "--resume", "runs/c"]):
        check_refused(pods(*words), [words[-1], "runs/a", "runs/b"])


def test_a_file_of_questions_in_another_format_is_answered_with_the_cure(pods: Pods) -> None:
    row = {"question": "1+2=", "answer": "3"}
    files = {
        "list.json": (json.dumps([row], indent=1), "one list"),
        "row.json": (json.dumps([row]), "one list"),
        "table.csv": ("question,answer\n1+2=,3\n", "CSV"),
    }
    for name, (text, cure) in files.items():
        Path(name).write_text(text)
        words = ("train", "pods", "--task.name=jsonl", f"--task.path={name}", "--dry-run")
        check_refused(pods(*words), [f"{name}:1", cure])
    Path("cut.jsonl").write_text(f'{json.dumps(row)}\n{{"question": "x", "answer": 3\n')
    words = ("train", "pods", "--task.name=jsonl", "--task.path=cut.jsonl", "--dry-run")
    check_refused(pods(*words), ["cut.jsonl:2", "at character 30"])


def test_the_hint_of_a_finished_run_does_train_longer(pods: Pods) -> None:
    from podsrl.cli.train import nothing_left

    Path("runs/a").mkdir(parents=True)
    Path("runs/a/config.toml").write_text("[stop]\nsteps = 80\n")
    Path("runs/a/finished.json").write_text('{"step": 80, "seconds/train_elapsed": 5.0}')
    assert "--stop.steps=160" in nothing_left(Path("runs/a"), ["--stop.steps=50"])


@each(("number", "cure"), [(errno.EROFS, "make it writable"), (errno.ENOSPC, "make room"), (errno.EACCES, "denied")])
def test_what_the_system_refuses_is_said_with_the_cure_for_it(number: int, cure: str) -> None:
    said = _what_the_system_refused(OSError(number, os.strerror(number), "page.html"))
    assert said is not None and "page.html" in said and cure in said
    assert ("make room" in said) == (number == errno.ENOSPC)
