"""The simulated generator of the benchmark of closed groups against slots by hand; and its numbers."""

from __future__ import annotations

import random
from heapq import heapreplace

import numpy as np

from benchmarks.closed_runs import ALL, CERTAIN, FEW, HALF, PODS, measure
from benchmarks.closing import Simulated, Told, certain, cost, generated
from benchmarks.figures.tables import closing as closing_table
from loops import each
from podsrl.run.step.closing import Whole


@each("seed", range(20))
def test_without_a_stop_each_rollout_takes_the_slot_that_is_free_first(seed: int) -> None:
    draws = random.Random(seed)
    keys = [(name, i) for name in ("a", "b") for i in range(draws.randint(1, 12))]
    lengths = {key: draws.randint(1, 40) for key in keys}
    num_slots, scheduler = draws.randint(1, 9), draws.choice(["continuous", "continuous+breadth"])
    engine = Simulated(lengths, num_slots, scheduler)
    sizes = {name: sum(key[0] == name for key in keys) for name in ("a", "b")}
    opens = generated(Whole(), engine, Told(dict.fromkeys(keys, 0.0)), sizes)
    ends = [0] * num_slots
    for key in sorted(keys, key=lambda key: key[1]) if scheduler.endswith("breadth") else keys:
        heapreplace(ends, ends[0] + lengths[key])
    assert (engine.stats.steps, engine.stats.tokens) == (max(ends), sum(lengths.values()))
    assert [r.completion.num_drawn for each in opens for r in each.group.rollouts] == list(lengths.values())


def test_what_is_ended_makes_no_more_tokens() -> None:
    """Two slots: 0 and 1 are enough after three tokens, when 2 has made one, and 3 never begins."""
    keys = [("q", i) for i in range(4)]
    engine = Simulated(dict(zip(keys, (2, 3, 50, 50), strict=True)), 2)
    [found] = generated(certain(2), engine, Told(dict(zip(keys, (1.0, 0.0, 1.0, 0.0), strict=True))), {"q": 4})
    assert (found.size, found.pruned, engine.stats.tokens, engine.stats.steps) == (2, (1,), 6, 3)


def test_an_even_question_costs_less_than_a_rare_one_and_few_slots_less_than_many() -> None:
    drawn = np.random.default_rng(0)

    def tokens(share: float, slots: int) -> float:
        return cost(lambda count: drawn.integers(1, 30, count), drawn, share, slots, 4)["tokens"]

    assert tokens(0.5, 4) < tokens(0.5, 64) < 1 and tokens(0.5, 4) < tokens(0.15, 4)
    assert tokens(0.0, 4) == 1


def test_the_table_has_a_row_per_number_of_slots_and_order() -> None:
    row = {"lengths": "gsm8k", "slots": 8, "tokens": 0.354, "steps": 0.42}
    certain = {"tokens": 0.7, "decode_steps": 1.5, "cpu_seconds": 1.04, "at 0.3": 0.9, "at 1": 0.8, "at 2.3": 0.75}
    result = {
        **{"date": "2026-01-01", "processor": "P", "hardware": "h", "commit": "c"},
        "runs": {"demo": {"steps": 5, "arms": {"PODS": {}, "certain, all slots": certain}}},
        "groups": 3,
        "group": [{**row, "right": 0.1}, {**row, "right": 0.5, "tokens": 1.0}],
        "step": [{**row, "right": 0.5, "order": "breadth"}],
    }
    text = closing_table(lambda name: {"cpu": result} if name == "closing" else {})
    assert "| gsm8k, 8 slots per group | 0.35 (0.42) | 1.00 (0.42) |" in text and "10% | 50% |" in text
    assert "| gsm8k, 8 slots per group, breadth | 0.35 (0.42) |" in text and "3 groups per number" in text
    assert "8 × 64 → 16 | certain, all slots | 0.70 | 1.50 | 1.04 | 0.90 | 0.80 | 0.75 |" in text


def test_all_arms_of_a_run_train_on_the_same_tokens_and_few_slots_take_more_decode_steps() -> None:
    found = measure("demo", 1, lambda text: None)["arms"]
    assert [arm["trained"] for arm in found.values()] == [1.0] * 5
    assert found[PODS] == dict.fromkeys(found[PODS], 1.0)
    assert found[FEW]["tokens"] == 1 and found[FEW]["decode_steps"] > 1.2 and found[ALL]["decode_steps"] <= 1
    for arm in (found[ALL], found[HALF], found[CERTAIN]):
        assert arm["tokens"] <= 1 and arm["tokens"] <= arm["at 2.3"] <= arm["at 0.3"] <= 1
