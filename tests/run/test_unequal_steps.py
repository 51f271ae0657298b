"""PODS on groups of unequal size: few rollouts of easy questions and many of hard ones, of which m each train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.report.facts import key_facts
from podsrl.report.html import write_report
from podsrl.report.read import read_run
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from podsrl.select import max_variance
from podsrl.update import group_weights
from runs import flags, lines_of

QUICK = ("rollouts.max_new_tokens=12", "task.num_eval=4", "eval.num_samples=1", "model.matmul=mkl")
UNEQUAL = (*QUICK, "rollouts.num_prompts=4", "rollouts.num_rollouts=8", "systems=small_budgets:ByLength")


def step_of(*overrides: str) -> StepResult:
    return training_step(Trainer(load_config("mixed", [*UNEQUAL, *overrides])))


def check_step(result: StepResult, kept_of: dict[int, int]) -> None:
    """Everything of a step by its definition, from rollouts and rewards alone."""
    sizes = [len(group.rollouts) for group in result.groups]
    assert set(sizes) == {8, 128}, "a draw of both kinds"
    expected = []
    for group, selection in zip(result.groups, result.selections, strict=True):
        rewards = [rollout.reward for rollout in group.rollouts]
        kept = max_variance(rewards, kept_of[len(rewards)])
        assert list(selection.kept) == kept
        of_kept = torch.tensor([rewards[i] for i in kept], dtype=torch.float64)
        is_mixed = len(set(of_kept.tolist())) > 1
        advantages = (of_kept - of_kept.mean()) / (of_kept.std() + 1e-4) if is_mixed else 0 * of_kept
        expected += advantages.tolist()
    assert [sample.advantage for sample in result.samples] == pytest.approx(expected, abs=1e-6)
    weights, num_rows = group_weights(result.samples), len(result.samples)
    per_group = [num_rows / (len(sizes) * kept_of[size]) for size in sizes for _ in range(kept_of[size])]
    assert weights == pytest.approx(per_group)
    stats, line = result.update.stats, step_metrics(result)
    assert stats.num_sequences == num_rows == sum(kept_of[size] for size in sizes)
    assert stats.num_trained_rows == sum(sample.has_advantage for sample in result.samples)
    lengths = [[len(rollout.token_ids) for rollout in group.rollouts] for group in result.groups]
    assert line["rollouts/all"] == sum(sizes) and line["groups/all"] == len(sizes)
    assert line["tokens/generated"] == sum(map(sum, lengths))
    assert line["tokens/generated"] == line["tokens/trained"] + line["tokens/skipped"] + line["tokens/discarded"]
    num_kept = sum(of_group[i] for of_group, s in zip(lengths, result.selections, strict=True) for i in s.kept)
    assert line["tokens/trained"] + line["tokens/skipped"] == num_kept


@pytest.mark.parametrize("aggregate", ["sequence_mean", "group_mean"])
def test_m_of_either_size_train(aggregate: str) -> None:
    result = step_of("select.rule=max_variance", "select.num_kept=16", f"loss.aggregate={aggregate}")
    check_step(result, {8: 8, 128: 16})


def test_a_share_of_either_size_trains() -> None:
    check_step(step_of("select.rule=max_variance", "select.num_kept=0.25"), {8: 2, 128: 32})


def test_keep_all_trains_every_group_whole() -> None:
    check_step(step_of(), {8: 8, 128: 128})


def test_a_run_of_unequal_groups_has_its_logs_and_its_page(pods: Any, tmp_path: Path) -> None:
    words = [f"--{option}" for option in UNEQUAL]
    words += ["--select.rule=max_variance", "--select.num_kept=0.25", "--record.num_groups=4"]
    words += ["--stop.steps=2", "--stop.seconds=0", "--record.groups_every_steps=1", "--out=run"]
    code, _, err = pods("train", "mixed", *words)
    assert code == 0, err
    groups = lines_of(tmp_path / "run", "groups.jsonl")
    counts = {(len(g["rollouts"]), sum(r["kept"] for r in g["rollouts"])) for g in groups}
    assert counts == {(8, 2), (128, 32)}
    assert key_facts(read_run(tmp_path / "run"))["n → m"] == "8 → 25 %"
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text()
    assert "32 of 128 kept" in page and "2 of 8 kept" in page
    code, _, err = pods("train", "mixed", *words[:-1], "--dry-run")
    assert code == 0, err
    code, _, err = pods("plan", "mixed", *words[:-1])
    assert code == 2 and err.startswith("error: rollouts of systems = 'small_budgets:ByLength': pods plan predicts")


FAILING = flags(
    *("rollouts.num_rollouts=4", "select.num_kept=2", "rollouts.max_new_tokens=12", "eval.num_samples=1"),
    *("stop.steps=9", "checkpoint.every_seconds=0"),
)


@pytest.mark.parametrize(
    ("system", "moment", "message"),
    [
        ("OneOfEach", "rollouts", "asked for 1 rollout of group"),
        ("OutOfRange", "questions", "wanted 2 whole numbers 0 .. 7079"),
        ("Endless", "rollouts", "asked in 16 rounds of step 2 and has not had enough"),
    ],
)
def test_what_only_a_later_step_shows_is_one_line_and_a_checkpoint(
    pods: Any, tmp_path: Path, system: str, moment: str, message: str
) -> None:
    code, _, err = pods("train", "pods", *FAILING, f"--systems=small_budgets:{system}", "--out=run")
    [error] = [line for line in err.splitlines() if line.startswith("error: ")]
    assert error.startswith(f"error: {moment} of systems = 'small_budgets:{system}' ") and message in error
    assert code == 2
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-00000001"]
    assert len([line for line in lines_of(tmp_path / "run") if "loss" in line]) == 1
