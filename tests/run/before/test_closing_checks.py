"""What closing groups goes by: rewards' bounds, what is kept of plenty, and advice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from made import completion
from podsrl.run.before.closing import closing_advice, kept_of_plenty, reward_bounds
from podsrl.run.before.sizes import parts_of
from podsrl.score import BOUNDS, EARNED, REWARDS, Scorer
from podsrl.score.rewards import CODE
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
    for name, reward in ((name, each) for name, each in REWARDS.items() if name not in {EARNED, *CODE}):
        values = [float(reward(task, text)) for text in texts]  # type: ignore[call-arg, arg-type]
        assert all(BOUNDS[0] <= value <= BOUNDS[1] for value in values) and not any(map(math.isnan, values)), name


def advised(*overrides: str, rewards: Mapping[str, float] | None = None) -> list[str]:
    config = config_of("rollouts.num_rollouts=32", *overrides)
    return closing_advice(config, parts_of(config), rewards or {"correct": 1.0})


class Enough:
    """It closes, and does not say with how many at the earliest: 16."""

    def close(self, view: Any, group: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("overrides", "first"),
    [
        (("systems=until_mixed", "options.until_mixed.first=32"), 32),
        (("systems=until_mixed", "options.until_mixed.first=31"), 0),
        (("systems=certain", "options.certain.first=40"), 40),
        (("systems=certain", "rollouts.num_rollouts=16"), 16),
        ((f"systems={__name__}:Enough", "rollouts.num_rollouts=16"), 16),
        ((f"systems={__name__}:Enough",), 0),
    ],
)
def test_that_no_group_is_large_enough_to_close_is_told(overrides: tuple[str, ...], first: int) -> None:
    told = advised(*overrides)
    assert [f"fewer than first = {first} rollouts, and none has more" in each for each in told] == [True] * bool(first)


def test_rewards_between_the_lowest_and_the_highest_sum_are_told() -> None:
    [told] = advised("systems=certain", rewards={"correct": 1.0, "format": 0.1})
    assert "sum of the 2 rewards, 0 and 1.1: those between" in told
    assert not advised("systems=certain", rewards={"correct": 1.0, "format": 0.0})
    assert not advised("systems=certain", rewards={"mine:f": 1.0})
    assert not advised("systems=until_mixed", rewards={"correct": 1.0, "format": 0.1})


@pytest.mark.parametrize("system", ["certain", "until_mixed", "dars"])
def test_that_a_step_ahead_is_judged_too_late_is_told(system: str) -> None:
    ahead = (f"systems={system}", "order.ahead=1", "scale.generators=1")
    assert [each.startswith(f"close of systems = {system!r} with order.ahead = 1") for each in advised(*ahead)] == (
        [] if system == "dars" else [True]
    )
    assert not advised(*ahead, "order.ahead=0")
