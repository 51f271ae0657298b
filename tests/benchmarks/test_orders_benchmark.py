"""`python -m benchmarks orders`: its counts of decode steps by hand, what runs cost, and evaluations that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.barrier import MADE, MADE_ROLLOUTS, Barrier, sums, turn_of, turns
from benchmarks.orders import ARMS, FIRST, ORDERS, TARGET, Trial, compared, orders_table, summary, waited, waits
from benchmarks.runs import MARKS, Limits, first_at, train, train_first
from loops import each
from made import completion, ended
from podsrl.config.load import load_config
from podsrl.config.schema import OrderConfig
from podsrl.generate import Request, Sampling
from podsrl.run.step.desk import request_id
from tests.run.step.simulated import Simulated


@each(
    ("order", "num_beside", "wanted"),
    [
        (OrderConfig(), 5, 2.5),  # 128 rollouts of 10 tokens on 64 slots: 20 decode steps for 8 groups
        (OrderConfig(ahead=1), 5, 1.875),
        (OrderConfig(ahead=1), 20, 0.0),
        (OrderConfig(ahead=1, rest="put_off"), 5, 2.5),
        (OrderConfig(ahead=1, rest="run"), 5, 1.875),
        (OrderConfig(ahead=1, take="first", rest="run"), 0, 2.5),
    ],
)
def test_a_step_waits_for_what_was_not_made_during_updates(order: OrderConfig, num_beside: int, wanted: float) -> None:
    assert waited(order, [10], 8, num_beside)[0] == wanted


def test_what_each_order_waits_for() -> None:
    found = waits([10], 4)
    assert found["update"] == 10 and found["mean"] == found["max"] == 10
    assert {*found["orders"]} == {*ORDERS} and found["orders"]["1, asked, finish"]["one process"] is None
    assert found["orders"]["1, asked, finish"] == {"one process": None, "beside": 1.25, "oldest": 1}
    shown = orders_table({"waits": {"tens": found}, "trained": {"orders": {}}})
    assert "| 1, asked, finish |  | 1.2 | 1 |" in shown


def test_the_barrier_holds_back_what_goes_on() -> None:
    keys = [("q", 0), ("q", 1)]
    inner = Simulated(dict(zip(keys, (6, 5), strict=True)), turns=lambda key: (2, 6) if key[1] == 0 else (5,))
    barrier: Any = Barrier(inner)
    ask = Request("q", (1,), 2, Sampling(max_new_tokens=9))
    barrier.submit([ask])
    [first] = barrier.poll()
    barrier.submit([replace(ask, num_rollouts=1, starts={0: first})])
    assert (inner.num_unfinished, barrier.num_unfinished) == (1, 2)
    assert [done.index for done in barrier.poll()] == [1] and inner.stats.steps == 5
    assert [done.index for done in barrier.poll()] == [0] and inner.stats.steps == 5 + 4 and barrier.num_unfinished == 0


def test_with_a_slot_for_each_a_barrier_waits_for_the_longest_turn_of_each_round() -> None:
    found = turns(MADE, 3, None, rounds=1)
    lengths = []
    for place, task in enumerate(sums(2, 8, 0)):
        for index in range(MADE_ROLLOUTS):
            request = Request(request_id(0, place, task.id), (1,), MADE_ROLLOUTS, Sampling(max_new_tokens=999))
            own, size = list[int](), 0
            for number in range(3):
                given = tuple((2 * i, 2 * i + 1) for i in range(number))
                begun = completion((1,) * size, index=index, logprobs=(0.0,) * size, given=given, **ended("open"))
                starts = {index: begun} if number else {}
                end = turn_of(replace(request, starts=starts), index).sampling.max_new_tokens
                own.append(end - size)
                size = end + 1  # with what is said to it
            lengths.append(own)
    assert found["steps"] == {
        "barrier": sum(max(turn) for turn in zip(*lengths, strict=True)),
        "none": max(map(sum, lengths)),
    }
    assert found["rollouts"] == 8 * MADE_ROLLOUTS and found["mean_turns"] == 3


def record(seconds: float, steps: int, *, is_reached: bool = True) -> dict[str, Any]:
    points: dict[str, list[Any]] = {
        "step": [0, steps],
        "seconds": [0, seconds],
        "accuracy": [0.2, 0.95 if is_reached else 0.4],
    }
    reached = {f"{target:g}": first_at(points, target) for target in (TARGET,)}
    return {"points": points, "reached": reached, "commit": "abc", "load": 0.5}


def test_costs_are_compared_seed_by_seed() -> None:
    other = [*ARMS][1]
    records = {
        Trial(order=order, seed=seed): record(seconds, steps, is_reached=is_reached)
        for order, seed, seconds, steps, is_reached in [
            (FIRST, 0, 40.0, 20, True),
            (FIRST, 1, 60.0, 30, True),
            (FIRST, 2, 90.0, 30, True),
            (other, 0, 20.0, 20, True),
            (other, 1, 20.0, 60, False),
        ]
    }
    found = summary(records, {FIRST: [2.0, 2.0, 5.0], other: [1.0, 1.0, 1.0]}, 3)
    assert [*found["orders"]] == [FIRST, other] and found["facts"]["num_runs"] == 5
    own = found["orders"][other]
    assert own["seconds"]["cost"] == [20.0, None] and own["step"]["fewer"]["ratios"] == [1.0, 0.5]
    assert own["seconds"]["fewer"]["ratios"] == [2.0, 1.0] and own["seconds"]["fewer"]["bound"] == "≤"
    assert own["pace"]["seconds"] == [1.0, 1.0, 1.0] and own["pace"]["fewer"]["ratios"] == [2.0, 2.0, 5.0]
    assert compared({}, {1: record(1.0, 1)}, TARGET, (1.0, 3.0)) == {"cost": [3.0], "fewer": None}


def test_evaluations_that_wait_find_the_accuracies_of_their_steps() -> None:
    changes = ["threads=1", "model.device=cpu", "optim.lr=3e-3"]
    config, limits = load_config("mixed", changes), Limits(steps=2, accuracy=2.0)
    marks = replace(MARKS, targets=(0.01,))
    now, later = (make(config, limits, marks=marks)["points"] for make in (train, train_first))
    assert now["step"] == later["step"] == [0, 1, 2] and now["accuracy"] == later["accuracy"]
    assert len({*now["accuracy"]}) > 1 and later["tokens"] == now["tokens"]
