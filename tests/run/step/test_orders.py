"""Orders of a run: laws over random lengths, turns, rounds, slots, stops and weights."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest

from loops import each
from podsrl.config.schema import OrderConfig
from podsrl.lib.watch import Key
from podsrl.run.step.collected import Collected
from podsrl.run.step.round import from_arrays, to_arrays
from podsrl.types import Rollout
from tests.run.step.simulated import Lengths, Run, Threads, token

ORDERS = [
    OrderConfig(),
    OrderConfig(ahead=1),
    *(OrderConfig(ahead=ahead, rest=rest) for ahead in (1, 2, 4) for rest in ("run", "put_off")),
    *(OrderConfig(ahead=2, rest=rest, most_age=age) for age in (1, 2) for rest in ("run", "put_off")),
    *(
        OrderConfig(ahead=ahead, take="first", rest=rest, most_age=age)
        for ahead in (0.25, 1, 3)
        for rest in ("run", "put_off")
        for age in (None, 1, 4)
    ),
]


def run_of(order: OrderConfig, seed: int, **options: Any) -> Run:
    draws = random.Random(seed)
    long = draws.choice([2, 9, 40])
    lengths = Lengths(seed, lambda draw: min(40, draw.randint(1, long) ** draw.choice([1, 1, 2])))
    slots = draws.choice([1, 3, 7, 1 << 20])
    num_turns = draws.choice([1, 1, 3])

    def turns(key: Key) -> list[int]:
        draw = random.Random(f"turns {seed} {key}")
        ends = [draw.randint(1, lengths[key]) for _ in range(draw.randint(0, num_turns - 1))]
        return sorted({*ends, lengths[key]})

    return Run(
        order=order,
        length_of=lengths,
        num_prompts=draws.randint(1, 4),
        num_rollouts=draws.randint(2, 4),
        num_slots=slots,
        scheduler=draws.choice(["continuous", "continuous+breadth"]) if slots > 1 else "continuous",
        num_rounds=draws.choice([1, 1, 2, 3]) if order.take == "asked" else 1,
        turns=turns if num_turns > 1 else None,
        thinking=random.Random(seed),
        **options,
    )


def most_age(order: OrderConfig) -> float:
    """Steps by which a group may be older than the weights that train on it."""
    return float("inf") if order.largest_age is None else order.largest_age


def check_group(run: Run, each: Any, found: Counter[Key]) -> None:
    for one in each.rollouts:
        done, key = one, (each.id, one.index)
        assert done.token_ids == tuple(token(key, place) for place in range(run.length_of[key]))
        assert run.version - done.oldest_version <= most_age(run.order)
        assert list(done.versions) == sorted(done.versions)
        found[key] += 1


def begun(opens: Any) -> list[Key]:
    return [(done.group_id, done.index) for each in opens for done in each.rollouts]


def check(order: OrderConfig, seed: int) -> None:
    """Every rollout has the tokens of one uninterrupted round, is old enough to be trained on, and has one fate."""
    run, draws, found = run_of(order, seed), random.Random(seed), Counter[Key]()
    for _ in range(draws.randint(2, 6)):
        collected = run.take()
        assert len(collected.groups) >= run.num_prompts
        assert collected.groups == collected.seen  # none is thrown away
        for group in collected.groups:
            assert len(group.rollouts) >= run.num_rollouts
            assert [one.index for one in group.rollouts] == [*range(len(group.rollouts))]
            check_group(run, group, found)
        run.train(collected)
        if draws.random() < 0.3:
            run.settle()
    run.settle()
    left = [*begun(run.desk.waiting), *(key for each in run.desk.rounds for key in begun(each.opens))]
    assert run.engine.num_unfinished == 0  # nothing runs beside an evaluation
    assert max(found.values()) == 1 and len(set(left)) == len(left)
    assert not {*left} & {*found} and {*run.engine.num_begun} <= {*found} | {*left} | {*lacking(run)}
    assert set(run.engine.num_begun.values()) == {1} or order.rest != "finish"


def lacking(run: Run) -> list[Key]:
    """Rollouts that begin anew, since they had no token when they were put off."""
    opens = [*run.desk.waiting, *(own for each in run.desk.rounds for own in each.opens)]
    return [(each.group.id, index) for each in opens for index in each.to_come]


@each("seed", range(10 * len(ORDERS)), few=len(ORDERS))
def test_every_order_gives_the_tokens_of_one_uninterrupted_round_and_each_rollout_once(seed: int) -> None:
    check(ORDERS[seed % len(ORDERS)], seed)


@pytest.mark.parametrize("block", range(10))
def test_that_holds_in_ten_thousand_random_schedules(block: int) -> None:
    for seed in range(1000 * block, 1000 * block + 1000):
        check(ORDERS[seed % len(ORDERS)], seed)


def groups_of(collected: Collected) -> list[tuple[str, list[Rollout]]]:
    return [(group.id, [*group.rollouts]) for group in collected.groups]


def resumed(run: Run, seed: int) -> Run:
    """From what a checkpoint holds."""
    run.settle()
    arrays = to_arrays(run.desk.rounds if run.order.is_ahead else (), run.desk.position, run.desk.tally, run.processes)
    other = run_of(run.order, seed, step=run.step, position=run.position, version=run.version, published=run.published)
    tasks = {each.group.id: each.group.task for own in run.desk.rounds for each in own.opens}
    if arrays:
        rounds, other.desk.position, other.desk.tally = from_arrays(
            arrays, other.processes, lambda name, index: tasks[name], other.view_at
        )
        other.desk.rounds.extend(rounds)
    other.desk.waiting, other.engine.version = run.desk.waiting, run.published
    other.load()
    return other


@each("seed", range(20 * len(ORDERS)), few=2 * len(ORDERS))
def test_a_resumed_run_trains_on_the_same(seed: int) -> None:
    """Versions too: in one process no clock decides where rollouts stop, but that of an environment; "run" is exact
    where the stops of checkpoints are the same."""
    order = ORDERS[seed % len(ORDERS)]
    run, other, draws = run_of(order, seed), run_of(order, seed), random.Random(seed)
    if order.rest != "finish" and run.turns is not None:
        return
    for _ in range(5):
        one, two = run.take(), other.take()
        assert groups_of(one) == groups_of(two) and one.data_position == two.data_position
        assert one.num_resumed_tokens == two.num_resumed_tokens
        assert run.turns is not None or one.stats == two.stats
        run.train(one)
        other.train(two)
        is_saved = draws.random() < 0.5
        if is_saved if order.rest == "run" else draws.random() < 0.5:
            run.settle()
        if is_saved:
            other = resumed(other, seed)


def test_the_last_steps_are_the_last_that_are_asked() -> None:
    for order in ORDERS:
        if order.take == "first":
            continue
        run = run_of(order, 3, last=4)
        for _ in range(4):
            run.train(run.take())
        assert not run.desk.rounds and run.desk.waiting == ()


ASKED = [order for order in ORDERS if order.take == "asked"]


@pytest.mark.parametrize("num", [2, 3])
@each("seed", range(10 * len(ASKED)), few=len(ASKED))
def test_several_processes_have_the_same_desk_as_one(num: int, seed: int) -> None:
    order = ASKED[seed % len(ASKED)]
    alone = run_of(order, seed)
    barrier, told = threading.Barrier(num), [None] * num
    runs = [run_of(order, seed, processes=Threads(rank, barrier, told)) for rank in range(num)]
    found = [list[Collected]() for _ in runs]

    def steps(rank: int) -> None:
        try:
            for _ in range(3):
                collected = runs[rank].take()
                found[rank].append(collected)
                runs[rank].train(collected)
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=partial(steps, rank)) for rank in range(num)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [alone.take()]
    for _ in range(2):
        alone.train(expected[-1])
        expected.append(alone.take())
    for of_rank in found:
        assert [tokens_of(one) for one in of_rank] == [tokens_of(one) for one in expected]
        assert [one.data_position for one in of_rank] == [one.data_position for one in expected]


def tokens_of(collected: Collected) -> list[tuple[str, list[tuple[int, ...]]]]:
    return [(name, [done.token_ids for done in found]) for name, found in groups_of(collected)]


def test_turns_wait_for_nobody() -> None:
    """By hand: two rollouts of two turns each, of lengths that a barrier would add up."""
    ends = {0: [1, 10], 1: [9, 10]}
    run = Run(
        order=OrderConfig(),
        length_of={("s0/0/q0", 0): 10, ("s0/0/q0", 1): 10},
        num_prompts=1,
        num_rollouts=2,
        turns=lambda key: ends[key[1]],
        thinking=random.Random(1),
    )
    run.thinking.randint = lambda low, high: 0  # type: ignore[method-assign]  # answers at once
    [group] = run.take().groups
    assert len(group.rollouts) == 2 and run.num_decode_steps == 10  # 9 + 9 where each turn is a barrier


def test_a_step_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for order in ORDERS:
        run, other = run_of(order, 5), run_of(order, 5)
        for own in (run, other):
            own.train(own.take())
        with monkeypatch.context() as broken:
            broken.setattr(run.desk.judge, "score", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.take()
        assert tokens_of(run.take()) == tokens_of(other.take()) or order.take == "first"


@each("seed", range(30))
def test_what_was_put_off_goes_on_before_what_is_asked_later(seed: int) -> None:
    """So in one process it takes as many decode steps as what was never stopped."""
    draws = random.Random(seed)
    ahead, num_prompts, num_slots = draws.choice([1, 2]), draws.randint(1, 4), draws.randint(1, 9)
    lengths, found = Lengths(seed, lambda draw: draw.randint(1, 30)), []
    for order in (OrderConfig(ahead=ahead, rest="run"), OrderConfig(ahead=ahead, rest="put_off")):
        run = Run(order=order, length_of=lengths, num_prompts=num_prompts, num_slots=num_slots)
        for _ in range(8):
            run.train(run.take())
        found.append(run.num_decode_steps)
    assert found[0] == found[1]
