"""A run that is stopped between two steps: the same numbers, and no step's seconds hold the pause."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import children
from podsrl.lib.logs import last_line
from runs import flags, numbers
from waiting import wait_for

PAUSE = 3.0
ORDERS = {"sync": (), "ahead": ("order.ahead=1", "scale.generators=1")}
"""Of a step; "ahead" has begun the next one where the run stops, in a process of its own."""


def command(out: Path, order: str) -> list[str]:
    options = flags("stop.steps=30", *ORDERS[order])
    return [sys.executable, "-m", "podsrl.cli", "train", "pods", "--plain", *options, "--out", str(out)]


def elapsed(run: Path) -> float:
    line = last_line(run / "metrics.jsonl")
    return 0.0 if line is None else float(line["seconds/train_elapsed"])


@pytest.mark.parametrize("order", ORDERS)
def test_ctrl_z_stops_a_run_between_two_steps_and_its_seconds_do_not_count(tmp_path: Path, order: str) -> None:
    alone, run = tmp_path / "alone", tmp_path / "run"
    assert children.run(command(alone, order), stdout=children.DEVNULL).returncode == 0
    process = children.Popen(command(run, order), stdout=children.DEVNULL)
    wait_for(lambda: (run / "metrics.jsonl").exists() and elapsed(run) > 0)
    process.send_signal(signal.SIGTSTP)
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    began, before = time.monotonic(), elapsed(run)
    time.sleep(PAUSE)
    assert elapsed(run) == before
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait() == 0
    assert elapsed(run) - before <= time.monotonic() - began - PAUSE
    assert numbers(run) == numbers(alone)
