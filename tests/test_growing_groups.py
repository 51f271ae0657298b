"""Groups that grow by their outcomes, and what may be learned from them."""

import numpy as np

from podsrl.control import Budget, View
from podsrl.lib.parts import make_parts
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Task
from population import Population, _answers
from tests.systems.made_up_groups import group, right_of, rollout


def test_the_outcomes_of_a_group_are_those_of_its_first_round() -> None:
    first = right_of("q", 1, 3)
    grown = first.with_more([rollout(3, is_correct=True), rollout(4, is_correct=True)])
    again = grown.with_more([rollout(5, is_correct=True)])
    assert first.num_first is None and (grown.num_first, again.num_first) == (3, 3)
    assert len(again.rollouts) == 6
    assert first.outcomes == grown.outcomes == again.outcomes == [True, False, False]


def test_an_empty_group_that_is_filled_has_had_one_round() -> None:
    filled = group("q", []).with_more([rollout(0, is_correct=True)])
    assert filled.num_first is None and filled.outcomes == [True]


def grown_groups(num_groups: int) -> list[Group]:
    """Eight rollouts of a question with success 1/8 each, and by DARS more where few were right."""
    population = Population([-np.log(7.0)] * num_groups)
    tasks = [Task(id=str(i), prompt="?", answer="") for i in range(num_groups)]
    budget = Budget(make_parts(["dars"], {}))
    sizes = {"num_prompts": num_groups, "num_rollouts": 8, "num_train": num_groups}
    view = View(step=0, seed=0, stream=Stream(num_groups, seed=0), tasks=tasks, **sizes)  # type: ignore[arg-type]
    while asks := budget.ask(view):
        view = view.after(_answers(asks, view, population, tasks))
    return list(view.groups)


def test_the_mean_share_of_groups_that_grew_by_outcome_is_biased_and_that_of_the_first_rounds_is_not() -> None:
    groups = grown_groups(250)
    everything = [np.mean([rollout.is_correct for rollout in group.rollouts]) for group in groups]
    first = [np.mean(group.outcomes) for group in groups]
    error = np.std(first) / len(first) ** 0.5
    assert max(len(group.rollouts) for group in groups) == 32 and {len(group.outcomes) for group in groups} == {8}
    assert abs(np.mean(first) - 1 / 8) < 3 * error
    assert np.mean(everything) - 1 / 8 > 3 * error
