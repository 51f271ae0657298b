"""Dynamics-predictive sampling: an exact filter of three states per question, and the choice by what it predicts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from loops import each
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.systems.dps import Dynamics
from podsrl.tasks import Stream
from podsrl.types import Group
from population import Population, simulate
from tests.systems.groups_of import group, view_of
from tests.systems.made_up_groups import rollout

SEEN = {0: (0, 8), 1: (3, 5), 2: (8, 0)}
"""State -> right and wrong rollouts of a group that shows it."""


def part(forget: float = 0.7, candidates: int = 32) -> Dynamics:
    return Dynamics(forget=forget, candidates=candidates)


def shown(index: int, state: int) -> Group:
    return group(index, *SEEN[state])


def test_one_update_by_hand() -> None:
    dynamics = part()
    dynamics.learn([shown(5, 0)])
    assert dynamics.predicted(np.array([4, 5, 6])) == pytest.approx(
        np.array([[1 / 3, 1 / 3, 1 / 3], [0.4, 0.3, 0.3], [1 / 3, 1 / 3, 1 / 3]])
    )
    dynamics.learn([shown(5, 1)])  # from wrong to partial; wrong's column was (4/3, 1, 1)
    by_hand = np.array([0.7 * 4 / 3 + 0.3, 2, 1])
    assert dynamics.state()["counts"][0, :, 0] == pytest.approx(by_hand)
    others = np.array([0.7 * 4 / 3 + 0.3, 1, 1])
    assert dynamics.predicted(np.array([5]))[0] == pytest.approx(others / others.sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_belief_is_the_sum_over_all_paths_of_states(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet([1, 1, 1], size=3).T  # columns: previous state
    start = rng.dirichlet([1, 1, 1])
    dynamics = part(forget=1.0)
    huge = 1e15 * phi[None]  # so large that what is seen changes nothing
    dynamics.restore({"index": np.array([2]), "belief": start[None], "counts": huge})
    seen: list[int | None] = [None if rng.random() < 0.6 else int(rng.integers(3)) for _ in range(5)]
    for steps in range(1, 6):
        state = seen[steps - 1]
        dynamics.learn([] if state is None else [shown(2, state)])
        expected = np.zeros(3)
        for path in itertools.product(range(3), repeat=steps + 2):  # before the first step, during each, one after
            if all(state is None or state == each for state, each in zip(seen[:steps], path[1:-1], strict=True)):
                moves = [phi[after, before] for before, after in itertools.pairwise(path)]
                expected[path[-1]] += start[path[0]] * np.prod(moves)
        assert dynamics.predicted(np.array([2]))[0] == pytest.approx(expected / expected.sum(), rel=1e-9)


@pytest.mark.parametrize("forget", [0.0, 0.5, 1.0])
def test_all_questions_at_once_are_what_exact_fractions_give_one_by_one(forget: float) -> None:
    rng, num, dynamics, share = np.random.default_rng(0), 6, part(forget), Fraction(forget)
    belief = [[Fraction(1, 3)] * 3 for _ in range(num)]
    counts = [[[Fraction(1)] * 3 for _ in range(3)] for _ in range(num)]
    for _ in range(7):
        seen = {int(i): int(rng.integers(3)) for i in rng.choice(num, 2, replace=False)}
        dynamics.learn([shown(i, state) for i, state in seen.items()])
        for i in range(num):
            sums = [sum(counts[i][row][column] for row in range(3)) for column in range(3)]
            phi = [[counts[i][row][column] / sums[column] for column in range(3)] for row in range(3)]
            if i not in seen:
                belief[i] = [sum(phi[row][c] * belief[i][c] for c in range(3)) for row in range(3)]
                continue
            total = sum(phi[seen[i]][c] * belief[i][c] for c in range(3))
            for row, c in itertools.product(range(3), range(3)):
                xi = phi[row][c] * belief[i][c] / total if row == seen[i] else 0
                counts[i][row][c] = share * counts[i][row][c] + (1 - share) + xi
            belief[i] = [Fraction(int(row == seen[i])) for row in range(3)]
    means = [[[each[r][c] / sum(each[k][c] for k in range(3)) for c in range(3)] for r in range(3)] for each in counts]
    expected = [
        [float(sum(m[r][c] * b[c] for c in range(3))) for r in range(3)] for m, b in zip(means, belief, strict=True)
    ]
    assert dynamics.predicted(np.arange(num)) == pytest.approx(np.array(expected), rel=1e-12)


def test_the_questions_that_are_likely_to_be_partly_solved_are_asked() -> None:
    dynamics = part()
    for _ in range(3):
        dynamics.learn([shown(i, 1 if i in (7, 3) else 2 * (i % 2)) for i in range(12)])
    assert sorted(dynamics.questions(view_of(12), 2)) == [3, 7]
    assert set(dynamics.questions(view_of(14), 4)) == {3, 7, 12, 13}  # a question never asked comes before a solved one


def test_equal_predictions_are_ordered_by_the_step_and_not_by_place() -> None:
    asked = [tuple(part().questions(view_of(40, step=step), 4)) for step in range(8)]
    assert len(set(asked)) == 8 and asked[0] == tuple(part().questions(view_of(40, step=0), 4))
    assert len({i for each in asked for i in each}) > 12


def test_candidates_are_the_next_questions_of_the_stream_and_count_as_used() -> None:
    view = view_of(100)
    expected = Stream(100, seed=1).draw(12)
    assert set(part(candidates=3).questions(view, 4)) <= set(expected) and view.stream.position == 12
    dynamics = part(candidates=3)
    dynamics.learn([shown(i, 0) for i in expected[:8]])
    assert set(dynamics.questions(view_of(100), 4)) == set(expected[8:])


@each("position", range(20))
def test_a_draw_across_the_end_of_an_epoch_gives_different_questions(position: int) -> None:
    view = view_of(10)
    view.stream.draw(position)
    assert len(set(part(candidates=1).questions(view, 7))) == 7


def test_a_later_round_asks_other_questions_while_there_are_some() -> None:
    dynamics, view = part(), view_of(6)
    first = dynamics.questions(view, 4)
    later = view.after([shown(i, 1) for i in first])
    second = dynamics.questions(later, 2)
    assert not set(first) & set(second)
    assert sorted(set(dynamics.questions(later.after([shown(i, 1) for i in second]), 9))) == list(range(6))


def test_a_part_that_goes_on_from_its_state_asks_the_same() -> None:
    rng, one, other = np.random.default_rng(1), part(), part()
    for step in range(6):
        one.learn([shown(int(i), int(rng.integers(3))) for i in rng.choice(50, 5, replace=False)])
        other.restore({key: array.copy() for key, array in one.state().items()})
        assert one.questions(view_of(50, step=step), 10) == other.questions(view_of(50, step=step), 10)


def test_the_order_of_the_groups_does_not_matter_and_groups_of_a_question_are_one() -> None:
    groups = [shown(3, 1), shown(9, 0), group(3, 8, 0), group(9, 0, 4, is_trained=False)]
    one, other = part(), part()
    one.learn(groups)
    other.learn([group(9, 0, 12), group(3, 11, 5)])
    assert all((one.state()[key] == other.state()[key]).all() for key in one.state())


def test_one_valid_rollout_of_a_question_shows_no_state() -> None:
    dynamics = part()
    seen = group(2, 1, 0)
    others = rollout(1, is_correct=False, is_valid=False), replace(rollout(2, is_correct=False), prompt_ids=(1, 2))
    dynamics.learn([replace(seen, rollouts=(*seen.rollouts, *others))])
    assert len(dynamics.state()["index"]) == 0


def test_a_training_set_smaller_than_a_step() -> None:
    parts = make_parts(["dps"], {})
    parts.check("check_train", 16, 16)
    with pytest.raises(UsageError, match=r"rollouts.num_prompts = 16; .*'dps'.* 15"):
        parts.check("check_train", 16, 15)


def test_in_a_population_of_which_a_third_is_mixed_it_needs_half_of_the_rollouts_of_dynamic_sampling() -> None:
    def rollouts_per_mixed_group(*systems: str) -> float:
        logits = np.random.default_rng(0).normal(0, 6, 1000)
        steps = simulate(
            make_parts(systems, {}),
            Population(logits, rate=0.05),
            Stream(1000, seed=0),
            num_prompts=32,
            num_rollouts=8,
            num_steps=40,
        )
        return sum(step.num_rollouts for step in steps) / sum(step.num_mixed for step in steps)

    uniform, sampled = rollouts_per_mixed_group(), rollouts_per_mixed_group("dapo")
    predicted = rollouts_per_mixed_group("dps")
    assert predicted < 0.5 * sampled  # 0.43 measured
    assert predicted < uniform / 1.3  # the share of mixed groups is 2.1 times that of the stream
