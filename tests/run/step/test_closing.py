"""Groups that are closed while they are generated: always those of a twin that waits for everything."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from loops import each
from made import completion, group_of
from podsrl.control import View
from podsrl.control.close import UntilMixed
from podsrl.errors import UsageError
from podsrl.run.before.closing import kept_of_plenty
from podsrl.run.step.closing import Closing, EarlyClose, Whole
from podsrl.run.step.opens import shortened
from podsrl.run.step.under_way import Work
from podsrl.select import max_variance, resolve_rule, select_groups
from podsrl.types import Group, Open, Rollout, Task, Way
from tests.run.step.simulated import ALL, Simulated, Told, certain, generated

NAN = float("nan")
SCHEDULERS = ("continuous", "continuous+breadth")


class Case:
    """Random groups with random lengths."""

    def __init__(self, seed: int) -> None:
        draws = random.Random(seed)
        self.num_kept = draws.randint(2, 8)
        self.sizes = {f"q{i}": draws.randint(self.num_kept + 1, 30) for i in range(draws.randint(1, 4))}
        share, odd = draws.random(), draws.choice([0.0, 0.1])
        keys = [(name, i) for name, size in self.sizes.items() for i in range(size)]
        self.rewards = {
            key: draws.choice([NAN, 0.5]) if draws.random() < odd else float(draws.random() < share) for key in keys
        }
        self.lengths = {key: min(60, int(draws.expovariate(0.1)) + 1) for key in keys}
        self.num_slots, self.scheduler = draws.randint(1, 40), draws.choice(SCHEDULERS)
        self.slow = {key for key in keys if draws.random() < draws.choice([0.0, 0.3])}
        self.first = draws.randint(2, 6)

    def run(self, closing: Closing, *, is_able: bool = True, is_slow: bool = False) -> tuple[list[Open], int]:
        """The groups, and the tokens that they took."""
        abilities = ALL if is_able else frozenset({"join"})
        engine = Simulated(self.lengths, self.num_slots, self.scheduler, abilities=abilities)
        slow = self.slow if is_slow else set()
        judge = Told(self.rewards, lambda done: (done.group_id, done.index) in slow)
        return generated(closing, engine, judge, self.sizes), engine.stats.tokens


class Counting(Told):
    """Counts the calls that judge something."""

    num_calls = 0

    def early(self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Rollout]]) -> list[list[Rollout]]:
        self.num_calls += any(completions_PG)
        return super().early(tasks_P, completions_PG)


def mixed(first: int) -> EarlyClose:
    return EarlyClose(UntilMixed().close, "close of systems = 'until_mixed'", first)


def indices(each: Open) -> list[int]:
    return [rollout.index for rollout in each.group.rollouts]


@each("seed", range(100))
def test_certain_keeps_what_the_whole_group_would_keep_for_fewer_tokens(seed: int) -> None:
    case = Case(seed)
    whole, num_tokens = case.run(Whole())
    closed, fewer = case.run(certain(case.num_kept))
    for one, other in zip(whole, closed, strict=True):
        size = len(other.group.rollouts)
        assert other.group.rollouts == one.group.rollouts[:size] and other.size == size
        all_kept, kept = select_groups([one.group, other.group], max_variance, case.num_kept)
        assert kept.kept == all_kept.kept
    in_groups = sum(r.num_drawn for each in closed for r in each.group.rollouts)
    assert fewer == in_groups + sum(sum(each.pruned) for each in closed) <= num_tokens
    assert all(all(each.pruned) and not each.begun for each in closed)


@each("seed", range(60))
def test_certain_keeps_what_max_signal_would_keep_of_the_whole_group(seed: int) -> None:
    case = Case(seed)
    rule = resolve_rule("max_signal", {"overhead": (0.2, 1.0, 13.0)[seed % 3]})
    whole, num_tokens = case.run(Whole())
    closed, fewer = case.run(certain(kept_of_plenty(rule, case.num_kept)))
    for one, other in zip(whole, closed, strict=True):
        all_kept, kept = select_groups([one.group, other.group], rule, case.num_kept)
        assert kept.kept == all_kept.kept
    assert fewer <= num_tokens


@each("seed", range(40))
def test_no_slot_schedule_slowness_or_generator_changes_a_group(seed: int) -> None:
    case = Case(seed)
    for closing in (certain(case.num_kept), mixed(case.first)):
        found, fewest = case.run(closing)
        for change in ({"is_able": False}, {"is_slow": True}, {"is_able": False, "is_slow": True}):
            other, num_tokens = case.run(closing, **change)
            assert [each.group for each in other] == [each.group for each in found]
            assert num_tokens >= fewest
        for scheduler in SCHEDULERS:
            case.num_slots, case.scheduler = 1 + (7 * case.num_slots) % 41, scheduler
            assert [each.group for each in case.run(closing)[0]] == [each.group for each in found]


@each("seed", range(100))
def test_a_group_ends_where_a_twin_that_reads_it_in_order_has_enough(seed: int) -> None:
    case = Case(seed)
    for found in case.run(mixed(case.first))[0]:
        name = found.group.id
        rewards = [case.rewards[name, i] for i in range(case.sizes[name])]
        size = case.sizes[name]
        for count in range(case.first, case.sizes[name] + 1):
            right = [reward >= 1 for reward in rewards[:count] if reward == reward]
            if True in right and False in right:
                size = count
                break
        assert indices(found) == list(range(size))
        assert found.group.num_first == case.first and len(found.group.outcomes) <= case.first


@each("seed", range(40))
def test_what_ends_in_one_decode_step_is_judged_in_one_call_and_nothing_else_changes(seed: int) -> None:
    case, found = Case(seed), []
    for is_known in (True, False):
        engine = Simulated(case.lengths, case.num_slots, case.scheduler)
        judge = Counting(case.rewards)
        with pytest.MonkeyPatch.context() as patch:
            if not is_known:
                patch.setattr(Work, "has_ended", False)
            closing = certain(case.num_kept)
            found.append((generated(closing, engine, judge, case.sizes), engine.stats, judge.num_calls))
    (opens, stats, num_calls), (one_by_one, other_stats, more_calls) = found
    assert (opens, stats) == (one_by_one, other_stats)
    assert num_calls <= min(more_calls, stats.steps)


def test_no_reward_is_looked_at_before_a_group_may_close() -> None:
    keys = [("q", i) for i in range(8)]
    engine, judge = Simulated(dict.fromkeys(keys, 5), 1), Counting(dict.fromkeys(keys, 0.0))
    generated(mixed(6), engine, judge, {"q": 8})
    assert judge.num_calls == 3  # with the sixth rollout, the seventh and the eighth


def test_on_one_slot_nothing_is_generated_that_is_not_needed() -> None:
    keys = [("q", i) for i in range(8)]
    engine = Simulated(dict(zip(keys, [3, 1, 4, 1, 5, 9, 2, 6], strict=True)), 1)
    judge = Told(dict(zip(keys, [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], strict=True)))
    [each] = generated(certain(4), engine, judge, {"q": 8})
    assert (indices(each), each.pruned, engine.stats.tokens) == ([0, 1, 2, 3], (), 3 + 1 + 4 + 1)


def test_what_runs_behind_the_last_needed_rollout_is_pruned_and_what_never_began_is_not_recorded() -> None:
    """On three slots 0 (1 token), 1 (2) and 2 (9) begin; 3 (2) follows 0, and 4 follows 1. After 0, 1 and 3 it is
    certain but for 2, which nobody waits for: m = 2 needs one of each, and those are 0 and 1."""
    keys = [("q", i) for i in range(8)]
    engine = Simulated(dict(zip(keys, [1, 2, 9, 2, 9, 9, 9, 9], strict=True)), 3)
    judge = Told(dict(zip(keys, [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], strict=True)))
    [each] = generated(certain(2), engine, judge, {"q": 8})
    assert (indices(each), each.pruned) == ([0, 1], (2, 1))
    assert engine.stats.tokens == 1 + 2 + 2 + 1


def test_a_close_that_takes_back_that_it_had_enough_is_named() -> None:
    def fickle(view: View, group: Group) -> bool:
        return [rollout.index for rollout in group.rollouts][:1] == [1] and len(group.rollouts) == 2

    closing = EarlyClose(fickle, "close of systems = 'mine:Fickle'", 2)
    keys = [("q", i) for i in range(4)]
    engine = Simulated(dict(zip(keys, [9, 1, 1, 30], strict=True)), 4)
    with pytest.raises(UsageError, match=r"^close of systems = 'mine:Fickle' had enough of group 'q'.*first 3"):
        generated(closing, engine, Told(dict.fromkeys(keys, 0.0)), {"q": 4})


@pytest.mark.parametrize("answer", ["yes", 1, None, NAN])
def test_an_answer_that_is_no_verdict_is_named(answer: Any) -> None:
    keys = [("q", i) for i in range(4)]
    closing = EarlyClose(lambda view, group: answer, "close of systems = 'mine:Odd'", 2)
    with pytest.raises(UsageError, match=r"^close of systems = 'mine:Odd' returned .*; wanted True or False"):
        generated(closing, Simulated(dict.fromkeys(keys, 1), 4), Told(dict.fromkeys(keys, 0.0)), {"q": 4})


def test_a_close_that_has_closed_none_of_a_hundred_groups_is_named_once() -> None:
    def count(rewards: list[float]) -> int:
        names = [f"q{i}" for i in range(250)]
        told = {(name, i): reward for name in names for i, reward in enumerate(rewards)}
        engine = Simulated(dict.fromkeys(told, 2), 1000)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            generated(certain(2), engine, Told(told), dict.fromkeys(names, len(rewards)))
        assert all("'certain' has closed none of the first 100 groups" in str(each.message) for each in caught)
        return len(caught)

    assert (count([0.0, 0.0, 0.0]), count([0.0, 1.0, 0.0])) == (1, 0)


def test_a_shortened_group_has_the_first_ways_and_counts_the_tokens_of_the_others() -> None:
    drawn: list[Rollout] = [completion((7,) * length, index=i) for i, length in enumerate((3, 1, 2, 0, 5), start=2)]
    drawn[2] = replace(drawn[2], given=((0, 1),))
    ways = (Way(count=3), Way(count=1, origin="hint", prompt_ids=(9,)), Way(count=3))
    each = Open(group=group_of("q", 1.0, 0.0), ways=ways, begun=tuple(drawn), pruned=(8,))
    found = shortened(each, 4)
    assert found.ways == (Way(count=3), Way(count=1, origin="hint", prompt_ids=(9,)))
    assert (found.group, found.begun, found.pruned) == (each.group, tuple(drawn[:2]), (8, 1, 5))
    assert shortened(each, 1).pruned == (8, 1, 3, 1, 1, 5) and len(shortened(each, 1).group.rollouts) == 1
