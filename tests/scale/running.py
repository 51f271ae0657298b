"""Start the command line as a person does, in processes of its own, and look at what it does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import children
from waiting import processes, variables_of, words_of

SMALL = (
    "--rollouts.num_prompts=3",
    "--rollouts.num_rollouts=8",
    "--select.num_kept=4",
    "--rollouts.max_new_tokens=24",
    "--task.num_eval=20",
    "--eval.every_seconds=0",
    "--eval.every_steps=10",
    "--stop.seconds=0",
    "--checkpoint.every_seconds=0",
    "--checkpoint.every_steps=2",
)


def pods(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "podsrl.cli", *arguments]


def environment() -> dict[str, str]:
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH")]
    joined = os.pathsep.join(path for path in paths if path)  # an empty one would be the current folder
    return {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "PYTHONPATH": joined}


def start(*arguments: str) -> children.Popen[str]:
    pipe = children.PIPE
    return children.Popen(pods(*arguments), stdout=pipe, stderr=pipe, text=True, env=environment())


def run(*arguments: str) -> children.CompletedProcess[str]:
    return children.run(pods(*arguments), capture_output=True, text=True, env=environment(), timeout=300)


def steps(folder: Path) -> list[dict[str, Any]]:
    log = folder / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines]


def same_numbers(folder: Path, expected: Path) -> None:
    """All metrics of two runs agree, but for clocks, memory and the order of sums."""
    assert len(steps(folder)) == len(steps(expected))
    for line, other in zip(steps(folder), steps(expected), strict=True):
        for name, value in other.items():
            if isinstance(value, float) and not name.startswith("seconds/"):
                assert line[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
            elif not name.startswith(("seconds/", "memory/", "sync/")):
                assert line[name] == value, name


def ranks_of(folder: Path) -> dict[int, int]:
    """Rank -> process id of every process, our own or an orphan, that trains in a folder."""
    found = {}
    for pid in processes():
        words, variables = words_of(pid), variables_of(pid)
        if "train" in words and str(folder) in words and "RANK" in variables:
            found[int(variables["RANK"])] = pid
    return found
