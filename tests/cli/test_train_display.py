"""What a person is told while a run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from podsrl.cli.progress import SILENT_STEPS, TrainDisplay
from podsrl.config.load import load_config


def record(step: int, *, invalid: int = 0, zero_signal: int = 0) -> dict[str, Any]:
    return {
        "step": step,
        "reward/all": 0.5,
        "rollouts/invalid": invalid,
        "invalid_reasons": ["reward 'mine' raised ValueError: no"] if invalid else [],
        "groups/zero_signal": zero_signal,
        "seconds/total": 1.0,
        "seconds/train_elapsed": float(step),
    }


def warnings_of(records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, *overrides: str) -> list[str]:
    display = TrainDisplay(load_config("pods", list(overrides)), is_plain=True)
    said: list[str] = []
    monkeypatch.setattr(display, "say", said.append)
    for line in records:
        display.show(line)
    return said


def test_the_first_invalid_rollouts_are_told_with_their_reason_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = warnings_of([record(1), record(2, invalid=3), record(3, invalid=4)], monkeypatch)
    assert len(said) == 1
    assert "3 of 512 rollouts of step 2 are invalid" in said[0] and "raised ValueError: no" in said[0]


@pytest.mark.parametrize(("chunks", "groups"), [(1, 8), (4, 32)])
def test_many_steps_without_a_difference_in_reward_are_told_once(
    chunks: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [record(step, zero_signal=groups) for step in range(1, 3 * SILENT_STEPS)]
    flag = f"--select.num_chunks={chunks}"
    assert len(warnings_of(silent, monkeypatch, flag)) == 1
    silent[5] = silent[15] = silent[25] = record(6, zero_signal=groups - 1)
    assert warnings_of(silent, monkeypatch, flag) == []


def test_the_first_answers_that_could_not_be_judged_are_told_with_their_reason_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = {"rollouts/reward_timeouts": 2, "reward_timeout_reasons": ["reward 'math_correct' took longer than 10 s"]}
    said = warnings_of([record(1), record(2) | stopped, record(3) | stopped], monkeypatch)
    assert len(said) == 1
    assert "2 of 512 answers of step 2" in said[0] and "took longer than 10 s" in said[0]
