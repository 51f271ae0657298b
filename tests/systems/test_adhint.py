"""ADHint: how much of a solution an answer begins with, and advantages of both halves against a loop by hand."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import made
from podsrl.control import Ask, View
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.systems.adhint import SHARE, Halves, Hints, begun, share_at
from podsrl.tasks.arithmetic import addition_task, worked_solution
from podsrl.tasks.step_judge import judge_steps
from podsrl.tasks.step_judge import worked_solution as worked_story
from podsrl.tasks.steps import load_steps
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Notes, Selection, Task
from podsrl.update import group_advantages
from population import Population, simulate
from runs import config_of, timeless
from tests.systems import made_up_groups
from tests.systems.made_up_groups import right_of

TASKS = tuple(Task(id=str(i), prompt="?", answer="!", columns={"solution": f"One. Two {i}."}) for i in range(4))


def view(**changes: Any) -> View:
    return made_up_groups.view(4, 9, len(TASKS), tasks=TASKS, **changes)


def test_the_first_round_asks_the_larger_half_plainly() -> None:
    asks = [Ask(index=i, num_rollouts=9) for i in range(4)]
    assert Hints().rollouts(view(), asks) == [Ask(index=i, num_rollouts=5) for i in range(4)]


@pytest.mark.parametrize(("right", "share"), [(0, 0.75), (1, 0.6375), (3, 0.4125), (5, 0.1875)])
def test_the_second_round_begins_the_others_with_more_of_a_solution_the_harder_a_question_is(
    right: int, share: float
) -> None:
    """Of five plain ones `right` are: (3/4 - 3/16) (1 - right / 5) + 3/16."""
    part = Hints(most=0.75, least=0.1875, noise=0.0)
    [found] = part.rollouts(view(round=1, groups=(right_of("q", right, 5, index=2),)), [])
    expected = Ask(index=2, num_rollouts=4, joins="q", start="One. Two 2.", start_share=share, origin="hint")
    assert found == replace(expected, start_share=pytest.approx(share))


def test_noise_is_uniform_bounded_and_the_same_when_a_step_is_asked_again() -> None:
    part, groups = Hints(noise=0.1), tuple(right_of(str(i), 2, 5, index=i % 4) for i in range(400))
    shares = [ask.start_share for ask in part.rollouts(view(round=1, groups=groups), [])]
    assert min(shares) >= 0.38 and max(shares) <= 0.58 and abs(sum(shares) / 400 - 0.48) < 4 * 0.2 / math.sqrt(12 * 400)
    assert shares == [ask.start_share for ask in part.rollouts(view(round=1, groups=groups), [])]
    hard = [ask.start_share for ask in part.rollouts(view(round=1, groups=(right_of("q", 0, 5),)), [])]
    assert hard[0] <= 0.8, "never above the most"


def test_a_question_without_difficulty_is_asked_plainly_again() -> None:
    [found] = Hints(noise=0.0).rollouts(view(round=1, groups=(right_of("q", 5, 5),)), [])
    assert found == Ask(index=0, num_rollouts=4, joins="q") and begun(found, "One.", 0.0) is found


def test_a_question_whose_plain_rollouts_are_all_invalid_counts_as_one_without_difficulty() -> None:
    group = right_of("q", 0, 5)
    group = replace(group, rollouts=tuple(replace(one, invalid_reason="no judge") for one in group.rollouts))
    asked = [Hints(noise=0.0, least=least).rollouts(view(round=1, groups=(group,)), []) for least in (0.0, 0.25)]
    assert [ask.start_share for [ask] in asked] == [0.0, 0.25]


def test_probes_and_grown_groups_get_no_more() -> None:
    probe = right_of("p", 0, 5, is_trained=False)
    grown = right_of("g", 0, 5).with_more([made_up_groups.rollout(5, is_correct=False)])
    assert Hints().rollouts(view(round=2, groups=(probe, grown)), []) == []


def test_rounds_of_dynamic_sampling_get_both_halves() -> None:
    """New groups of later rounds wait for their second half in the round after."""
    options = {"adhint": {"solution": "tests.systems.test_adhint:solved"}, "dapo": {"max_rounds": 4}}
    parts = make_parts(["adhint", "dapo"], options)
    steps = simulate(parts, Population([-3.0] * 8), Stream(8, seed=0), num_prompts=2, num_rollouts=8, num_steps=3)
    assert all(step.num_rounds <= 5 and step.num_rollouts % 4 == 0 for step in steps)


def solved(task: Task) -> str:
    return "One."


def test_no_hints_at_all_are_the_asks_themselves() -> None:
    asks = [Ask(index=0, num_rollouts=2)]
    assert Hints(most=0.0).rollouts(None, asks) is asks  # type: ignore[arg-type]
    assert Hints(most=0.0).most(4, 2) == (4, 2)
    Hints(most=0.0).check_tasks([addition_task(3, 4)])


@pytest.mark.parametrize(
    ("options", "task", "message"),
    [
        ({}, addition_task(3, 4), r"'solution': question '3\+4' has no such column \(it has: none\); name the column"),
        ({}, replace(TASKS[0], columns={"solution": " "}), "question '0' has ' '; wanted a worked solution, a text"),
        (
            {"solution": "podsrl.tasks.arithmetic:first_words"},
            addition_task(3, 4),
            r"has \['3\+4=7', .*; wanted a worked",
        ),
        (
            {"solution": "podsrl.tasks.step_judge:worked_solution"},
            addition_task(3, 4),
            "is no question of the task set",
        ),
    ],
)
def test_a_question_without_a_solution_is_named(options: Any, task: Task, message: str) -> None:
    with pytest.raises(UsageError, match=rf"^options\.adhint\.solution = .*{message}"):
        Hints(**options).check_tasks([task])


def test_bounds_that_cannot_be_and_halves_without_a_mean_are_errors() -> None:
    with pytest.raises(UsageError, match=r"adhint.least = 0.5, options.adhint.most = 0.4; wanted least <= most"):
        Hints(most=0.4, least=0.5)
    assert Hints().most(4, 4) == (4, 4)
    with pytest.raises(UsageError, match=r"rollouts.num_rollouts = 3; wanted at least 4"):
        Hints().most(4, 3)
    with pytest.raises(UsageError, match=r"options.adhint.rounds = 3 rounds, .*num_rollouts = 5; wanted at least 6"):
        Hints(by="curve", rounds=3).most(4, 5)


def test_the_solutions_that_ship_are_right() -> None:
    assert worked_solution(addition_task(47, 85)) == "7+5=12 4+8+1=13 Answer: 132."
    for task in load_steps(levels=None, num_eval=20).eval:
        text = worked_story(task)
        assert all(step.is_right for step in judge_steps(str(task.prompt), text))
        assert text.endswith(f"Answer: {task.answer}.")


# --- SEELE's curve ---


def chance_of(share: float, centre: float, slope: float, guess: float) -> float:
    return guess + (1 - guess) / (1 + math.exp(-slope * (share - centre)))


def by_loops(target: float, seen: list[tuple[float, bool]]) -> tuple[float, tuple[float, float, float]]:
    """The largest product of prior and chances over every curve of the grid, one after the other."""
    best, found = -math.inf, (0.0, 0.0, 0.0)
    for i, j in itertools.product(range(81), range(9)):
        centre, slope = -0.5 + i / 40, 2 * 16 ** (j / 8)
        for guess in (0.0, 0.02, 0.05, 0.1, 0.2):
            value = -((centre - 0.5) ** 2) / (2 * 0.25) - math.log(slope / 8) ** 2 / 2 - guess / 0.05
            for share, is_right in seen:
                own = chance_of(share, centre, slope, guess)
                value += math.log(own if is_right else max(1 - own, 1e-16))
            if value > best + 1e-9:
                best, found = value, (centre, slope, guess)
    return found[0] + math.log((target - found[2]) / (1 - target)) / found[1], found


def test_the_curve_is_the_likeliest_of_the_grid_and_is_at_the_target_there() -> None:
    rng = random.Random(3)
    for target in (0.3, 0.5, 0.7):
        shares = [round(rng.uniform(0, 0.9), 6) for _ in range(2)]
        seen = [(share, rng.random() < share) for share in (0.0, *shares) for _ in range(3)]
        expected, curve = by_loops(target, seen)
        found = share_at(target, seen)
        assert found == pytest.approx(expected, abs=1e-9) and chance_of(found, *curve) == pytest.approx(target)


def test_with_many_answers_the_share_is_that_of_the_true_curve() -> None:
    rng = random.Random(7)
    for centre, slope, guess in ((0.3, 10.0, 0.0), (0.6, 16.0, 0.1), (0.45, 6.0, 0.05)):
        shares = [0.0, 0.2, 0.4, 0.6, 0.8]
        seen = [(share, rng.random() < chance_of(share, centre, slope, guess)) for share in shares for _ in range(400)]
        assert chance_of(share_at(0.5, seen), centre, slope, guess) == pytest.approx(0.5, abs=0.06)


def test_each_round_asks_at_the_share_that_the_rounds_before_point_to() -> None:
    """Of 9 rollouts three per round; the last round reads both plain and hinted ones, and then there is none."""
    part = Hints(by="curve", rounds=3, noise=0.0, most=0.9)
    assert part.rollouts(view(), [Ask(index=1, num_rollouts=9)]) == [Ask(index=1, num_rollouts=3)]
    of = right_of("q", 0, 3, index=2)
    [second] = part.rollouts(view(round=1, groups=(of,)), [])
    first_share = share_at(0.5, [(0.0, False)] * 3)
    assert (second.num_rollouts, second.joins, second.start) == (3, "q", "One. Two 2.")
    assert second.start_share == first_share and second.notes == Notes({SHARE: [first_share]})
    hinted = [replace(made_up_groups.rollout(i, is_correct=i < 5), notes=second.notes) for i in range(3, 6)]
    of = of.with_more(hinted)
    [third] = part.rollouts(view(round=2, groups=(of,)), [])
    own = float(np.float32(first_share))
    assert third.start_share == share_at(0.5, [*[(0.0, False)] * 3, (own, True), (own, True), (own, False)])
    assert part.rollouts(view(round=3, groups=(of.with_more([replace(hinted[0]) for _ in range(3)]),)), []) == []
    [easy] = part.rollouts(view(round=1, groups=(right_of("q", 3, 3, index=2),)), [])
    assert easy == Ask(index=2, num_rollouts=3, joins="q")


# --- advantages ---


def halves(plain: list[float], hinted: list[float]) -> Group:
    rollouts = [made.rollout(reward, index=i) for i, reward in enumerate(plain)]
    for i, reward in enumerate(hinted, len(plain)):
        one = made.rollout(reward, length=3, index=i)
        rollouts.append(replace(one, given=((0, 2),), logprobs=(0.0, 0.0, -1.0)))
    return made.group("q", *rollouts)


def shaped(group: Group, advantage: str = "none") -> torch.Tensor:
    rewards = torch.tensor([rollout.reward for rollout in group.rollouts], dtype=torch.float64)
    chosen = made.selection(group, tuple(range(len(rewards))))
    [found] = Halves().shape([group], [chosen], [group_advantages(rewards, advantage).float()])
    return found


def test_advantages_by_hand() -> None:
    """One of four plain and three of four hinted are right: both halves have the standard deviation 1/2, d = 1/2."""
    found = shaped(halves([1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]))
    expected = torch.tensor([1.5 * 1.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -1.5 * 1.5])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("advantage", ["none", "std"])
def test_random_groups_as_a_twin_with_loops(advantage: str) -> None:
    rng = random.Random(5)
    for _ in range(60):
        both = [[float(rng.random() < 0.4) for _ in range(rng.randint(1, 5))] for _ in range(2)]
        if len({*both[0], *both[1]}) == 1:
            continue
        means = [sum(half) / len(half) for half in both]
        raised, expected = means[1] - means[0], list[float]()
        for is_hinted, (half, mean) in enumerate(zip(both, means, strict=True)):
            spread = math.sqrt(sum((r - mean) ** 2 for r in half) / max(len(half) - 1, 1))
            for reward in half:
                weight = 1 + raised if (reward == 1) != bool(is_hinted) else 1.0
                expected.append(weight * (reward - mean) / spread if spread else 0.0)
        torch.testing.assert_close(shaped(halves(*both), advantage), torch.tensor(expected), rtol=1e-3, atol=1e-5)


def test_several_lengths_of_hint_are_compared_apart_and_without_weights_if_so_wished() -> None:
    of = halves([0.0, 1.0], [1.0, 0.0, 0.0, 1.0])
    last = [replace(one, given=((0, 1),)) for one in of.rollouts[4:]]
    of = replace(of, rollouts=(*of.rollouts[:4], *last))
    rewards = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    [found] = Halves(weighed=False).shape([of], [made.selection(of, tuple(range(6)))], [rewards - 0.5])
    torch.testing.assert_close(found, (rewards - 0.5) * 2**0.5, rtol=1e-3, atol=0.0)


def test_groups_without_hints_keep_their_advantages_and_a_half_alone_is_compared_with_itself() -> None:
    plain = group_advantages(torch.tensor([0.0, 1.0, 1.0]))
    assert torch.equal(shaped(halves([0.0, 1.0, 1.0], []), "std"), plain)
    torch.testing.assert_close(shaped(halves([], [0.0, 1.0, 1.0]), "std"), plain, rtol=1e-3, atol=0.0)
    empty = Selection(group_id="q", kept=(), dropped={})
    assert Halves().shape([halves([0.0], [1.0])], [empty], [torch.zeros(0)])[0].shape == (0,)


# --- runs ---

SIZES = ("rollouts.num_prompts=4", "rollouts.max_new_tokens=24", "select.num_kept=8", "select.rule=keep_all")


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*SIZES, *overrides))


def test_without_hints_it_is_plain_grpo_bit_for_bit() -> None:
    hinted = trainer_of("systems=adhint", "options={adhint={most=0.0}}")
    one, other = (timeless(step_metrics(training_step(trainer))) for trainer in (hinted, trainer_of()))
    assert one == other


def test_the_second_half_begins_with_the_solution_and_no_hint_token_is_trained() -> None:
    options = 'options={adhint={noise=0.0, solution="podsrl.tasks.arithmetic:worked_solution"}}'
    trainer = trainer_of("systems=adhint", options)
    result = training_step(trainer)
    line = step_metrics(result)
    assert line["tokens/given"] > 0 and line["logprob_gap"] < 1e-5
    for group in result.groups:
        ids = tuple(trainer.tokenizer.encode(worked_solution(group.task), add_special_tokens=False))
        wrong = sum(not rollout.is_correct for rollout in group.rollouts[:4])
        size = min(math.ceil(0.8 * wrong / 4 * len(ids)), len(ids) - 1)
        for rollout in group.rollouts[4:]:
            assert rollout.given == (((0, size),) if size else ())
            assert rollout.token_ids[:size] == ids[:size]
        assert [rollout.origin for rollout in group.rollouts] == [*[""] * 4, *["hint" if size else ""] * 4]
        assert len(group.outcomes) == 4


def test_a_set_without_solutions_ends_before_the_model_loads() -> None:
    with pytest.raises(UsageError, match=r"^options.adhint.solution = 'solution': question '.*' has no such column"):
        trainer_of("systems=adhint")
