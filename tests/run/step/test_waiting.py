"""Steps that take the groups that are whole first: against arithmetic; their laws are in `test_orders.py`."""

from __future__ import annotations

import random
from collections.abc import Callable

from loops import each
from made import group_of
from podsrl.config.schema import OrderConfig
from podsrl.lib.watch import Key
from podsrl.run.step.waiting import oldest_first
from podsrl.types import Open, Way
from tests.run.step.simulated import Lengths, Run


class ByPlace(Lengths):
    """Lengths by a group's place: "s0/1" is the second that step 0 asked."""

    def __getitem__(self, key: Key) -> int:
        return super().__getitem__((place_of(key[0]), key[1]))


def place_of(name: str) -> str:
    return "/".join(name.split("/")[:2])


def order_of(ahead: float, most_age: int | None = 4) -> OrderConfig:
    return OrderConfig(ahead=ahead, take="first", rest="put_off", most_age=most_age)


def run_of(seed: int, order: OrderConfig, draw: Callable[[random.Random], int], *, num: tuple[int, int]) -> Run:
    return Run(order=order, length_of=ByPlace(seed, draw), num_prompts=num[0], num_rollouts=num[1])


def tokens_of(each: Open) -> dict[Key, int]:
    return {(place_of(each.group.id), done.index): len(done.token_ids) for done in each.rollouts}


def step(run: Run) -> list[str]:
    """Take one, and train on it; places of its groups."""
    collected = run.take()
    run.train(collected)
    return [place_of(group.id) for group in collected.groups]


class Twin:
    """The same with as many slots as there are rollouts, by arithmetic: what is left of each rollout, and a clock."""

    def __init__(self, run: Run) -> None:
        self.run, self.left, self.began = run, dict[str, list[int]](), dict[str, int]()
        self.step = self.clock = 0

    def take(self) -> list[str]:
        run, most_age = self.run, self.run.order.most_age or 1 << 20
        for _ in range(run.order.num_groups(run.num_prompts) - len(self.left)):
            name = f"s{self.step}/{len(self.left)}"
            self.left[name] = [run.length_of[name, i] for i in range(run.num_rollouts)]
            self.began[name] = self.step
        order = list(self.left)
        ends = {name: max(left) for name, left in self.left.items()}
        due = [name for name in order if self.step - self.began[name] >= most_age]
        at = max([sorted(ends.values())[run.num_prompts - 1], *(ends[name] for name in due)])
        whole = sorted((name for name in order if ends[name] <= at), key=lambda name: (name not in due, ends[name]))
        trained = [name for name in order if name in whole[: run.num_prompts]]
        self.left = {name: [max(0, n - at) for n in left] for name, left in self.left.items() if name not in trained}
        self.left = dict(sorted(self.left.items(), key=lambda item: (self.began[item[0]], max(item[1]) > 0)))
        self.step, self.clock = self.step + 1, self.clock + at
        return trained


@each("seed", range(200), few=15)
def test_a_step_ends_when_a_twins_clock_says(seed: int) -> None:
    draws = random.Random(seed)
    order = order_of(draws.choice([0.01, 0.25, 0.5, 1.0]), draws.choice([None, 1, 2, 5]))
    long = draws.choice([2, 9, 60])
    run = run_of(seed, order, lambda draw: draw.randint(1, long), num=(draws.randint(1, 5), draws.randint(2, 5)))
    twin = Twin(run)
    for _ in range(6):
        assert step(run) == twin.take()
        assert run.num_decode_steps == twin.clock
        assert [place_of(each.group.id) for each in run.desk.waiting] == list(twin.left)


def test_by_hand() -> None:
    """Three groups of two are under way and two are trained on, with the long rollout of q1 in the way."""
    lengths = dict(zip([(f"s0/{group}", i) for group in range(3) for i in range(2)], (2, 3, 1, 9, 4, 2), strict=True))
    lengths |= dict(zip([(f"s1/{group}", i) for group in (1, 2) for i in range(2)], (1, 1, 6, 1), strict=True))
    run = run_of(0, order_of(0.5), lambda draw: 99, num=(2, 2))
    run.length_of.update(lengths)  # type: ignore[attr-defined]
    assert step(run) == ["s0/0", "s0/2"] and run.num_decode_steps == 4
    [waiting] = run.desk.waiting
    assert tokens_of(waiting) == {("s0/1", 0): 1, ("s0/1", 1): 4} and waiting.to_come == [1]
    assert step(run) == ["s0/1", "s1/1"] and run.num_decode_steps == 4 + 5  # q1 needs 5 more, the new ones 1 and 6
    assert {name: count for each in run.desk.waiting for name, count in tokens_of(each).items()} == {
        ("s1/2", 0): 5,
        ("s1/2", 1): 1,
    }


def test_a_group_that_may_wait_no_longer_is_waited_for() -> None:
    run = run_of(0, order_of(1.0, 2), lambda draw: 3, num=(1, 2))
    run.length_of[("s0/1", 0)] = 50  # type: ignore[index]
    found = [(step(run), run.num_decode_steps) for _ in range(4)]
    assert found == [(["s0/0"], 3), (["s1/1"], 6), (["s0/1"], 50), (["s2/1"], 50)]


def test_old_groups_are_taken_before_the_steps_after_could_not_take_all_in_time() -> None:
    """Three groups of step 0 may be two steps old: one has to go into each of the steps 0, 1 and 2."""
    run = run_of(0, order_of(2.0, 2), lambda draw: 1, num=(1, 2))
    run.length_of.update({("s0/1", 0): 40, ("s0/2", 0): 60})  # type: ignore[attr-defined]
    assert [step(run) for _ in range(3)] == [["s0/0"], ["s0/1"], ["s0/2"]]


def test_those_that_are_whole_come_first_among_those_of_a_step() -> None:
    opens = [
        Open(group=group_of(name, *[1.0] * size, step=step), ways=(Way(count=2),))
        for name, step, size in (("a", 2, 1), ("b", 1, 1), ("c", 1, 2), ("d", 0, 1))
    ]
    assert [each.group.id for each in oldest_first(opens)] == ["d", "c", "b", "a"]


@each("surplus, num_prompts, wanted", [(1.25, 8, 10), (1.1, 10, 11), (1.01, 1, 2), (2.0, 3, 6), (1.25, 6, 8)])
def test_how_many_groups_are_under_way(surplus: float, num_prompts: int, wanted: int) -> None:
    assert order_of(surplus - 1).num_groups(num_prompts) == wanted
