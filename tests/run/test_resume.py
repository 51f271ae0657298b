"""A run that is interrupted once and then killed at any instants resumes to the same numbers, and no line is lost.

Commands that are killed or interrupted are processes of their own; the others run in this one.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import children
from runs import final_tensors, flags, numbers

OPTIONS = (
    *("rollouts.max_new_tokens=24", "optim.num_epochs=2", "task.num_eval=40"),  # not as many rows as a step has
    *("eval.every_steps=7", "record.groups_every_steps=3", "checkpoint.every_seconds=0", "checkpoint.every_steps=2"),
)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("more", "num_kills"),
    [(("select.rule=random", "stop.steps=130"), 9), (("stop.steps=80", "order.ahead=1", "scale.generators=1"), 4)],
    ids=["sync", "ahead"],
)
def test_interrupted_and_killed_at_random_instants_a_run_ends_bit_identical(
    more: tuple[str, ...], num_kills: int, tmp_path: Path, pods: Callable[..., tuple[int, str, str]]
) -> None:
    """The random rule and two epochs, so that every stream and counter matters; ahead, the generator is a child.

    Most kills come a random moment after the process has written some lines (into steps, checkpoints, evaluations),
    the others at any time since its start (into imports, loading, verifying, cutting the logs).
    """
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = flags(*OPTIONS, *more)
    code, _, shown = pods("train", "pods", *options, "--out", str(whole))
    assert code == 0, shown
    first = start("train", "pods", *options, "--out", str(killed))
    wait_for_new_lines(first, killed / "metrics.jsonl", 3)
    first.send_signal(signal.SIGINT)
    _, shown = first.communicate()
    assert first.returncode == 130 and f"pods train --resume {killed}" in " ".join(shown.split()), shown
    rng = random.Random(0)
    for kill in range(num_kills):
        process = start("train", "--resume", str(killed))
        if kill % 3 == 2:
            time.sleep(rng.uniform(0.05, 1.0))
        else:
            wait_for_new_lines(process, killed / "metrics.jsonl", rng.randint(1, 3))
            time.sleep(rng.uniform(0.0, 0.1))
        if process.poll() is not None:  # a machine so fast that the run has ended
            process.communicate()
            assert kill > num_kills // 3, f"the run ended after {kill} kills; it needs more steps"
            break
        process.kill()
        process.communicate()
    code, _, shown = pods("train", "--resume", str(killed))
    assert code == 0, shown
    assert numbers(killed) == numbers(whole)
    assert final_tensors(killed) == final_tensors(whole)
    assert (killed / "groups.jsonl").read_text() == (whole / "groups.jsonl").read_text()


def start(*arguments: str) -> children.Popen:
    command = [sys.executable, "-m", "podsrl.cli", *arguments]
    return children.Popen(command, stdout=children.DEVNULL, stderr=children.PIPE, text=True)


def wait_for_new_lines(process: children.Popen, log: Path, count: int) -> None:
    """Until the process has written `count` times, or ended."""
    seen, last = 0, log.stat().st_size if log.exists() else 0
    while process.poll() is None and seen < count:
        size = log.stat().st_size if log.exists() else 0
        if size != last:
            seen += size > last
            last = size
        time.sleep(0.002)
