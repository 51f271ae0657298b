"""The simulated population: formulas against numbers by hand, nothing lost, and the same budget as a run's."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.population import Population, SimulatedStep, grpo_signal, simulate
from made import group_of
from podsrl.control import Ask, View, make_budget
from podsrl.errors import UsageError
from podsrl.tasks import Stream
from podsrl.types import Group


def run(logits: Any, *, steps: int = 1, seed: int = 0, budget: Any = None, **more: Any) -> tuple[Any, Any]:
    """Simulate P = 4, n = 8; the population after it, and the steps."""
    sizes = {"num_prompts": 4, "num_rollouts": 8, "num_steps": steps, "seed": seed}
    population = Population(logits, **more)
    budget = budget or make_budget({}, {})
    return population, simulate(budget, population, Stream(len(population), seed=0), **sizes)


@pytest.fixture
def budget_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A budget whose slots are filled by functions."""

    def make(**functions: Any) -> Any:
        module = ModuleType("own_population_parts")
        for slot, function in functions.items():
            setattr(module, slot, lambda function=function: function)
        monkeypatch.setitem(sys.modules, "own_population_parts", module)
        return make_budget({slot: f"own_population_parts:{slot}" for slot in functions}, {})

    return make


# --- the population ---


def test_logits_rise_by_rate_times_own_and_shared_signals() -> None:
    population = Population([0.0, 0.0, -1.0], rate=0.5, shared=0.25)
    population.learn([3.0, 0.0, 6.0])
    # Their mean is 3: .5 (.75·3 + .25·3) = 1.5, .5·.25·3 = .375, .5 (.75·6 + .25·3) = 2.625.
    assert population.logits.tolist() == pytest.approx([1.5, 0.375, 1.625])


@pytest.mark.parametrize("right", [(True, False), (True,) * 3 + (False,) * 5, (False,) * 4, (True,) * 4])
def test_the_signal_is_the_gradient_of_a_policy_with_one_parameter_and_half_of_all_advantages(right: Any) -> None:
    rewards = np.array(right, dtype=float)
    std = rewards.std() or 1.0
    advantages = (rewards - rewards.mean()) / std
    theta, step = 0.3, 1e-6

    def objective(value: float) -> float:
        p = 1 / (1 + math.exp(-value))
        return float(np.sum(advantages * np.where(rewards == 1, math.log(p), math.log(1 - p))))

    slope = (objective(theta + step) - objective(theta - step)) / (2 * step)
    group = group_of("g", *rewards)
    assert grpo_signal(group) == pytest.approx(slope, abs=1e-6)
    assert grpo_signal(group) == pytest.approx(np.abs(advantages).sum() / 2)


# --- steps ---


def test_plain_grpo_asks_p_times_n_and_loses_no_group() -> None:
    _, steps = run(np.linspace(-3, 3, 12), steps=30)
    for step in steps:
        assert (step.num_rounds, step.num_rollouts, step.num_trained, step.num_left_out) == (1, 32, 32, 0)
        assert step.num_groups == step.num_mixed + step.num_all_wrong + step.num_all_right == 4
        assert 0 < step.spread <= 0.25


def test_a_step_without_signal_changes_nothing_and_a_half_solved_one_teaches() -> None:
    population, [step] = run([-50.0, -50.0, 50.0, 50.0])
    assert (step.num_all_wrong, step.num_all_right, step.num_mixed) == (2, 2, 0)
    assert population.logits.tolist() == [-50, -50, 50, 50]
    population, [step] = run([0.0] * 4, rate=0.01)
    assert step.spread == 0.25 and step.num_mixed == 4
    assert step.success == pytest.approx(population.success.mean()) and step.success > 0.5


def test_kinds_of_groups_have_the_shares_of_the_binomial_distribution() -> None:
    # The rate is so small that p stays. p = 1/4, n = 8: all wrong .75^8, all right .25^8; 4,000 groups, five sigma.
    _, steps = run([-math.log(3.0)] * 4, steps=1000, rate=1e-12)
    wrong, right = (sum(getattr(step, name) for step in steps) for name in ("num_all_wrong", "num_all_right"))
    assert wrong / 4000 == pytest.approx(0.75**8, abs=5 * math.sqrt(0.75**8 * (1 - 0.75**8) / 4000))
    assert right / 4000 == pytest.approx(0.25**8, abs=5 * math.sqrt(0.25**8 / 4000))
    assert steps[0].spread == pytest.approx(3 / 16)


def test_the_same_arguments_give_the_same_run_and_another_seed_another() -> None:
    first, again, other = (run(np.linspace(-2, 2, 9), steps=10, seed=seed) for seed in (0, 0, 1))
    assert first[1] == again[1] != other[1]
    assert first[0].logits.tolist() == again[0].logits.tolist()


# --- what a budget does ---


def test_eight_and_then_24_rollouts_are_the_32_of_one_round(budget_of: Any) -> None:
    seen: list[tuple[Group, ...]] = []

    def grows(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        if view.round == 1:
            return [Ask(index=g.index or 0, num_rollouts=24, joins=g.id) for g in view.groups]
        return asks

    def all_at_once(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return [Ask(index=ask.index, num_rollouts=32) for ask in asks]

    def keep(view: View) -> list[str]:
        seen.append(view.groups)
        return [group.id for group in view.groups]

    results = [run([0.0, 0.5, 1.0, -1.0], budget=budget_of(rollouts=f, keep=keep))[1] for f in (grows, all_at_once)]
    assert seen[0] == seen[1] and all(len(group.rollouts) == 32 for group in seen[0])
    assert [step.num_rounds for [step] in results] == [2, 1]
    assert all(step.num_rollouts == step.num_trained == 128 for [step] in results)
    assert [r.completion.index for r in seen[0][0].rollouts] == list(range(32))


def test_probes_and_groups_left_out_are_counted_and_learned_from_but_teach_nothing(budget_of: Any) -> None:
    learned: list[Group] = []

    class Part:
        def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
            return [Ask(index=a.index, num_rollouts=4, is_trained=place > 0) for place, a in enumerate(asks)]

        def keep(self, view: View) -> list[str]:
            return [view.groups[1].id]

        def learn(self, groups: Sequence[Group]) -> None:
            learned.extend(groups)

        def state(self) -> dict[str, Any]:
            return {}

        def restore(self, state: Any) -> None: ...

    part = Part()
    module = budget_of(rollouts=part, keep=part)
    population, [step] = run([0.0] * 4, budget=module, rate=0.01)
    assert (step.num_rollouts, step.num_trained, step.num_groups, step.num_left_out) == (16, 4, 1, 2)
    assert {group.id for group in learned} == {group.id for group in learned[:4]} and len(learned[:4]) == 4
    assert (population.logits > 0).sum() == step.num_mixed <= 1


def test_what_the_budget_checks_in_a_run_is_checked_here(budget_of: Any) -> None:
    def one(view: View, asks: Sequence[Ask]) -> list[Ask]:
        return [Ask(index=ask.index, num_rollouts=1) for ask in asks]

    with pytest.raises(UsageError, match="wanted at least 2"):
        run([0.0] * 4, budget=budget_of(rollouts=one))


def test_a_step_that_asks_for_nothing_has_no_spread(budget_of: Any) -> None:
    _, [step] = run([0.0] * 4, budget=budget_of(enough=lambda view: 0))
    assert isinstance(step, SimulatedStep) and step.num_rollouts == 0 and math.isnan(step.spread)
