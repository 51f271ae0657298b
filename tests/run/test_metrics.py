"""Metrics: every name is documented, and every line is JSON that any reader takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.run.evaluate import evaluate
from podsrl.run.loop import training_step
from podsrl.run.trainer import Trainer

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def small_trainer() -> Trainer:
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=16", "select.num_kept=4", "task.num_eval=8")
    return Trainer(load_config("pods", sizes))


def test_every_metric_has_a_line_in_the_docs() -> None:
    trainer = small_trainer()
    documented = DOCS.read_text()
    for name in {**training_step(trainer), **evaluate(trainer).to_json()}:
        family, _, member = name.rpartition("/")
        shown = f"`{name}`" in documented or (family and f"`{family}/" in documented and member in documented)
        assert shown, f"{name} is not in docs/metrics.md"


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_written_as_null(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer()
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    whole = trainer.forward_backward

    def broken(batch: object) -> object:
        stats = whole(batch)  # type: ignore[arg-type]
        next(trainer.model.parameters()).grad[0] = torch.nan
        return stats

    monkeypatch.setattr(trainer, "forward_backward", broken)
    line = training_step(trainer)
    assert line["grad_norm"] is None and line["updates/skipped"] == 1 and line["version"] == 0
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
