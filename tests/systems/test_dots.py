"""Difficulty-targeted selection: probes in a round of their own, and questions near the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from podsrl.control import Ask, Budget, View
from podsrl.control.candidates import count_right
from podsrl.control.question_features import features_of
from podsrl.errors import UsageError
from podsrl.lib.parts import Parts, make_parts
from podsrl.systems.dots import Difficulty, empty
from podsrl.tasks import Stream
from podsrl.types import Group
from population import Population, simulate
from tests.systems.groups_of import group, tasks_of, view_of

PROMPTS = [f"What is {10 ** (place % 3) * 7} + {10 ** (place % 3) * 5}?" for place in range(60)]
"""One, two and three digits in turn."""


def parts_of(**options: Any) -> Parts:
    return make_parts(["dots"], {"dots": {"num_references": 12, "num_rollouts": 4, **options}})


def budget(**options: Any) -> Budget:
    return Budget(parts_of(**options))


def view(step: int = 0, **changes: Any) -> View:
    return view_of(60, step=step, prompts=PROMPTS, **changes)


def answered(asks: Sequence[Ask], right_by_digits: Sequence[int] = (4, 2, 0)) -> list[Group]:
    """The groups of asks for 4 rollouts: easy, half solved, hard."""
    return [
        group(
            ask.index,
            (right := right_by_digits[ask.index % 3]),
            4 - right,
            prompt=PROMPTS[ask.index],
            is_trained=ask.is_trained,
        )
        for ask in asks
    ]


def test_a_probing_step_asks_references_then_questions_near_the_target() -> None:
    dots, first = budget(), view()
    probes = dots.ask(first)
    assert len({ask.index for ask in probes}) == 12
    assert {(ask.num_rollouts, ask.is_trained, ask.joins) for ask in probes} == {(4, False, None)}
    second = first.after(answered(probes))
    chosen = dots.ask(second)
    assert len({ask.index for ask in chosen}) == 4 and {ask.index % 3 for ask in chosen} == {1}
    assert {(ask.num_rollouts, ask.is_trained) for ask in chosen} == {(8, True)}
    third = second.after(answered(chosen))
    assert dots.ask(third) == []
    assert dots.trained(third) == {group.id for group in third.groups if group.is_trained}


def test_questions_that_were_chosen_after_the_probes_are_asked_as_they_are() -> None:
    dots, first = budget(), view()
    second = first.after(answered(dots.ask(first)))
    chosen = [Ask(index=7, num_rollouts=8)]
    assert list(Difficulty(num_references=12, num_rollouts=4).rollouts(second, chosen)) == chosen


def test_the_steps_between_two_probes_use_what_was_learned() -> None:
    parts, first = parts_of(every=3), view()
    dots = Budget(parts)
    groups = answered(dots.ask(first))
    assert {ask.index % 3 for ask in dots.ask(view(step=1))} != {1}  # nothing is learned yet
    parts.learn(groups)
    for step in (1, 2):
        asks = dots.ask(view(step=step))
        assert {(ask.index % 3, ask.is_trained) for ask in asks} == {(1, True)} and len(asks) == 4
        assert dots.ask(view(step=step).after(answered(asks))) == []
    assert not any(ask.is_trained for ask in dots.ask(view(step=3)))


@pytest.mark.parametrize(("target", "digits"), [(1.0, 0), (0.5, 1), (0.0, 2)])
def test_the_target_decides_which(target: float, digits: int) -> None:
    dots, first = budget(target=target, temperature=1e-9), view()
    second = first.after(answered(dots.ask(first)))
    assert {ask.index % 3 for ask in dots.ask(second)} == {digits}


def test_near_temperature_zero_it_takes_the_nearest_and_warmer_it_draws_by_the_distance() -> None:
    groups = answered(budget().ask(view()), (4, 3, 1))
    near, warm = (
        Difficulty(num_references=12, num_rollouts=4, temperature=temperature, num_candidates=1024)
        for temperature in (1e-12, 0.2)
    )
    predictor = empty().after(features_of([each.task for each in groups]), *count_right(groups)[1:])
    distance = np.abs(predictor(features_of(tasks_of(PROMPTS))) - 0.5)
    near.learn(groups)
    for count in (1, 7, 20, 33):
        chosen = near.questions(view(step=1), count)
        assert len(set(chosen)) == count
        assert sorted(distance[chosen]) == pytest.approx(np.sort(distance)[:count])
    warm.learn(groups)
    expected = np.exp(-distance / 0.2)
    drawn = np.bincount([warm.questions(view(step=2 * step + 1), 1)[0] for step in range(400)], minlength=60)
    of_kind = [drawn[kind::3].sum() / 400 for kind in range(3)]
    assert of_kind == pytest.approx([expected[kind::3].sum() / expected.sum() for kind in range(3)], abs=0.08)


def test_references_that_are_all_answered_alike_leave_the_choice_uniform() -> None:
    parts, first = parts_of(), view()
    dots = Budget(parts)
    second = first.after(answered(dots.ask(first), (0, 0, 0)))
    assert {ask.index % 3 for ask in dots.ask(second)} == {0, 1, 2}
    parts.learn(second.groups)
    asked = [ask.index for step in range(1, 200, 2) for ask in dots.ask(view(step=step))]
    counts = np.bincount(asked, minlength=60)
    assert counts.min() >= 1 and counts.max() <= 18  # 6.7 on average


def test_asked_again_it_asks_the_same_and_a_restored_part_too() -> None:
    parts, others = parts_of(), parts_of()
    dots, other = Budget(parts), Budget(others)
    for step in range(5):
        at = view(step=step)
        while asks := dots.ask(at):
            again = replace(at, stream=Stream(60, seed=1))
            assert asks == dots.ask(again) == other.ask(replace(again, stream=Stream(60, seed=1)))
            at = at.after(answered(asks))
        parts.learn(at.groups)
        others.restore({"dots": {key: each.copy() for key, each in parts.state()["dots"].items()}})


def test_with_dynamic_sampling_each_round_asks_other_questions() -> None:
    dots = Budget(make_parts(["dots", "dapo"], {"dots": {"num_references": 12, "num_rollouts": 4}}))
    at, counts = view(), []
    while asks := dots.ask(at):
        counts.append(len(asks))
        at = at.after(answered(asks, (4, 0, 2)))
    assert counts[:2] == [12, 4] and len(dots.trained(at)) == 4
    asked = [group.index for group in at.groups if group.is_trained]
    assert len(set(asked)) == len(asked)


def test_a_large_set_is_sampled() -> None:
    dots, at = budget(num_candidates=10), view(step=1)
    candidates = Stream(60, seed=1).draw(10)
    assert {ask.index for ask in dots.ask(at)} <= set(candidates) and at.stream.position == 10


@pytest.mark.parametrize(
    ("num_prompts", "num_train", "option"), [(4, 11, "num_references = 12"), (20, 15, "num_prompts = 20")]
)
def test_a_training_set_smaller_than_a_probe_or_a_step(num_prompts: int, num_train: int, option: str) -> None:
    parts = parts_of()
    parts.check("check_train", 12, 12)
    with pytest.raises(UsageError, match=rf"{option}.* {num_train}"):
        parts.check("check_train", num_prompts, num_train)
    assert parts.most(4, 8) == (12, 8)


def test_in_a_population_whose_texts_show_their_difficulty_more_groups_are_mixed() -> None:
    digits = np.arange(300) % 3
    tasks = tasks_of([f"What is {7 * 10**d} + {5 * 10**d}?" for d in digits.tolist()])
    logits = np.array([4.0, 0.0, -4.0])[digits] + np.random.default_rng(0).normal(0, 0.5, 300)

    def share_of_mixed(systems: Sequence[str], options: dict[str, Any]) -> float:
        steps = simulate(
            make_parts(systems, options),
            Population(logits, rate=0.02),
            Stream(300, seed=0),
            num_prompts=16,
            num_rollouts=8,
            num_steps=30,
            tasks=tasks,
        )
        return sum(step.num_mixed for step in steps) / sum(step.num_groups for step in steps)

    targeted = share_of_mixed(["dots"], {"dots": {"num_references": 16}})
    assert targeted > 1.2 * share_of_mixed([], {})  # 1.9 measured
