"""A run whose rewards misbehave: it ends with what was asked for, where it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runs import flags, lines_of, timeless

REWARDS = """
import os, random, sys, time

def row(task, completion):
    if completion.endswith("3."):
        sys.exit(0)
    if completion.endswith("4."):
        raise KeyboardInterrupt
    return float(len(completion)) + random.random()

def trl(prompts, completions, **columns):
    os.chdir("/")
    if any(text.endswith("5.") for text in completions):
        sys.exit(0)
    return [random.random() for _ in completions]

def dies(completions):
    if len(completions) > 2:
        os._exit(0)
    return [0.0] * len(completions)
"""
OPTIONS = ("rollouts.num_rollouts=16", "rollouts.max_new_tokens=24", "eval.num_samples=1", "task.reward_workers=1")


def test_a_run_survives_its_rewards_and_resumes_to_the_same_numbers(
    pods: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_rewards.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    rewards = '--task.rewards={"bad_rewards:row" = 0.01, "bad_rewards:trl" = 1.0, correct = 1.0}'
    code, _, err = pods("train", "pods", *flags(*OPTIONS), rewards, "--out=whole")
    assert code == 0, err
    whole = lines_of(tmp_path / "whole")
    steps = [line for line in whole if "seconds/total" in line]
    assert len(steps) == 4 and all(line["reward/kept"] is not None for line in steps)
    assert (tmp_path / "whole" / "finished.json").exists()
    reasons = {reason for line in steps for reason in line["invalid_reasons"]}
    assert all("bad_rewards" in reason for reason in reasons)
    assert sum(line["rollouts/invalid"] for line in steps) > 0
    assert pods("train", "pods", *flags(*OPTIONS, "stop.steps=2"), rewards, "--out=parts")[0] == 0
    assert pods("train", "--resume", "parts", "--stop.steps=4")[0] == 0
    parts = [line for line in lines_of(tmp_path / "parts") if "seconds/total" in line]
    assert list(map(timeless, parts)) == list(map(timeless, steps))


def test_a_batch_that_ends_its_process_leaves_nothing_to_learn_and_says_why(
    pods: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_rewards.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    code, _, err = pods("train", "pods", *flags(*OPTIONS), "--task.rewards.bad_rewards:dies=1.0", "--out=none")
    assert code == 1
    assert "reward 'bad_rewards:dies': its worker died (exit code 0)" in err
