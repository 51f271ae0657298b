"""Which options change nothing, given the others; a run and a dry run say it."""

from __future__ import annotations

from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.run.before.no_effect import without_effect


def no_effect(**sections: Any) -> dict[str, str]:
    return without_effect(RunConfig.model_validate(sections), 1)


def test_options_that_change_nothing_here_are_named_with_the_reason() -> None:
    assert "no group is written" in no_effect(record={"groups_every_steps": 0, "num_groups": 3})["record.num_groups"]
    assert "every rule keeps all" in no_effect(rollouts={"num_rollouts": 16})["select.rule"]
    assert "select.rule" not in no_effect(rollouts={"num_rollouts": 17})
    assert "one optimizer step per batch" in no_effect(loss={"clip_low": 0.1})["loss.clip_low"]
    assert "loss.clip_low" not in no_effect(loss={"clip_low": 0.1}, optim={"num_epochs": 2})
    for apart in ({"rollouts": {"top_p": 0.9}}, {"rollouts": {"min_p": 0.1}}, {"lora": {"dropout": 0.1}}):
        assert "loss.clip_low" not in no_effect(loss={"clip_low": 0.1}, **apart)  # the sampler is not what is trained
    for apart in (
        {"systems": ["dots_rr"]},
        {"systems": ["echo"]},
        {"correct": {"proximal": "average"}},
    ):  # tokens or bounds of others
        assert "loss.clip_low" not in no_effect(loss={"clip_low": 0.1}, **apart)
        assert "correct.proximal" not in no_effect(**apart) and "correct.drop" not in no_effect(**apart)
    assert "one optimizer step" in no_effect(correct={"rate": "effective"})["correct.rate"]
    assert "loss.clip" not in no_effect(loss={"clip": "none"}, order={"ahead": 1})
    assert "loss.clip" in no_effect(loss={"clip": "none"}, order={"ahead": 0})
    assert "record.num_groups" not in no_effect(record={"num_groups": 9})
    assert "neither" in no_effect(rollouts={"scheduler": "dynamic"})["rollouts.scheduler"]
    assert "rollouts.scheduler" not in no_effect(rollouts={"scheduler": "dynamic", "num_slots": 8})
    assert "float32" in no_effect(model={"dtype": "bfloat16"})["model.matmul"]
    assert "on a CPU" in no_effect(model={"device": "cuda:1"})["model.matmul"] and "model.matmul" not in no_effect()
