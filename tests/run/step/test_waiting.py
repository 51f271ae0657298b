"""Steps that end when enough groups are whole: against arithmetic, and in many random schedules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loops import each
from made import group_of
from podsrl.config.schema import ReplayConfig
from podsrl.records import decode_open, encode_open
from podsrl.run.step.waiting import FirstGroups, oldest_first
from podsrl.types import Open, Way
from tests.run.step.simulated import Lengths, Steps

SCHEDULERS = ("continuous", "continuous+breadth")
Key = tuple[str, int]


def steps_of(seed: int) -> tuple[Steps, ReplayConfig]:
    """Random steps; the number of slots is below what a step wants, or far above."""
    draws = random.Random(seed)
    replay = ReplayConfig(unfinished="keep", surplus=draws.choice([1.01, 1.25, 1.5, 2.0]), most_age=draws.randint(1, 5))
    num_prompts, num_rollouts = draws.randint(1, 5), draws.randint(2, 5)
    long = draws.choice([2, 9, 60])
    lengths = Lengths(lambda: min(60, draws.randint(1, long) ** draws.choice([1, 1, 2])))
    slots = draws.choice([1, 3, 7, 1 << 20])
    return (
        Steps(
            closing=FirstGroups(replay, num_prompts),
            length_of=lengths,
            num_prompts=num_prompts,
            num_rollouts=num_rollouts,
            num_slots=slots,
            scheduler=draws.choice(SCHEDULERS) if slots > 1 else "continuous",
        ),
        replay,
    )


def tokens_of(each: Open) -> dict[Key, int]:
    return {(each.group.id, done.index): len(done.token_ids) for done in each.completions}


def resumed(opens: tuple[Open, ...]) -> tuple[Open, ...]:
    """As a checkpoint gives them back."""
    task_of = {each.group.id: each.group.task for each in opens}
    return tuple(decode_open(encode_open(opens), lambda name, index: task_of[name]))


def check(seed: int) -> None:
    """Every rollout that was begun is trained on once, with all of its tokens, or waits with those it has."""
    steps, replay = steps_of(seed)
    trained, waiting = set[str](), dict[Key, int]()
    for number in range(random.Random(seed).randint(3, 7)):
        before = {each.group.id for each in steps.waiting}
        steps.take()
        done = [group.id for group in steps.trained]
        assert len(done) == len(set(done)) == steps.num_prompts and not trained.intersection(done)
        trained.update(done)
        for group in steps.trained:
            assert number - group.step <= replay.most_age
            assert [one.completion.index for one in group.rollouts] == list(range(steps.num_rollouts))
            for one in group.rollouts:
                key = group.id, one.completion.index
                assert len(one.completion.token_ids) == steps.length_of[key] >= waiting.get(key, 0)
        found = {each.group.id: each for each in steps.waiting}
        assert len(found) == len(steps.waiting) == replay.num_groups(steps.num_prompts) - steps.num_prompts
        assert before <= trained | set(found)
        now = {key: count for each in steps.waiting for key, count in tokens_of(each).items()}
        for each_open in steps.waiting:
            assert number - each_open.group.step < replay.most_age
            for index in range(steps.num_rollouts):
                key = each_open.group.id, index
                assert waiting.get(key, 0) <= now.get(key, 0) <= steps.length_of[key]
        assert [each.group.step for each in steps.waiting] == sorted(each.group.step for each in steps.waiting)
        waiting = now
        if number % 2:
            assert resumed(steps.waiting) == steps.waiting
            steps.waiting = resumed(steps.waiting)


@each("seed", range(300), few=15)
def test_every_rollout_is_trained_on_once_or_waits(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("block", range(10))
def test_that_holds_in_ten_thousand_random_schedules(block: int) -> None:
    for seed in range(1000 * block, 1000 * block + 1000):
        check(seed)


class Twin:
    """The same with as many slots as there are rollouts, by arithmetic: what is left of each rollout, and a clock."""

    def __init__(self, num_prompts: int, num_rollouts: int, replay: ReplayConfig, length_of: Any) -> None:
        self.num_prompts, self.num_rollouts, self.replay, self.length_of = num_prompts, num_rollouts, replay, length_of
        self.left: dict[str, list[int]] = {}
        self.began: dict[str, int] = {}
        self.step = self.clock = 0

    def take(self) -> list[str]:
        for place in range(self.replay.num_groups(self.num_prompts) - len(self.left)):
            name = f"{self.step}/{place}"
            self.left[name] = [self.length_of[name, i] for i in range(self.num_rollouts)]
            self.began[name] = self.step
        order = list(self.left)
        ends = {name: max(left) for name, left in self.left.items()}
        due = [name for name in order if self.step - self.began[name] >= self.replay.most_age]
        at = max([sorted(ends.values())[self.num_prompts - 1], *(ends[name] for name in due)])
        at = max(at, min(left for of_group in self.left.values() for left in of_group if left))
        whole = sorted((name for name in order if ends[name] <= at), key=lambda name: (name not in due, ends[name]))
        trained = [name for name in order if name in whole[: self.num_prompts]]
        self.left = {name: [max(0, n - at) for n in left] for name, left in self.left.items() if name not in trained}
        self.left = dict(sorted(self.left.items(), key=lambda item: (self.began[item[0]], max(item[1]) > 0)))
        self.step, self.clock = self.step + 1, self.clock + at
        return trained


@each("seed", range(200), few=15)
def test_a_step_ends_when_a_twins_clock_says(seed: int) -> None:
    steps, replay = steps_of(seed)
    steps.num_slots, steps.scheduler = 1 << 20, "continuous"
    twin = Twin(steps.num_prompts, steps.num_rollouts, replay, steps.length_of)
    for _ in range(6):
        steps.take()
        assert [group.id for group in steps.trained] == twin.take()
        assert steps.num_decode_steps == twin.clock
        assert [each.group.id for each in steps.waiting] == list(twin.left)


def test_by_hand() -> None:
    """Three groups of two are under way and two are trained on, with the long rollout of q1 in the way."""
    lengths = dict(zip([(f"0/{group}", i) for group in range(3) for i in range(2)], (2, 3, 1, 9, 4, 2), strict=True))
    lengths |= dict(zip([(f"1/{group}", i) for group in range(2) for i in range(2)], (1, 1, 6, 1), strict=True))
    replay = ReplayConfig(unfinished="keep", surplus=1.5)
    steps = Steps(closing=FirstGroups(replay, 2), length_of=lengths, num_prompts=2, num_rollouts=2)
    steps.take()
    assert [group.id for group in steps.trained] == ["0/0", "0/2"] and steps.num_decode_steps == 4
    [waiting] = steps.waiting
    assert tokens_of(waiting) == {("0/1", 0): 1, ("0/1", 1): 4}
    assert [one.completion.index for one in waiting.group.rollouts] == [0] and waiting.to_come == [1]
    steps.take()  # q1 needs 5 more, the new ones 1 and 6
    assert [group.id for group in steps.trained] == ["0/1", "1/0"] and steps.num_decode_steps == 4 + 5
    assert {name: count for each in steps.waiting for name, count in tokens_of(each).items()} == {
        ("1/1", 0): 5,
        ("1/1", 1): 1,
    }


def test_a_group_that_may_wait_no_longer_is_waited_for() -> None:
    lengths = {("0/1", 0): 50, ("0/1", 1): 1}
    replay = ReplayConfig(unfinished="keep", surplus=2.0, most_age=2)
    own = Lengths(lambda: 3)
    own.update(lengths)
    steps = Steps(closing=FirstGroups(replay, 1), length_of=own, num_prompts=1, num_rollouts=2)
    found = []
    for _ in range(4):
        steps.take()
        found.append(([group.id for group in steps.trained], steps.num_decode_steps))
    assert found == [(["0/0"], 3), (["1/0"], 6), (["0/1"], 50), (["2/0"], 53)]


def test_those_that_are_whole_come_first_among_those_of_a_step() -> None:
    opens = [
        Open(group=group_of(name, *[1.0] * size, step=step), ways=(Way(count=2),))
        for name, step, size in (("a", 2, 1), ("b", 1, 1), ("c", 1, 2), ("d", 0, 1))
    ]
    assert [each.group.id for each in oldest_first(opens)] == ["d", "c", "b", "a"]


@each("surplus, num_prompts, wanted", [(1.25, 8, 10), (1.1, 10, 11), (1.01, 1, 2), (2.0, 3, 6), (1.25, 6, 8)])
def test_how_many_groups_are_under_way(surplus: float, num_prompts: int, wanted: int) -> None:
    assert ReplayConfig(unfinished="keep", surplus=surplus).num_groups(num_prompts) == wanted
