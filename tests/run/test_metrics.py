"""Metrics: every name is documented, every number is right, and every line is JSON that any reader takes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.run.evaluate import evaluate
from podsrl.run.learn import NO_UPDATE, UpdateResult
from podsrl.run.load import Load
from podsrl.run.metrics import step_metrics
from podsrl.run.progress import Progress
from podsrl.run.step_result import StepResult
from podsrl.run.steps import training_step
from podsrl.run.trainer import Trainer
from podsrl.select import max_variance
from podsrl.select.groups import select_groups
from podsrl.types import Completion, Group, Rollout, Task
from podsrl.update import to_samples

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
    assert set(line) == documented("`metrics.jsonl`: one line per step") - OF_SEVERAL_PROCESSES - OF_STEPS_AHEAD


def test_an_evaluation_writes_the_documented_metrics_and_no_others() -> None:
    """pass@k for every power of two: with four samples those that the page names."""
    line = evaluate(small_trainer("rollouts.max_new_tokens=8", "eval.num_samples=4")).to_json()
    assert set(line) == documented("`metrics.jsonl`: one line per evaluation")


def rollout(index: int, reward: float | None, length: int, *, is_correct: bool = False) -> Rollout:
    completion = Completion(
        request_id="q",
        index=index,
        token_ids=(7,) * length,
        logprobs=(-1.0,) * length,
        finish_reason="length" if length == 9 else "stop",
        version=0,
    )
    return Rollout(
        completion=completion,
        text="",
        reward=math.nan if reward is None else reward,
        parts={},
        is_correct=is_correct,
        invalid_reason="no judge" if reward is None else None,
    )


def group_of(name: str, prompt: int, rewards: tuple[float | None, ...], lengths: tuple[int, ...]) -> Group:
    pairs = enumerate(zip(rewards, lengths, strict=True))
    rollouts = tuple(rollout(i, reward, length, is_correct=reward == 4.0) for i, (reward, length) in pairs)
    return Group(id=name, task=Task(id=name, prompt="?", answer="!"), prompt_ids=(5,) * prompt, rollouts=rollouts)


def line_of(
    *groups: Group, num_chunks: int = 1, num_trained: int = 0, probes: tuple[Group, ...] = ()
) -> dict[str, Any]:
    selections = select_groups(groups, max_variance, 2, num_chunks=num_chunks)
    result = StepResult(
        progress=Progress(step=3, version=2, train_seconds=9.0),
        groups=groups,
        probes=probes,
        selections=tuple(selections),
        samples=tuple(to_samples(groups, selections, [torch.zeros(len(selection.kept)) for selection in selections])),
        trained_version=1,
        update=UpdateResult(stats=replace(NO_UPDATE.stats, num_trained_tokens=num_trained), grad_norm=1.5),
        num_skipped_updates=1,
        weights_digest="0123",
        load=Load(
            num_decode_steps=7,
            num_forwarded=41,
            num_reread=5,
            peak_generate_bytes=600,
            peak_update_bytes=None,
            num_stopped=3,
            num_hurried=2,
            stopped_reasons=("a", "b", "c", "d"),
            num_postponed=1,
            num_postponed_tokens=4,
        ),
        seconds={"generate": 1.0, "update": 2.0},
        total_seconds=3.5,
    )
    return step_metrics(result)


MIXED = group_of("mixed", 11, (0.0, 4.0, 2.0, None), (3, 5, 9, 6))  # keeps 0 and 4, of 3 and 5 tokens
EQUAL = group_of("equal", 7, (1.0, 1.0, 1.0, 1.0), (2, 2, 2, 2))  # keeps two
ALONE = group_of("alone", 2, (3.0, None, None, None), (9, 1, 1, 1))  # keeps none


def test_the_numbers_of_a_step_are_those_worked_out_by_hand() -> None:
    line = line_of(MIXED, EQUAL, ALONE, num_trained=8)
    rewards = {
        "reward/all": (0 + 4 + 2 + 4 * 1 + 3) / 8,
        "reward/kept": (0 + 4 + 1 + 1) / 4,
        "reward_std/all": 2 / 3,  # 2, 0 and 0: the deviation of 0, 2, 4 is sqrt(8 / 2)
        "reward_std/kept": math.sqrt(8) / 3,
        "accuracy/all": 1 / 12,
    }
    counts = {
        "step": 3,
        "version": 2,
        "groups/all": 3,
        "groups/zero_signal": 2,
        "groups/invalid": 1,
        "rollouts/all": 12,
        "rollouts/invalid": 4,
        "rollouts/truncated": 2,
        "invalid_reasons": ["no judge"],
        "length/all": (23 + 8 + 12) / 12,
        "length/kept": (3 + 5 + 2 + 2) / 4,
        "tokens/prompt": 20,
        "tokens/generated": 43 + 4,
        "tokens/forwarded": 41,
        "tokens/reread": 5,
        "tokens/trained": 8,
        "tokens/skipped": 4,
        "tokens/discarded": 31,
        "tokens/pruned": 0,
        "tokens/postponed": 4,
        "rollouts/pruned": 0,
        "rollouts/postponed": 1,
        "seconds/update": 2.0,
        "seconds/total": 3.5,
        "seconds/train_elapsed": 9.0,
        "rollouts/reward_timeouts": 3,
        "rollouts/reward_hurried": 2,
        "reward_timeout_reasons": ["a", "b", "c"],
        "updates/skipped": 1,
        "grad_norm": 1.5,
    }
    assert {name: line[name] for name in rewards} == pytest.approx(rewards, rel=1e-12)
    assert {name: line[name] for name in counts} == counts


def test_a_chunk_counts_as_a_group_and_its_prompt_once() -> None:
    """Two chunks: rewards 0, 4 with all kept, and 1, 1, which are equal."""
    halves = group_of("halves", 11, (0.0, 4.0, 1.0, 1.0), (3, 5, 2, 6))
    line = line_of(halves, num_chunks=2)
    counts = {"tokens/prompt": 11, "groups/zero_signal": 1, "groups/invalid": 0, "tokens/discarded": 0}
    assert {name: line[name] for name in counts} == counts
    assert line["reward_std/all"] == line["reward_std/kept"] == pytest.approx(math.sqrt(8) / 2)
    assert line["reward/kept"] == 1.5


def test_probes_count_as_generated_and_discarded_and_in_no_mean() -> None:
    plain, probed = line_of(MIXED), line_of(MIXED, probes=(EQUAL,))
    changed = {name: probed[name] - plain[name] for name in plain if plain[name] != probed[name]}
    assert changed == {"tokens/prompt": 7, "tokens/generated": 8, "tokens/discarded": 8, "rollouts/probes": 4}


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
    monkeypatch.setattr("podsrl.run.clock.time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    line = step_metrics(training_step(trainer))
    once = {f"seconds/{stage}": 1.0 for stage in ("score", "update", "sync", "record")}
    expected = {**once, "seconds/generate": 3.0, "seconds/select": 4.0}
    expected |= {"seconds/total": 23.0, "seconds/train_elapsed": 23.0}
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
