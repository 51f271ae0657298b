"""Groups that are generated without a model take the slots that an engine would give them."""

from __future__ import annotations

import random
from heapq import heapreplace

from loops import each
from podsrl.run.step.closing import Whole
from tests.run.step.simulated import Simulated, Told, certain, generated


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
    assert [r.num_drawn for each in opens for r in each.group.rollouts] == list(lengths.values())


def test_what_is_ended_makes_no_more_tokens() -> None:
    """Two slots: 0 and 1 are enough after three tokens, when 2 has made one, and 3 never begins."""
    keys = [("q", i) for i in range(4)]
    engine = Simulated(dict(zip(keys, (2, 3, 50, 50), strict=True)), 2)
    [found] = generated(certain(2), engine, Told(dict(zip(keys, (1.0, 0.0, 1.0, 0.0), strict=True))), {"q": 4})
    assert (found.size, found.pruned, engine.stats.tokens, engine.stats.steps) == (2, (1,), 6, 3)
