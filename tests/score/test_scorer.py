import math
import re
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

import made
from podsrl.errors import RewardError, UsageError
from podsrl.score import Scorer
from podsrl.types import Rollout, Task

SUM = Task(id="47+85", prompt="What is 47 + 85?\n", answer="132")
CHAT = Task(id="chat", prompt=({"role": "user", "content": "1+2="},), answer="3", columns={"level": 2})


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("own")
    monkeypatch.setitem(sys.modules, "own", module)
    return module


def completion(index: int) -> Rollout:
    return made.completion((index,), group_id="s0", index=index)


def score(scorer: Scorer, *groups: tuple[Task, list[str]]) -> list[list[Rollout]]:
    completions_PG = [[completion(index) for index in range(len(texts))] for _, texts in groups]
    return scorer.score([task for task, _ in groups], completions_PG, [texts for _, texts in groups])


def test_the_reward_is_the_weighted_sum_and_the_parts_are_unweighted() -> None:
    scorer = Scorer({"correct": 2.0, "format": 0.5}, correct="correct")
    [[right, wrong, formless], [chat]] = score(
        scorer, (SUM, ["Answer: 132.", "Answer: 117.", "132"]), (CHAT, ["Answer: 3."])
    )
    assert [rollout.reward for rollout in (right, wrong, formless, chat)] == [2.5, 0.5, 0.0, 2.5]
    assert [rollout.is_correct for rollout in (right, wrong, formless, chat)] == [True, False, False, True]
    assert (dict(wrong.parts), wrong.text, wrong.invalid_reason) == (
        {"correct": 0.0, "format": 1.0},
        "Answer: 117.",
        None,
    )
    assert [formless.index, chat.index] == [2, 0]


@pytest.mark.parametrize(
    ("weights", "wanted"), [((0.1, 0.2, -0.3), 0.0), ((0.1, 0.2, 0.0), 0.1 + 0.2), ((1.0, 1e-9, -1.0), 1e-9)]
)
def test_of_parts_that_cancel_no_rounding_is_left(own: ModuleType, weights: tuple[float, ...], wanted: float) -> None:
    own.one = own.other = own.third = lambda task, text: 1.0
    scorer = Scorer(dict(zip(("own:one", "own:other", "own:third"), weights, strict=True)), correct="correct")
    [[found]] = score(scorer, (SUM, ["x"]))
    assert found.reward == pytest.approx(wanted, rel=1e-6, abs=0)


def test_workers_judge_what_may_be_slow_and_none_wait_where_nothing_is() -> None:
    assert Scorer({"correct": 1.0}, correct="correct").has_workers is False
    with Scorer({"math_correct": 1.0}, correct="math_correct") as scorer:
        assert scorer.has_workers is True


def test_the_probe_does_not_warn_of_a_reward_that_says_nothing_beside_another(own: ModuleType) -> None:
    own.silent = lambda completions: [None] * len(completions)
    [of_place] = Scorer({"correct": 1.0, "own:silent": 1.0}, correct="correct").probe(SUM)
    assert of_place.startswith("reward 'own:silent' runs in the main process")


def test_negative_and_single_zero_weights_are_allowed() -> None:
    [[rollout]] = score(Scorer({"correct": 0, "format": -0.5}, correct="correct"), (SUM, ["Answer: 132."]))
    assert (rollout.reward, dict(rollout.parts)) == (-0.5, {"correct": 1.0, "format": 1.0})


def test_a_correct_function_outside_the_rewards_decides_but_does_not_count() -> None:
    [[right, wrong]] = score(Scorer({"format": 1.0}, correct="correct"), (SUM, ["Answer: 132.", "Answer: 117."]))
    assert (right.reward, wrong.reward, right.is_correct, wrong.is_correct) == (1.0, 1.0, True, False)
    assert dict(right.parts) == {"format": 1.0}


@pytest.mark.parametrize(("value", "is_correct"), [(0.99, False), (1, True), (True, True), (1.5, True), (0, False)])
def test_right_means_a_value_of_at_least_one(own: ModuleType, value: float, is_correct: bool) -> None:
    own.judge = lambda task, text: value
    [[rollout]] = score(Scorer({"format": 1.0}, correct="own:judge"), (SUM, ["x"]))
    assert rollout.is_correct is is_correct


def test_the_functions_run_once_a_step_even_if_one_is_also_the_judge(own: ModuleType) -> None:
    calls: list[list[str]] = []
    own.batch = lambda prompts, completions, **columns: calls.append(completions) or [1.0] * len(completions)
    score(Scorer({"own:batch": 1.0}, correct="own:batch"), (SUM, ["a", "b"]), (SUM, ["c"]))
    assert calls == [["a", "b", "c"]]


def test_a_failed_function_makes_only_its_rollout_invalid(own: ModuleType) -> None:
    def parse(task: Task, text: str) -> float:
        return float(text)

    own.parse = parse
    [[good, bad]] = score(Scorer({"own:parse": 2.0, "format": 1.0}, correct="correct"), (SUM, ["1.5", "x"]))
    assert (good.reward, good.is_valid) == (3.0, True)
    assert math.isnan(bad.reward) and math.isnan(bad.parts["own:parse"])
    assert (bad.parts["format"], bad.is_valid, bad.is_correct) == (0.0, False, False)
    assert bad.invalid_reason is not None
    assert bad.invalid_reason.startswith("reward 'own:parse' raised ValueError: could not convert string to float: 'x'")


def test_every_function_that_failed_is_named(own: ModuleType) -> None:
    own.text, own.nan = (lambda task, text: "a"), (lambda task, text: math.nan)
    [[bad]] = score(Scorer({"own:text": 1.0, "own:nan": 1.0}, correct="correct"), (SUM, ["Answer: 132."]))
    assert bad.invalid_reason == (
        "reward 'own:text' returned 'a' (str), not a number; reward 'own:nan' returned nan, not a finite number"
    )
    assert not bad.is_correct


def test_a_failed_function_with_weight_zero_or_outside_the_sum_still_makes_the_rollout_invalid(own: ModuleType) -> None:
    own.nan = lambda task, text: math.nan
    for scorer in (
        Scorer({"own:nan": 0.0, "format": 1.0}, correct="correct"),
        Scorer({"format": 1.0}, correct="own:nan"),
    ):
        [[bad]] = score(scorer, (SUM, ["Answer: 132."]))
        assert math.isnan(bad.reward)
        assert bad.invalid_reason == "reward 'own:nan' returned nan, not a finite number"


def test_none_is_nothing_to_say_and_the_others_are_summed(own: ModuleType) -> None:
    """As TRL does (nansum over functions); both forms alike."""
    own.row = lambda task, text: None if "?" in text else 2.0
    own.batch = lambda completions: [None if "!" in text else 3.0 for text in completions]
    scorer = Scorer({"own:row": 1.0, "own:batch": 10.0}, correct="correct")
    [[both, batch, row, neither]] = score(scorer, (SUM, ["Answer: 132.", "?", "!", "?!"]))
    assert [both.reward, batch.reward, row.reward] == [32.0, 30.0, 2.0]
    assert all(rollout.is_valid for rollout in (both, batch, row)) and both.is_correct
    assert math.isnan(batch.parts["own:row"]) and batch.parts["own:batch"] == 3.0
    assert math.isnan(neither.reward) and not neither.is_valid
    assert neither.invalid_reason == "reward 'own:row' returned None; reward 'own:batch' returned None"


def test_a_part_of_weight_zero_that_is_none_or_alone_is_no_failure(own: ModuleType) -> None:
    own.none = lambda task, text: None
    [[one]] = score(Scorer({"own:none": 0.0, "format": 1.0}, correct="correct"), (SUM, ["Answer: 132."]))
    assert one.reward == 1.0 and one.is_valid
    [[alone]] = score(Scorer({"own:none": 1.0, "format": 0.0}, correct="correct"), (SUM, ["Answer: 132."]))
    assert alone.reward == 0.0 and alone.is_valid


def test_none_beside_a_failure_leaves_the_failure(own: ModuleType) -> None:
    own.none, own.nan = (lambda task, text: None), (lambda task, text: math.nan)
    [[bad]] = score(Scorer({"own:none": 1.0, "own:nan": 1.0}, correct="correct"), (SUM, ["Answer: 132."]))
    assert bad.invalid_reason == "reward 'own:nan' returned nan, not a finite number"


def test_a_judge_that_says_none_says_not_right_and_not_in_the_form(own: ModuleType) -> None:
    own.none = lambda task, text: None
    [[rollout]] = score(Scorer({"correct": 1.0}, correct="own:none", format="own:none"), (SUM, ["Answer: 132."]))
    assert (rollout.reward, rollout.is_valid, rollout.is_correct, rollout.is_formatted) == (1.0, True, False, False)


def test_a_sum_beyond_the_largest_float_is_invalid(own: ModuleType) -> None:
    own.huge = lambda task, text: 1e308
    [[bad]] = score(Scorer({"own:huge": 10.0}, correct="correct"), (SUM, ["x"]))
    assert math.isnan(bad.reward)
    assert bad.invalid_reason == "the weighted sum of the rewards is inf, not a finite number"


def test_a_row_s_reward_does_not_depend_on_its_batch() -> None:
    scorer = Scorer({"correct": 0.1, "format": 0.7}, correct="correct")
    texts = ["Answer: 132.", "Answer: 117.", "132"]
    [together] = score(scorer, (SUM, texts))
    apart = [score(scorer, (SUM, [text]))[0][0].reward for text in texts]
    assert [rollout.reward for rollout in together] == apart == [0.1 + 0.7, 0.7, 0.0]


@pytest.mark.parametrize(
    ("num_tasks", "texts_PG"), [(1, [["a"], ["b", "c"]]), (2, [["a"], ["b"]]), (2, [["a", "b"], ["c"]]), (2, [["a"]])]
)
def test_arguments_of_another_nesting_are_refused(num_tasks: int, texts_PG: list[list[str]]) -> None:
    completions_PG = [[completion(0)], [completion(0), completion(1)]]
    with pytest.raises(ValueError, match="wanted the same nesting"):
        Scorer({"correct": 1.0}, correct="correct").score([SUM] * num_tasks, completions_PG, texts_PG)


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({}, "task.rewards is empty; wanted at least one reward function"),
        ({"correct": 0.0, "format": 0}, "task.rewards: all weights of ['correct', 'format'] are 0"),
        ({"correct": math.nan}, "task.rewards: the weight of 'correct' is nan; wanted a finite number"),
        ({"correct": 1.0, "format": math.inf}, "the weight of 'format' is inf; wanted a finite number"),
        ({"correct": "1"}, "the weight of 'correct' is '1'; wanted a finite number"),
        ({"corect": 1.0}, "task.rewards = 'corect' is no reward. Did you mean 'correct'?"),
        ({"math:pi": 1.0}, "task.rewards = 'math:pi' has the type float; wanted f(task, completion_text)"),
    ],
)
def test_bad_rewards_are_refused_at_construction(rewards: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Scorer(rewards, correct="correct")


@pytest.mark.parametrize("task", [SUM, CHAT])
def test_the_known_rewards_pass_the_probe(task: Task) -> None:
    assert Scorer({"correct": 1.0, "format": 0.1}, correct="correct").probe(task) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda completions: [1.0], "returned a list of 1; wanted a list of 2 numbers"),
        (lambda completions: ["a", "b"], "returned 'a' (str), not a number; wanted a number for each completion"),
        (lambda task, text: text, "returned 'Answer: 0.' (str), not a number"),
        (lambda completions, levels: [1.0, 1.0], "needs ['levels'], but task 'chat' has none. Did you mean 'level'?"),
    ],
)
def test_the_probe_blames_the_function_for_a_broken_contract(own: ModuleType, function: Any, message: str) -> None:
    own.bad = function
    with pytest.raises(RewardError, match=re.escape(f"reward 'own:bad' {message}")):
        Scorer({"own:bad": 1.0}, correct="correct").probe(CHAT)


@pytest.mark.parametrize(
    ("function", "warnings"),
    [
        (lambda task, text: 1 / 0, ["reward 'own:odd' raised ZeroDivisionError: division by zero"]),
        (lambda completions: 1 / 0, ["reward 'own:odd' raised ZeroDivisionError: division by zero"]),
        (lambda task, text: None, ["reward 'own:odd' returned None"]),
        (lambda completions: [1.0, None], ["reward 'own:odd' returned None"]),
        (lambda task, text: math.nan, ["reward 'own:odd' returned nan, not a finite number"]),
        (
            lambda task, text: float(text),
            [
                "reward 'own:odd' raised ValueError: could not convert string to float: 'Answer: 0.'",
                "reward 'own:odd' raised ValueError: could not convert string to float: 'I do not know.'",
            ],
        ),
    ],
)
def test_the_probe_only_warns_of_what_may_be_the_text_s_fault(
    own: ModuleType, function: Any, warnings: list[str]
) -> None:
    own.odd = function
    in_main = "reward 'own:odd' runs in the main process, without a time limit: "
    found = Scorer({"correct": 1.0}, correct="own:odd").probe(SUM)
    others = [warning for warning in found if not warning.startswith(in_main)]
    assert [warning.partition(" (test_scorer.py, line ")[0] for warning in others] == warnings


def test_tasks_and_score_load_without_torch() -> None:
    code = "import sys, podsrl.tasks, podsrl.score; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_rollout_that_failed_before_it_was_judged_stays_so() -> None:
    failed = replace(completion(1), **made.ended("failed"), invalid_reason="the model's logits were no numbers")
    completions, texts = [completion(0), failed], ["Answer: 132."] * 2
    [[good, bad]] = Scorer({"correct": 1.0}, "correct").score([SUM], [completions], [texts])
    assert good.is_valid and good.reward == 1.0
    assert not bad.is_valid and math.isnan(bad.reward) and not bad.is_correct
    assert (bad.status, bad.invalid_reason) == ("failed", failed.invalid_reason)
    [[bad]] = Scorer({"correct": 1.0}, "correct").score([SUM], [[replace(failed, invalid_reason=None)]], [texts[:1]])
    assert bad.status == "failed" and bad.invalid_reason and math.isnan(bad.reward)


def test_what_a_function_prints_is_no_part_of_a_commands_result(
    own: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    own.loud = lambda completions: print("heard") or [1.0] * len(completions)
    scorer = Scorer({"own:loud": 1.0}, correct="own:loud")
    [in_main] = scorer.probe(SUM)
    assert in_main.startswith("reward 'own:loud' runs in the main process, without a time limit: ")
    assert score(scorer, (SUM, ["a"]))[0][0].reward == 1
    assert capsys.readouterr() == ("", "heard\nheard\n")
