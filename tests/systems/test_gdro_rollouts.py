"""The rollout bandit: its dynamic program against brute force, its price, and what it finds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from loops import each
from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError
from podsrl.lib.parts import Parts, make_parts
from podsrl.systems.gdro_rollouts import Bandit, best_sizes
from podsrl.tasks.stream import Stream
from podsrl.types import Group
from population import Population, simulate
from tests.systems import made_up_groups
from tests.systems.made_up_groups import right_of

ARMS = tuple(range(2, 13))


def view(step: int = 0, num_rollouts: int = 8, num_train: int = 64) -> View:
    stream = Stream(num_train, seed=0, position=16 * step)
    return made_up_groups.view(16, num_rollouts, num_train, step=step, stream=stream)


def group(index: int, num_right: int, n: int = 8) -> Group:
    return right_of(f"{index}", num_right, n, index=index)


def parts_of(**options: Any) -> Parts:
    return make_parts(["gdro_rollouts"], {"gdro_rollouts": options})


def brute_force(values: np.ndarray, counts: list[int], arms: tuple[int, ...], mean: float) -> tuple[float, float]:
    """Distance of the total from its aim, and the value, of the best combination."""
    filled = [b for b, count in enumerate(counts) if count]
    return min(
        (
            round(abs(sum(counts[b] * arms[a] for b, a in zip(filled, chosen, strict=True)) - mean * sum(counts)), 6),
            -sum(values[b, a] for b, a in zip(filled, chosen, strict=True)),
        )
        for chosen in product(range(len(arms)), repeat=len(filled))
    )


@each("seed", range(12))
def test_the_dynamic_program_finds_what_brute_force_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_bins = int(rng.integers(1, 6))
    arms = (2, 3, 5, 8, 12) if seed % 2 else (2, 4, 7)
    values, counts = rng.normal(size=(num_bins, len(arms))), rng.integers(0, 7, num_bins).tolist()
    counts[0] += 1
    mean = float(rng.uniform(arms[0], arms[-1]))
    sizes = best_sizes(values, counts, arms, mean)
    distance = abs(sum(c * n for c, n in zip(counts, sizes, strict=True)) - mean * sum(counts))
    value = sum(values[b, arms.index(n)] for b, n in enumerate(sizes) if counts[b])
    assert (distance, -value) == pytest.approx(brute_force(values, counts, arms, mean), abs=2e-6)


def test_nothing_to_ask_and_questions_that_were_not_asked_yet_get_the_mean() -> None:
    assert best_sizes(np.zeros((3, 11)), [0, 0, 0], ARMS, 8) == [8, 8, 8]
    assert [ask.num_rollouts for ask in Budget(parts_of()).ask(view())] == [8] * 16
    assert [ask.num_rollouts for ask in Budget(parts_of(mean=5.0)).ask(view())] == [5] * 16


def test_rollouts_that_join_a_group_stay() -> None:
    part = Bandit()
    joins = Ask(index=3, num_rollouts=24, joins="a")
    assert part.rollouts(view(), [joins]) == [joins]


def test_every_step_has_the_mean_and_is_the_same_when_asked_again() -> None:
    parts = parts_of(k=1)
    parts.learn([group(i, i % 9) for i in range(64)])
    asked = [Budget(parts).ask(view(step)) for step in range(4)]
    assert asked == [Budget(parts).ask(view(step)) for step in range(4)]
    assert all(sum(ask.num_rollouts for ask in asks) == 16 * 8 for asks in asked)
    assert len({tuple(ask.num_rollouts for ask in asks) for asks in asked}) > 1, "it explores"
    again = parts_of(k=1)
    again.restore(parts.state())
    assert [Budget(again).ask(view(step)) for step in range(4)] == asked


def test_costs_and_probabilities_by_hand() -> None:
    """One bin's groups have 2 of 4 right: s² = 1/3, so the cost of n is 4/3 / n; all right costs nothing."""
    part = Bandit(arms=(2, 4), eta=3.0, gamma=0.2, k=1, price_rate=0.5)
    groups = [group(0, 2, 4), group(1, 4, 4)]
    part.learn(groups)
    assert part.state()["costs"].tolist() == [[0, 0]] * 3, "the questions were in no bin yet"
    part.learn(groups)
    costs = np.array([4 / 3 / 2, 4 / 3 / 4])
    assert part.state()["costs"] == pytest.approx(np.array([[0, 0], costs, [0, 0]]))
    weights = np.exp(-3 * costs)
    assert part.probabilities()[1] == pytest.approx(0.8 * weights / weights.sum() + 0.1)
    assert part.probabilities().sum(axis=1) == pytest.approx(1.0)
    assert part.state()["price"] == 0.0, "the bins wished 3 where 4 were played"


def test_the_price_rises_while_the_bins_wish_more_than_the_budget() -> None:
    part = Bandit(arms=(2, 4), eta=0.1, gamma=1.0, k=1, price_rate=0.5)
    part.learn([group(0, 1, 2)])
    part.learn([group(0, 1, 2)])
    assert part.state()["price"] == pytest.approx(0.5 * (3 - 2))
    part.learn([group(0, 1, 2)])
    assert part.state()["costs"][1] == pytest.approx(2 * (2.0 / np.array([2, 4])) + 0.5 * np.array([2, 4]))


def test_groups_without_two_usable_rewards_do_not_count() -> None:
    part = Bandit(k=1)
    part.learn([group(0, 1, 2)])
    part.learn([group(0, 1, 1)])
    assert not part.state()["costs"].any()


@pytest.mark.parametrize(("num_rollouts", "options"), [(16, {}), (4, {"arms": (6, 8)}), (1, {})])
def test_a_mean_outside_the_arms_is_an_error_at_the_start(num_rollouts: int, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^rollouts.num_rollouts = {num_rollouts}: the arms"):
        parts_of(**options).most(16, num_rollouts)
    with pytest.raises(UsageError, match=rf"^rollouts.num_rollouts = {num_rollouts}: the arms"):
        Budget(parts_of(**options)).ask(view(num_rollouts=num_rollouts))
    with pytest.raises(UsageError, match=r"^options.gdro_rollouts.mean = 13: the arms"):
        parts_of(mean=13)
    assert parts_of(mean=6).most(16, 100) == (16, 100)
    assert parts_of().most(16, 8) == (16, 12)


def test_it_gives_more_rollouts_to_varied_groups() -> None:
    """A third each is never right, half right and always right: half right ones get most, at an unchanged total."""
    logits = np.repeat([-8.0, 0.0, 8.0], 20)
    parts, population = parts_of(eta=2.6, k=1), Population(logits, rate=1e-9)
    steps = simulate(parts, population, Stream(60, seed=0), num_prompts=15, num_rollouts=8, num_steps=40)
    assert all(step.num_rollouts == 15 * 8 for step in steps)
    early, late = (np.mean([step.spread for step in part]) for part in (steps[:4], steps[-10:]))
    assert late > 1.2 * early
