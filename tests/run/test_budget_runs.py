"""Runs with a budget of one's own: several rounds, groups of unequal size, probes, parts that remember."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.metrics import step_metrics
from podsrl.run.saving.checkpoint import load_newest
from podsrl.run.saving.part_states import split_states, whole_states
from podsrl.run.session import resume, start
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step

SIZES = (
    "rollouts.num_prompts=3",
    "rollouts.num_rollouts=8",
    "select.num_kept=4",
    "rollouts.max_new_tokens=16",
    "task.num_eval=4",
    "eval.every_seconds=0",
    "stop.seconds=0",
    "stop.steps=5",
    "model.matmul=mkl",
)


def config_of(rollouts: str, *overrides: str) -> RunConfig:
    return load_config("pods", [*SIZES, f"budget.rollouts=small_budgets:{rollouts}", *overrides])


def test_probes_are_generated_and_scored_and_never_trained_on() -> None:
    trainer = Trainer(config_of("after_a_probe", 'options={"small_budgets:after_a_probe" = {size = 6}}'))
    results = [training_step(trainer) for _ in range(3)]
    assert all([len(group.rollouts) for group in result.probes] == [6, 6, 6] for result in results)
    for result in results:
        mixed = [probe.index for probe in result.probes if len({r.reward for r in probe.rollouts}) > 1]
        assert [group.index for group in result.groups] == mixed
        assert len({group.id for group in (*result.groups, *result.probes)}) == 3 + len(mixed)
        line = step_metrics(result)
        assert line["tokens/generated"] == line["tokens/trained"] + line["tokens/skipped"] + line["tokens/discarded"]
    assert any(result.groups for result in results)
    assert trainer.progress.data_position == 9


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    hidden = ("seconds/", "memory/")
    return [{name: value for name, value in line.items() if not name.startswith(hidden)} for line in lines]


def test_a_run_with_a_part_that_remembers_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Killed after a step, which leaves that step's checkpoint, against a run that goes through."""
    options = ("checkpoint.every_steps=1", "checkpoint.every_seconds=0", "checkpoint.keep=9")
    quiet: Any = {"on_record": lambda record: None, "say": lambda text: None}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    start(config_of("learned", *options), whole, **quiet)
    with pytest.raises(KeyboardInterrupt):
        start(config_of("learned", *options), cut, on_record=killed_after(3), say=lambda text: None)
    resume(cut, [], **quiet)
    assert lines_of(cut) == lines_of(whole)
    sizes = {line["tokens/generated"] for line in lines_of(whole) if "tokens/generated" in line}
    assert len(sizes) > 2
    one, other = (load_newest(folder / "checkpoints") for folder in (whole, cut))
    assert one is not None and other is not None
    assert one.state["parts"] == other.state["parts"] and len(one.state["parts"]["small_budgets:learned"]["seen"]) == 15
    assert (one.parts()["small_budgets:learned/rates"] == other.parts()["small_budgets:learned/rates"]).all()
    for name, tensor in one.optimizer().items():
        assert torch.equal(tensor, other.optimizer()[name]), name


def killed_after(step: int) -> Any:
    def on_record(record: dict[str, Any]) -> None:
        if record.get("step") == step and "loss" in record:
            raise KeyboardInterrupt

    return on_record


def test_parts_are_found_before_the_model_loads() -> None:
    with pytest.raises(UsageError, match=r"small_budgets:forgetful' learns, but has no state"):
        Trainer(config_of("forgetful", "model.path=/nowhere"))
    with pytest.raises(UsageError, match=r"budget.rollouts = 'small_budgets:nothing' cannot be imported"):
        Trainer(config_of("nothing", "model.path=/nowhere"))


def test_a_part_that_raises_ends_the_run_with_one_line() -> None:
    with pytest.raises(UsageError, match=r"^budget.rollouts = 'small_budgets:raises' raised .*small_budgets.py, line"):
        training_step(Trainer(config_of("raises")))


def test_states_of_another_form_are_refused() -> None:
    arrays = {"a": np.arange(3), "b": np.float32([0.5])}
    found = whole_states(*split_states({"p:q": {**arrays, "n": [1, 2.5, "x", None]}}))
    assert found["p:q"].pop("n") == [1, 2.5, "x", None]
    assert all((found["p:q"][name] == array).all() for name, array in arrays.items())
    for value in ((1, 2), {1: 2}, object(), float("nan"), np.array(["text"])):
        with pytest.raises(UsageError, match=r"state\(\) of 'p': 'key' is a"):
            split_states({"p": {"key": value}})
    with pytest.raises(UsageError, match=r"state\(\) of 'p' returned"):
        split_states({"p": [1]})  # type: ignore[dict-item]


def test_the_time_limits_of_rewards_are_those_of_a_step_not_of_a_round() -> None:
    trainer = Trainer(config_of("after_a_probe"))
    new_step, calls = trainer.scorer.new_step, []
    trainer.scorer.new_step = lambda: (calls.append(1), new_step())[1]  # type: ignore[func-returns-value, method-assign]
    collected = trainer.sample()
    assert len(collected.probes) == 3 and len(calls) == 1
