"""Evaluation: what k judged answers a question say, by hand and by brute force; and one in a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from made import group, rollout
from podsrl.config.load import load_config
from podsrl.run.evaluate import evaluate
from podsrl.run.step.trainer import Trainer
from podsrl.score.accuracy import (
    accuracy_metrics,
    accuracy_of,
    majority_rollout,
    pass_at_k,
    powers_of_two,
    standard_error,
)
from podsrl.types import Group, Rollout


def answered(is_correct: bool, answer: str | None = None, length: int = 1, **changes: Any) -> Rollout:
    """In the wanted form, where nothing else is given."""
    reward = changes.pop("reward", float(is_correct))
    return rollout(reward, length, **{"is_formatted": True, "answer": answer, **changes})


RIGHT, WRONG = answered(True, "1"), answered(False, "2")


def pass_at_k_by_drawing(num_samples: int, num_right: int, k: int) -> float:
    draws = list(combinations([True] * num_right + [False] * (num_samples - num_right), k))
    return sum(map(any, draws)) / len(draws)


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                assert pass_at_k(n, c, k) == pytest.approx(pass_at_k_by_drawing(n, c, k), abs=1e-12), (n, c, k)


def test_pass_at_k_stays_exact_where_floats_of_its_binomials_would_not() -> None:
    # C(2000, 1000) exceeds the largest float; 1 right of 2000 is among 1000 drawn with chance one half
    assert pass_at_k(2000, 1, 1000) == 0.5


def test_pass_at_k_is_asked_for_powers_of_two_that_there_are_samples_for() -> None:
    assert [powers_of_two(n) for n in (1, 2, 3, 4, 16)] == [[], [2], [2], [2, 4], [2, 4, 8, 16]]


def test_accuracy_is_the_mean_over_all_answers_and_its_error_the_one_over_questions() -> None:
    # 2 of 2, 1 of 2, 0 of 2: mean 1/2; deviation of (1, .5, 0) is .5, so the error is .5 / sqrt(3)
    result = accuracy_of([group("q", RIGHT, RIGHT), group("q", WRONG, RIGHT), group("q", WRONG, WRONG)])
    assert (result.num_questions, result.num_samples, result.accuracy) == (3, 6, 0.5)
    assert result.accuracy_sem == pytest.approx(0.5 / math.sqrt(3))
    # at least one right of two: yes, yes, no
    assert result.pass_at == {2: pytest.approx(2 / 3)}


def test_one_question_has_no_standard_error() -> None:
    assert standard_error([0.25]) is None
    assert accuracy_of([group("q", RIGHT)]).accuracy_sem is None


def test_right_and_well_formed_counts_both_while_accuracy_counts_right_alone() -> None:
    bare = answered(True, "1", is_formatted=False)
    result = accuracy_of([group("q", RIGHT, bare, WRONG, answered(False, "2", is_formatted=False))])
    assert (result.accuracy, result.format, result.accuracy_and_format) == (0.5, 0.5, 0.25)


def test_an_invalid_answer_counts_as_wrong_has_no_form_no_vote_and_no_reward() -> None:
    broken = answered(False, "2", reward=math.nan, invalid_reason="timeout")
    result = accuracy_of([group("q", RIGHT, broken, broken, broken)])
    assert (result.accuracy, result.format, result.reward, result.num_invalid) == (0.25, 0.25, 1.0, 3)
    assert result.majority == 1.0
    assert accuracy_of([group("q", broken, broken)]).reward is None


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ("aab", "a"),
        ("abb", "b"),
        ("abba", "a"),  # a tie goes to the answer that came first
        ("baab", "b"),
        ("cabab", "a"),
        ("--a", "a"),  # an answer that was not found has no vote
        ("--", None),
    ],
)
def test_the_most_frequent_answer_wins_and_the_earlier_of_two_equally_frequent(
    answers: str, wanted: str | None
) -> None:
    winner = majority_rollout([answered(letter == "a", None if letter == "-" else letter) for letter in answers])
    assert (winner.answer if winner else None) == wanted


def test_a_majority_can_be_right_where_most_single_answers_are_wrong() -> None:
    scattered = group("q", answered(False, "2"), RIGHT, answered(False, "3"), RIGHT, answered(False, "4"))
    unanswered = group("q", *[answered(False) for _ in range(5)])
    result = accuracy_of([scattered, unanswered])
    assert (result.accuracy, result.majority) == (0.2, 0.5)


def test_lengths_are_averaged_and_answers_at_the_token_limit_counted() -> None:
    cut = answered(False, length=6, finish_reason="length")
    result = accuracy_of([group("q", cut, answered(True, length=2))])
    assert (result.length, result.num_truncated) == (4.0, 1)


def test_groups_of_unequal_size_are_refused() -> None:
    with pytest.raises(ValueError, match="all of the same size"):
        accuracy_of([group("q", RIGHT), group("q", RIGHT, WRONG)])


def test_the_metrics_name_each_pass_at_k() -> None:
    metrics = accuracy_metrics(accuracy_of([group("q", RIGHT, WRONG, WRONG, WRONG, WRONG)]))
    assert [name for name in metrics if "pass@" in name] == ["eval/pass@2", "eval/pass@4"]
    assert metrics["eval/pass@2"] == pytest.approx(2 / 5)


def test_an_evaluation_in_a_run_judges_every_sample_of_every_question_and_repeats_itself() -> None:
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=4", "select.num_kept=2", "task.num_eval=6")
    trainer = Trainer(load_config("pods", (*sizes, "eval.num_samples=4")))
    first, second = evaluate(trainer).to_json(), evaluate(trainer).to_json()
    assert (first["eval/num_questions"], first["eval/num_samples"]) == (6, 24)
    assert 0 < first["eval/accuracy"] < first["eval/pass@2"] < first["eval/pass@4"] < 1
    assert {k: v for k, v in first.items() if k != "seconds/eval"} == {
        k: v for k, v in second.items() if k != "seconds/eval"
    }


def test_an_evaluation_counts_the_answers_that_a_known_reward_could_not_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "endless.py").write_text("import time\ndef known(task, text): time.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("workers.dispatcher", "panel"):
        monkeypatch.setattr(f"podsrl.score.{module}.SLOW", frozenset({"endless:known"}))
    options = ("task.num_eval=2", "task.correct=endless:known", "task.reward_timeout_seconds=0.1")
    options += ("rollouts.max_new_tokens=4", "task.reward_workers=1", "eval.num_samples=2")
    with closing(Trainer(load_config("pods", options))) as trainer:
        for _ in "12":  # each evaluation counts its own
            line = evaluate(trainer).to_json()
            assert (line["eval/reward_timeouts"], line["eval/num_invalid"], line["eval/accuracy"]) == (4, 0, 0.0)
    _, printed, _ = pods("eval", "pods", *(f"--{option}" for option in options), "--json")
    assert json.loads(printed)["eval/reward_timeouts"] == 4


def test_a_large_evaluation_shows_its_first_answers_and_has_the_same_numbers() -> None:
    changes = ("model.path=builtin:arithmetic", "task.num_eval=66", "rollouts.max_new_tokens=4", "eval.num_samples=2")
    seen: list[list[Group]] = []
    with closing(Trainer(load_config("pods", list(changes)))) as trainer:
        plain, looked = evaluate(trainer), evaluate(trainer, on_look=lambda groups: seen.append(list(groups)))
    assert looked.result == plain.result
    assert [group.id for group in seen[0][:12]] == [group.id for group in plain.examples]
    assert len(seen) == 1 and sum(len(group.rollouts) for group in seen[0]) == 32
