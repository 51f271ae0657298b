"""VIGOR: who goes on and with how many rollouts, against the algorithm of the paper in fractions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from podsrl.control import Ask, Budget
from podsrl.lib.parts import Parts, make_parts
from podsrl.types import Group
from tests.systems.made_up_groups import group, right_of, rollout, view


def parts_of(**options: Any) -> Parts:
    return make_parts(["vigor"], {"vigor": options})


def budget_of(**options: Any) -> Budget:
    return Budget(parts_of(**options))


def asked(budget: Budget, rewards: Sequence[Sequence[float]], num_rollouts: int) -> list[list[int]]:
    """By question, how many rollouts each round asks for; question i is answered with `rewards[i]`, in their order."""
    now, found = view(len(rewards), num_rollouts), list[list[int]]()
    while asks := budget.ask(now):
        of: dict[str, Group] = {each.id: each for each in now.groups}
        found.append([0] * len(rewards))
        for place, ask in enumerate(asks):
            name = ask.joins or str(place)
            size = ask.num_rollouts + (len(of[name].rollouts) if ask.joins else 0)
            own = [rollout(i, is_correct=False, reward=rewards[int(name)][i]) for i in range(size)]
            of[name] = group(name, own, index=ask.index)
            found[-1][int(name)] = ask.num_rollouts
        now = now.after(list(of.values()))
    return found


def variance(rewards: Sequence[float]) -> Fraction:
    exact = [Fraction(reward) for reward in rewards]
    return sum((a - b) ** 2 for a in exact for b in exact) / Fraction(2 * len(exact) ** 2)


def published(
    rewards: Sequence[Sequence[float]], num_rollouts: int, rounds: int, share: float, growth: int
) -> list[list[int]]:
    """The algorithm: active questions, each with its own number of rollouts, which grows while it is active."""
    active, own, found = list(range(len(rewards))), [0] * len(rewards), list[list[int]]()
    for number in range(rounds):
        found.append([num_rollouts * growth**number if each in active else 0 for each in range(len(rewards))])
        own = [size + more for size, more in zip(own, found[-1], strict=True)]
        ranked = sorted((-variance(rewards[each][: own[each]]), each) for each in active)
        active = sorted(each for _, each in ranked[: max(1, round(share * len(active)))])
    return found


@pytest.mark.parametrize(
    ("rounds", "share", "growth"), [(4, 0.5, 2), (3, 0.25, 4), (3, 0.5, 1), (2, 1.0, 3), (1, 0.5, 2)]
)
def test_every_round_asks_what_the_algorithm_asks(rounds: int, share: float, growth: int) -> None:
    parts = parts_of(rounds=rounds, share=share, growth=growth)
    for case in range(12):
        rng = random.Random(case)
        values = ((0.0, 1.0), (0.0, 0.5, 1.0), (-0.25, 0.125, 2.0))[case % 3]
        shares = [rng.choice((0.0, 0.1, 0.5, 0.9)) for _ in range(rng.randint(1, 16))]
        rewards = [[rng.choice(values) if rng.random() < share else values[0] for _ in range(64)] for share in shares]
        found = asked(Budget(parts), rewards, 2)
        assert found == published(rewards, 2, rounds, share, growth)
        assert max(map(sum, zip(*found, strict=True))) == parts.most(len(rewards), 2)[1]


def test_with_a_half_and_twice_as_many_every_round_costs_the_same() -> None:
    found = asked(budget_of(), [[float(i % 2 and i % (2 + k) != 1) for i in range(30)] for k in range(16)], 2)
    assert [sum(of_round) for of_round in found] == [32] * 4
    assert sorted(map(sum, zip(*found, strict=True))) == [2] * 8 + [6] * 4 + [14] * 2 + [30] * 2
    assert parts_of().most(16, 2) == (16, 30)


def test_one_of_six_and_five_of_six_vary_equally_and_the_first_asked_goes_on() -> None:
    groups = [right_of("a", 3, 3, index=5), right_of("b", 1, 3, index=6), right_of("c", 2, 3, index=7)]
    second = view(3, 3, groups=tuple(groups), round=1)
    assert budget_of(rounds=2, share=0.4).ask(second) == [Ask(index=6, num_rollouts=6, joins="b")]
    equal = group("d", [rollout(i, is_correct=False, reward=0.1) for i in range(3)], index=8)
    assert budget_of(rounds=2, share=0.4).ask(view(3, 3, groups=(groups[0], equal), round=1))[0].joins == "a"


def test_probes_never_go_on_new_questions_get_n_and_invalid_rewards_do_not_vary() -> None:
    broken = group(
        "x", [rollout(0, is_correct=True), rollout(1, is_correct=False, reward=float("nan"), is_valid=False)]
    )
    probe = right_of("p", 1, 2, is_trained=False)
    late = Budget(make_parts(["dapo", "vigor"], {"vigor": {"rounds": 3}}))
    asks = late.ask(view(2, 2, groups=(broken, probe, right_of("b", 1, 2, index=4)), round=1))
    assert [(ask.joins, ask.num_rollouts) for ask in asks] == [(None, 2), (None, 2), ("b", 4)]
    new = view(2, 2, groups=(right_of("b", 1, 6, index=4), right_of("n", 1, 2)), round=2)
    assert [(ask.joins, ask.num_rollouts) for ask in late.ask(new)] == [("b", 8)]
