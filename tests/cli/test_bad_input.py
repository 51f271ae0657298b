"""What a person types wrong: one line that names it and its cure, exit code 2, and no minutes spent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def pods(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podsrl.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, "COLUMNS": "200"})


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["train", "pods", "--selec.num_kept=8"], ["unknown key 'selec'", "Did you mean 'select'?"]),
        (["train", "pods", "--select.num_kep=8"], ["'select.num_kep'", "Did you mean 'select.num_kept'?"]),
        (["train", "pods", "--num_kept=8"], ["'num_kept'", "Did you mean 'select.num_kept'?"]),
        (["train", "pods", "--select.num_kept=65"], ["select.num_kept = 65", "rollouts.num_rollouts = 64"]),
        (["train", "pods", "--rollouts.num_prompts=0"], ["rollouts.num_prompts = 0", "greater than or equal to 1"]),
        (["train", "pods", "--rollouts.num_rollouts=-4"], ["rollouts.num_rollouts = -4"]),
        (["train", "pods", "--optim.lr=nan"], ["optim.lr = nan", "finite"]),
        (["train", "pods", "--select.num_kept"], ["wanted --section.key=value"]),
        (["train", "pods", "--seed=1", "--seed=2"], ["--seed is given twice"]),
        (["train", "pods", "--stop.seconds=0"], ["stop.steps and stop.seconds are both 0"]),
        (["train", "podz"], ["podz", "no such file", "Did you mean 'pods'?"]),
        (["train", "pods", "--select.num_kept", "8"], ["unexpected '8'", "--section.key=value"]),
        (["eval", "pods", "--optim.lr=1e-3"], ["--optim.lr", "does not read it"]),
        (["train", "demo"], ["use pods compare"]),
        (["compare", "pods"], ["use pods train"]),
        (["train"], ["either a CONFIG or --resume RUN"]),
        (["train", "--resume", "nowhere"], ["nowhere", "no config.toml"]),
        (["bench", "selct"], ["no such benchmark", "Did you mean 'select'?"]),
        (["compare", "demo", "--baseline=grpp"], ["baseline = 'grpp' is none of the arms"]),
        (["compare", "demo", "--base.stop.seconds=0"], ["both 0"]),
        (["compare", "demo", "--arms.pods.select.num_kept=640"], ["arm 'pods'", "select.num_kept = 640"]),
        (["pretrain", "out", "--careful=1.5"], ["careful = 1.5"]),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], wanted: list[str], tmp_path: Path) -> None:
    done = pods(*arguments, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    for text in wanted:
        assert text in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--select.rule=max_varianse"], ["max_varianse", "Did you mean 'max_variance'?"]),
        (["--loss.name=grop"], ["grop", "grpo"]),
        (["--loss.clip=none", "--loss.clip_low=0.2"], ["clip_low"]),
        (["--task.name=arithmetics"], ["arithmetics", "Did you mean 'arithmetic'?"]),
        (["--task.path=x.jsonl"], ["task.path", "arithmetic"]),
        (["--task.name=jsonl", "--task.path=missing.jsonl"], ["missing.jsonl"]),
        (["--task.name=jsonl", "--task.path=empty.jsonl"], ["empty.jsonl"]),
        (["--task.name=jsonl", "--task.path=broken.jsonl"], ["broken.jsonl:2", "not JSON"]),
        (["--task.rewards={corect = 1.0}"], ["corect", "Did you mean 'correct'?"]),
        (["--model.path=builtin:arithmetics"], ["builtin:arithmetics", "Did you mean 'arithmetic'?"]),
        (["--model.path=./nowhere"], ["./nowhere", "no such folder"]),
        (["--model.path=./bare"], ["a model without a tokenizer"]),
        (["--model.device=cuda:99"], ["model.device"]),
        (["--rollouts.max_new_tokens=1000"], ["rollouts.max_new_tokens", "window"]),
        (["--rollouts.max_prompt_tokens=5"], ["rollouts.max_prompt_tokens"]),
    ],
)
def test_what_only_loading_can_see_is_found_before_training(
    arguments: list[str], wanted: list[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text(json.dumps({"question": "a", "answer": "b"}) + "\n{oops\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "qwen2"}')
    before = sorted(tmp_path.iterdir())
    done = pods("train", "pods", *arguments, "--out", "run", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    for text in wanted:
        assert text in done.stderr
    assert sorted(tmp_path.iterdir()) == before
