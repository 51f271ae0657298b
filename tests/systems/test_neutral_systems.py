"""In its neutral setting a system that allocates rollouts is plain GRPO, bit for bit, and draws no random number."""

from __future__ import annotations

import pytest
import torch

from podsrl.control import View
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from runs import config_of, timeless

NEUTRAL: dict[str, tuple[str, ...]] = {
    "reinforce_ada": ("most=6",),
    "aero": ("most=6", "weight=0"),
    "poise": ("at=[3]", "warm_steps=9"),
    "trace": ("at=[4]", "more=0", "most=6"),
    "vigor": ("rounds=1",),
    "duet": ("least=6", "most=6"),
}
"""System -> its options, without effect where n is 6 and all are kept."""
PLAIN = (
    *("task.digits=2", "rollouts.max_new_tokens=14", "rollouts.num_rollouts=6", "select.num_kept=6"),
    *("loss.advantage=none", "optim.lr=1e-3"),
)


def trained(*overrides: str) -> tuple[Trainer, list[dict[str, object]]]:
    trainer = Trainer(config_of(*PLAIN, *overrides, recipe="mixed"))
    return trainer, [timeless(step_metrics(training_step(trainer))) for _ in range(2)]


def test_neutral_systems_are_plain_grpo_and_draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wanted = trained()
    assert any(line["tokens/trained"] for line in wanted)
    monkeypatch.setattr(View, "rng", lambda view, name: pytest.fail(f"{name} draws"))
    for name, options in NEUTRAL.items():
        neutral, found = trained(f"systems={name}", *(f"options.{name}.{option}" for option in options))
        assert found == wanted, name
        for one, other in zip(plain.model.parameters(), neutral.model.parameters(), strict=True):
            assert torch.equal(one, other), name
