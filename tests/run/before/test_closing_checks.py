"""What closing groups goes by: rewards' bounds, what is kept of plenty, and advice."""

from __future__ import annotations

import math

import pytest

from made import completion
from podsrl.config.load import load_config
from podsrl.run.before.closing import closing_advice, kept_of_plenty, reward_bounds
from podsrl.run.before.no_effect import without_effect
from podsrl.score import BOUNDS, EARNED, REWARDS, Scorer
from podsrl.select import resolve_rule
from podsrl.types import Task
from runs import config_of


def test_of_plenty_max_signal_keeps_all_that_it_may_unless_an_odd_row_costs_more_than_it_brings() -> None:
    for overhead, num_kept, kept in ((13.0, 7, 7), (0.5, 7, 6), (1.0, 3, 2), (0.01, 8, 8), (math.inf, 5, 5)):
        assert kept_of_plenty(resolve_rule("max_signal", {"overhead": overhead}), num_kept) == kept


def test_bounds_are_those_of_the_weighted_sum_to_the_last_bit() -> None:
    assert reward_bounds({"correct": 1.0, "format": 0.1}) == (0.0, 1.1)
    assert reward_bounds({"correct": 0.1, "format": 0.2, "tag_count": -0.7}) == (-0.7, 0.1 + 0.2)
    assert reward_bounds({"correct": 1.0, "mine:f": 0.0}) == (0.0, 1.0)
    assert reward_bounds({"correct": 1.0, "mine:f": 0.5}) is None


def test_a_best_and_a_worst_answer_have_exactly_these_rewards() -> None:
    weights = {"correct": 0.1, "format": 0.2, "tag_share": -0.7}
    task = Task(id="q", prompt="1+2=", answer="3")
    with Scorer(weights, "correct") as scorer:
        [rollouts] = scorer.score([task], [[completion(index=i) for i in range(2)]], [["Answer: 3.", "?"]])
    assert rollouts[0].reward == 0.1 + 0.2 and rollouts[1].reward == 0.0


def test_every_known_reward_lies_within_its_bounds() -> None:
    tags = "<think>\nx\n</think>\n<answer>\n3\n</answer>"
    texts = ["", "3", "Answer: 3.", tags, tags * 3, tags + "x" * 5000, "<answer>3</answer>", "\\boxed{3}", "\\boxed{"]
    task = Task(id="q", prompt="1+2=", answer="3")
    assert reward_bounds({EARNED: 1.0}) is None  # what an environment gives may be any number
    for name, reward in ((name, each) for name, each in REWARDS.items() if name != EARNED):
        values = [float(reward(task, text)) for text in texts]  # type: ignore[call-arg, arg-type]
        assert all(BOUNDS[0] <= value <= BOUNDS[1] for value in values) and not any(map(math.isnan, values)), name


def test_options_without_effect_are_told() -> None:
    told = without_effect(load_config("pods", ["steer.first=8"]), 1)
    assert "no group is closed" in told["steer.first"]
    told = without_effect(load_config("pods", ["steer.close=until_mixed", "steer.first=64"]), 1)
    assert "fewer than steer.first" in told["steer.close"] and "steer.first" not in told


def test_rewards_between_the_lowest_and_the_highest_sum_are_told() -> None:
    config = config_of("steer.close=certain")
    [told] = closing_advice(config, {"correct": 1.0, "format": 0.1})
    assert "sum of the 2 rewards, 0 and 1.1: those between" in told
    assert not closing_advice(config, {"correct": 1.0, "format": 0.0}) and not closing_advice(config, {"mine:f": 1.0})
    assert not closing_advice(config_of("steer.close=until_mixed"), {"correct": 1.0, "format": 0.1})


@pytest.mark.parametrize("close", ["certain", "until_mixed", "never"])
def test_that_a_step_ahead_is_judged_too_late_is_told(close: str) -> None:
    ahead = ("order.ahead=1", "scale.generators=1")
    told = closing_advice(config_of(f"steer.close={close}", *ahead), {"correct": 1.0})
    assert [each.startswith(f"steer.close = {close!r} with order.ahead = 1") for each in told] == (
        [] if close == "never" else [True]
    )
    assert not closing_advice(config_of(f"steer.close={close}", *ahead, "order.ahead=0"), {"correct": 1.0})
