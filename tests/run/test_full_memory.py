"""A machine whose memory others take while a run goes on: the run ends in one line, and goes on later."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import children
from podsrl.run.session import start
from podsrl.run.step.trainer import Trainer
from runs import config_of, flags, newest, numbers

PARTS = """
import ctypes, resource
from pathlib import Path
from podsrl.select import max_variance

ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: what is freed goes back to the machine

def length(task, text):
    return float(len(text) % 3)

def rule(rewards, num_kept, *, generator):
    log = Path("run", "metrics.jsonl")
    if Path("full").exists() and log.exists() and log.read_text().count("\\n") == 3:  # an evaluation, two steps
        held = Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]
        resource.setrlimit(resource.RLIMIT_DATA, (1024 * int(held), resource.RLIM_INFINITY))
    return max_variance(rewards, num_kept, generator=generator)
"""
WIDTH = 2048
"""Of the model's inner layers: an update wants megabytes that nothing before it has left."""


def test_a_run_whose_memory_others_take_ends_in_one_line_and_goes_on_to_the_same_numbers(
    tmp_path: Path, make_model: Callable[..., Any], tokenizer: Any
) -> None:
    for part in (make_model("qwen2", intermediate_size=WIDTH), tokenizer):
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "taken.py").write_text(PARTS)
    (tmp_path / "full").touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def train(*words: str) -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "podsrl.cli", "train", *words]
        done = children.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr.strip().splitlines()

    parts = ("select.rule=taken:rule", "task.rewards={'taken:length' = 1.0}", "task.correct=taken:length")
    run = ("pods", *flags("model.path=model", "checkpoint.every_steps=1", "stop.steps=3", *parts))
    code, said = train(*run, "--out=run")
    assert code == 1 and said[-1].startswith("failed: memory ran out ("), said[-5:]
    assert not any(line.startswith("Traceback") for line in said) and "--resume" in said[-1]
    assert newest(tmp_path / "run" / "checkpoints").state["step"] == 2
    (tmp_path / "full").unlink()
    assert train("--resume", "run")[0] == 0
    assert train(*run, "--out=whole")[0] == 0
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")


def test_where_a_gpu_s_memory_runs_out_the_steps_before_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Trainer.update

    def full(trainer: Trainer, batch: Any) -> Any:
        if trainer.progress.step == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return update(trainer, batch)

    monkeypatch.setattr(Trainer, "update", full)
    with pytest.raises(torch.OutOfMemoryError):
        start(config_of(), tmp_path / "run", on_record=lambda line: None, say=lambda text: None)
    assert newest(tmp_path / "run" / "checkpoints").state["step"] == 2  # no save was due
