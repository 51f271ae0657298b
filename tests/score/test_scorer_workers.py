from pathlib import Path

import pytest
from test_scorer import score

from podsrl.errors import UsageError
from podsrl.score import Scorer
from podsrl.types import Task

HALF = Task(id="half", prompt="1/4 + 1/4 =", answer=r"\frac{1}{2}")
SUM = Task(id="1+2", prompt="1+2=", answer="3")
SINGLE_GPU = {"math_correct": 1.0, "think_format": 0.1, "tag_count": 0.1}
TEXTS = ["<think>a</think><answer>0.5</answer>", "<think>a</think><answer>3</answer>", "3", "it is 0.5"]


def test_the_single_gpu_reward_is_the_sum_of_answer_form_and_tags() -> None:
    with Scorer(SINGLE_GPU, "math_correct", format="think_format") as scorer:
        [halves, sums] = score(scorer, (HALF, TEXTS), (SUM, TEXTS))
    assert [rollout.reward for rollout in halves] == pytest.approx([1.2, 0.2, 0.0, 1.0])
    assert [rollout.reward for rollout in sums] == pytest.approx([0.2, 1.2, 1.0, 0.0])
    assert [rollout.is_correct for rollout in halves] == [True, False, False, True]
    assert [rollout.is_formatted for rollout in halves] == [True, True, False, False]
    assert [rollout.answer for rollout in halves] == ["1/2", "3", "3", "1/2"]


def test_form_and_answer_are_open_where_nothing_says_how_to_find_them(user_folder: Path) -> None:
    with Scorer({"worker_rewards:length": 1.0}, "worker_rewards:length") as scorer:
        [[rollout]] = score(scorer, (SUM, ["3"]))
    assert (rollout.is_formatted, rollout.answer, rollout.is_correct) == (True, None, True)


def test_the_form_s_function_need_not_be_among_the_rewards() -> None:
    scorer = Scorer({"correct": 1.0}, "correct", format="format")
    [[right, bare]] = score(scorer, (SUM, ["Answer: 3.", "3"]))
    assert (right.is_formatted, bare.is_formatted) == (True, False)
    assert dict(right.parts) == {"correct": 1.0}
    assert (right.answer, bare.answer) == ("3", None)
    with pytest.raises(UsageError, match=r"task\.format = 'fromat' is no reward"):
        Scorer({"correct": 1.0}, "correct", format="fromat")


def test_results_depend_neither_on_workers_nor_on_prefetching(user_folder: Path) -> None:
    rewards = {**SINGLE_GPU, "worker_rewards:draw": 0.5}
    found = []
    for workers, is_early in ((1, False), (3, True)):
        with Scorer(rewards, "math_correct", workers=workers) as scorer:
            for text in TEXTS if is_early else []:
                scorer.prefetch(HALF, text)
            found.append(score(scorer, (HALF, TEXTS + TEXTS), (SUM, TEXTS)))
    assert found[0] == found[1]


def test_an_empty_reference_makes_its_rollouts_invalid_with_the_reason() -> None:
    with Scorer({"boxed_correct": 1.0}, "boxed_correct") as scorer:
        [[bad], [good]] = score(scorer, (Task(id="x", prompt="x", answer=" "), ["3"]), (SUM, ["3"]))
    assert bad.invalid_reason is not None and "the reference answer ' ' cannot be parsed" in bad.invalid_reason
    assert good.reward == 1.0


@pytest.mark.parametrize("form", ["task, text", "completions"])
def test_the_probe_tries_a_user_s_function_in_a_worker_within_its_limit(user_folder: Path, form: str) -> None:
    (user_folder / "probed_rewards.py").write_text(f"import time\ndef hangs({form}): time.sleep(600)\n")
    limits = {"timeout_seconds": 0.3, "batch_timeout_seconds": 0.3}
    with Scorer({"probed_rewards:hangs": 1.0}, "math_correct", **limits) as scorer:  # type: ignore[arg-type]
        assert scorer.probe(SUM) == ["reward 'probed_rewards:hangs' took longer than 0.3 s and was stopped"]
