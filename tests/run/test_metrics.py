"""Metrics of real steps: every name is documented, seconds are the clock's, and what is not finite is null."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
OF_SEVERAL_PROCESSES = {"seconds/exchange"}
OF_STEPS_AHEAD = {"seconds/overlapped"}


def small_trainer(*overrides: str) -> Trainer:
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=16", "select.num_kept=4", "task.num_eval=8")
    return Trainer(load_config("pods", (*sizes, *overrides)))


def documented(section: str) -> set[str]:
    """The names in the first column of a section's table."""
    text = DOCS.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_a_step_writes_the_documented_metrics_and_no_others() -> None:
    line = step_metrics(training_step(small_trainer("rollouts.max_new_tokens=8")))
    names = {re.sub("^rewards/[^/]+/", "rewards/NAME/", name) for name in line}
    assert names == documented("`metrics.jsonl`: one line per step") - OF_SEVERAL_PROCESSES - OF_STEPS_AHEAD


def test_a_real_step_with_chunks_counts_each_prompt_once() -> None:
    trainer = small_trainer("select.num_chunks=2", "rollouts.max_new_tokens=4")
    result = training_step(trainer)
    prompts = [len(trainer.tokenizer(str(group.task.prompt))["input_ids"]) for group in result.groups]
    assert len(prompts) == 2 and step_metrics(result)["tokens/prompt"] == sum(prompts)


def test_the_seconds_of_a_step_are_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is 1 second later at every reading: two readings for each time a stage is entered, and 1 second of
    the stage itself. A round enters "generate" twice, an end of the rounds once; four verbs count as "select"."""
    trainer = small_trainer("rollouts.max_new_tokens=4")
    readings = count()
    monkeypatch.setattr("podsrl.run.step.clock.time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    line = step_metrics(training_step(trainer))
    once = {f"seconds/{stage}": 1.0 for stage in ("score", "update", "sync", "record")}
    expected = {**once, "seconds/generate": 3.0, "seconds/select": 4.0}
    expected |= {"seconds/total": 23.0, "seconds/train_elapsed": 23.0}
    expected |= {"seconds/tokens_per_second": line["tokens/generated"] / 23}
    assert {name: line[name] for name in line if name.startswith("seconds/")} == expected
    assert training_step(trainer).progress.train_seconds == 46.0


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_written_as_null(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer()
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    whole = trainer.learner.forward_backward

    def broken(batch: object) -> object:
        stats = whole(batch)  # type: ignore[arg-type]
        next(trainer.model.parameters()).grad[0] = torch.nan
        return stats

    monkeypatch.setattr(trainer.learner, "forward_backward", broken)
    line = step_metrics(training_step(trainer))
    assert line["grad_norm"] is None and line["updates/skipped"] == 1 and line["version"] == 0
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
