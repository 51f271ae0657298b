"""A run killed at any instant resumes to the same numbers, and nothing that was written is lost.

Commands that are killed or interrupted are processes of their own; the others run in this one.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import children

Pods = Callable[..., tuple[int, str, str]]
SMALL = [
    "--rollouts.num_prompts=2",
    "--rollouts.num_rollouts=8",
    "--select.num_kept=4",
    "--rollouts.max_new_tokens=24",
    "--task.num_eval=40",  # not as many rows as a step has
    "--eval.every_seconds=0",
    "--eval.every_steps=7",
    "--stop.seconds=0",
    "--record.groups_every_steps=3",
    "--checkpoint.every_seconds=0",
    "--checkpoint.every_steps=2",
]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "podsrl.cli", *arguments]


def numbers(folder: Path) -> list[dict[str, Any]]:
    """All metrics but the clock's and the memory's: some is kept from step to step, so a new process holds less."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.startswith(("seconds/", "memory/"))} for line in lines
    ]


def final_files(folder: Path) -> dict[str, str]:
    """Digests of the last checkpoint's tensors."""
    last = sorted((folder / "checkpoints").glob("step-*"))[-1]
    files = (last / "model" / "model.safetensors", last / "optimizer.safetensors")
    return {f"{last.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_killed_at_ten_random_instants_a_run_ends_bit_identical(tmp_path: Path, pods: Pods) -> None:
    """The random rule and two epochs, so that every stream and counter matters."""
    options = [*SMALL, "--select.rule=random", "--optim.num_epochs=2", "--stop.steps=130"]
    _kill_and_resume(options, tmp_path, pods, num_kills=10)


@pytest.mark.timeout(1200)
def test_killed_with_the_next_step_under_way_a_run_ends_bit_identical(tmp_path: Path, pods: Pods) -> None:
    """The generator is a child process, which every kill takes with it."""
    options = [*SMALL, "--optim.num_epochs=2", "--stop.steps=80", "--steps.name=ahead", "--scale.generators=1"]
    _kill_and_resume(options, tmp_path, pods, num_kills=5)


def _kill_and_resume(options: list[str], folder: Path, pods: Pods, num_kills: int) -> None:
    """Most kills come a random moment after the process has written some lines (into steps, checkpoints, evaluations),
    the others at any time since its start (into imports, loading, verifying, cutting the logs)."""
    whole, killed = folder / "whole", folder / "killed"
    code, _, shown = pods("train", "pods", *options, "--out", str(whole))
    assert code == 0, shown
    rng = random.Random(0)
    first = command("train", "pods", *options, "--out", str(killed))
    again = command("train", "--resume", str(killed))
    kills = 0
    while kills < num_kills:
        process = children.Popen(
            again if (killed / "config.toml").exists() else first, stdout=children.DEVNULL, stderr=children.DEVNULL
        )
        if kills % 3 == 2:
            time.sleep(rng.uniform(0.1, 5.0))
        else:
            _wait_for_new_lines(process, killed / "metrics.jsonl", rng.randint(1, 3))
            time.sleep(rng.uniform(0.0, 0.1))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills == num_kills, f"the run ended after {kills} kills; it needs more steps"
    code, _, shown = pods("train", "--resume", str(killed))
    assert code == 0, shown
    assert numbers(killed) == numbers(whole)
    assert final_files(killed) == final_files(whole)
    assert (killed / "groups.jsonl").read_text() == (whole / "groups.jsonl").read_text()


def _wait_for_new_lines(process: children.Popen[bytes], log: Path, count: int) -> None:
    """Until the process has written `count` times, or ended."""
    seen, last = 0, log.stat().st_size if log.exists() else 0
    while process.poll() is None and seen < count:
        size = log.stat().st_size if log.exists() else 0
        if size != last:
            seen += size > last
            last = size
        time.sleep(0.002)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path, pods: Pods) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    for folder, steps in ((whole, 8), (damaged, 6)):
        assert pods("train", "pods", *SMALL, f"--stop.steps={steps}", "--out", str(folder))[0] == 0
    newest = damaged / "checkpoints" / "step-00000006" / "optimizer.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    code, _, shown = pods("train", "--resume", str(damaged), "--stop.steps=8")
    assert code == 0, shown
    assert "step-00000006/optimizer.safetensors is truncated" in shown
    assert "resumed step-00000004" in shown
    assert final_files(damaged) == final_files(whole)
    # The shorter run evaluated at its end (step 6); the longer one did not.
    assert [line for line in numbers(damaged) if "loss" in line] == [line for line in numbers(whole) if "loss" in line]


def test_ctrl_c_saves_and_exits_with_130_and_the_resume_reaches_the_same_end(tmp_path: Path, pods: Pods) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    options = [*SMALL, "--stop.steps=12"]
    assert pods("train", "pods", *options, "--out", str(whole))[0] == 0
    process = children.Popen(command("train", "pods", *options, "--out", str(stopped)), stderr=children.PIPE, text=True)
    _wait_for_new_lines(process, stopped / "metrics.jsonl", 3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert f"pods train --resume {stopped}" in " ".join(stderr.split())
    assert pods("train", "--resume", str(stopped))[0] == 0
    assert numbers(stopped) == numbers(whole)
    assert final_files(stopped) == final_files(whole)


def test_a_resume_may_not_change_what_decides_the_numbers(tmp_path: Path, pods: Pods) -> None:
    assert pods("train", "pods", *SMALL, "--stop.steps=2", "--out", str(tmp_path / "run"))[0] == 0
    code, _, shown = pods("train", "--resume", str(tmp_path / "run"), "--optim.lr=1e-3")
    assert code == 2 and "optim.lr (0.0003 -> 0.001)" in shown
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("num_kept = 4", "num_kept = 5"))
    code, _, shown = pods("train", "--resume", str(tmp_path / "run"))
    assert code == 2 and "select.num_kept (4 -> 5)" in shown
    code, _, shown = pods("train", "pods", *SMALL, "--stop.steps=2", "--out", str(tmp_path / "run"))
    assert code == 2 and "--resume" in shown
