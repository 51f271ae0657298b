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
    "reinforce_ada": ("budget.rollouts=seek", "loss.shape=pool_mean", "options.seek.most=6"),
    "aero": ("budget.rollouts=seek", "options.seek.most=6", "loss.shape=posterior", "options.posterior.weight=0"),
    "poise": ("steer.prune=states", "options.states.at=[3]", "loss.shape=probe", "options.probe.warm_steps=9"),
    "trace": (
        *("budget.rollouts=contrast", "steer.prune=contrast", "loss.shape=contrast", "options.contrast.at=[4]"),
        *("options.contrast.more=0", "options.contrast.most=6"),
    ),
    "vigor": ("budget.rollouts=varied", "options.varied.rounds=1"),
    "duet": ("budget.rollouts=neyman", "options.neyman.least=6", "options.neyman.most=6"),
}
"""System -> its parts, without effect where n is 6 and all are kept."""
PLAIN = (
    *("task.digits=2", "rollouts.max_new_tokens=14", "rollouts.num_rollouts=6", "select.num_kept=6"),
    *("loss.advantage=none", "optim.lr=1e-3"),
)


def trained(*parts: str) -> tuple[Trainer, list[dict[str, object]]]:
    trainer = Trainer(config_of(*PLAIN, *parts, recipe="mixed"))
    return trainer, [timeless(step_metrics(training_step(trainer))) for _ in range(2)]


def test_neutral_systems_are_plain_grpo_and_draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wanted = trained()
    assert any(line["tokens/trained"] for line in wanted)
    monkeypatch.setattr(View, "rng", lambda view, name: pytest.fail(f"{name} draws"))
    for name, parts in NEUTRAL.items():
        neutral, found = trained(*parts)
        assert found == wanted, name
        for one, other in zip(plain.model.parameters(), neutral.model.parameters(), strict=True):
            assert torch.equal(one, other), name
