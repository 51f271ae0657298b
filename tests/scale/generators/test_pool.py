"""A pool of generators in this process: which share each gets, what comes back, and what happens when one is lost."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from contract import drain, tokens_of
from torch import Tensor

from podsrl.control import Steering
from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError
from podsrl.generate import Engine, EngineStats, Generator, Request, Sampling, Watch
from podsrl.scale.generators.pool import MAX_LOSSES, Pool
from podsrl.types import Rollout

REQUESTS = [Request(f"s0/{i}", (3 + i, 9), 6, Sampling(max_new_tokens=12, stop_token_ids=(1,))) for i in range(5)]


class Fragile(Engine):
    """An engine that is lost behind so many completions of a busy period, as often as `deaths` says."""

    def __init__(self, model: Any, deaths: list[int]) -> None:
        super().__init__(copy.deepcopy(model), seed=3)
        self.deaths, self.is_closed, self.asked, self.aborted = deaths, False, list[str](), list[Any]()
        self.left: int | None = None

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        wanted = list(requests)
        if not self.num_unfinished:
            self.left = self.deaths.pop(0) if self.deaths else None
        self.asked += [request.id for request in wanted]
        super().submit(wanted, watch=watch)

    def poll(self, seconds: float | None = None) -> list[Rollout]:
        found = super().poll()
        if self.left is not None:
            self.left -= len(found)
            if self.left < 0:
                raise LostGenerator("the third of the test's engines is lost")
        return found

    def abort(self, ids: Any) -> None:
        self.aborted += ids
        super().abort(ids)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def new_pool(qwen2: Any) -> Callable[..., tuple[Pool, list[Fragile]]]:
    """A pool of engines, and all that it ever made; the last member is lost after as many completions as given."""

    def make(num: int, deaths: list[int] | None = None) -> tuple[Pool, list[Fragile]]:
        made: list[Fragile] = []

        def new(i: int) -> Fragile:
            made.append(Fragile(qwen2, deaths if i == num - 1 and deaths is not None else []))
            return made[-1]

        return Pool([lambda i=i: new(i) for i in range(num)]), made  # type: ignore[misc]

    return make


@pytest.mark.parametrize("num", [1, 2, 3, 7])
def test_any_number_of_members_gives_the_tokens_of_one(qwen2: Any, new_pool: Any, num: int) -> None:
    pool, members = new_pool(num)
    assert tokens_of(pool.generate(REQUESTS)) == tokens_of(Engine(qwen2, seed=3).generate(REQUESTS))
    assert [member.asked for member in members] == [[request.id for request in REQUESTS[i::num]] for i in range(num)]
    pool.close()
    assert all(member.is_closed for member in members)


@pytest.mark.parametrize("deaths", [[0], [1], [7], [11], [4, 0]])
def test_a_lost_member_is_made_anew_and_nothing_comes_twice(qwen2: Any, new_pool: Any, deaths: list[int]) -> None:
    pool, made = new_pool(2, list(deaths))
    num_deaths = len(deaths)
    second = copy.deepcopy(qwen2)
    with torch.no_grad():
        for weight in second.parameters():
            weight.mul_(1.1)
    pool.load_weights(second.named_parameters(), 4)
    found = list(pool.generate(REQUESTS))
    assert {done.version for done in found} == {4}
    assert tokens_of(found) == tokens_of(Engine(second, seed=3).generate(REQUESTS))
    assert len(made) == 2 + num_deaths and [member.is_closed for member in made[1:]] == [True] * num_deaths + [False]


def test_a_member_that_is_lost_again_and_again_ends_the_call(new_pool: Any) -> None:
    pool, made = new_pool(2, [0] * MAX_LOSSES)
    with pytest.raises(LostGenerator, match="the third of the test's engines"):
        list(pool.generate(REQUESTS))
    assert len(made) == 2 + MAX_LOSSES - 1


def test_losses_with_new_completions_in_between_end_nothing(qwen2: Any, new_pool: Any) -> None:
    """As in a long run whose generators are never idle."""
    requests = [
        Request(f"{i}", (3,), 1, Sampling(max_new_tokens=2 + i, stop_token_ids=())) for i in range(4 * MAX_LOSSES)
    ]
    pool, made = new_pool(1, [2] * (MAX_LOSSES + 1))
    wanted = tokens_of(Engine(qwen2, seed=3).generate(requests))
    assert tokens_of(pool.generate(requests)) == wanted and len(made) == 1 + MAX_LOSSES + 1
    assert [*map(len, (one.asked for one in made))] == [12, 10, 8, 6, 4], "only what has not come is asked again"


def test_a_member_that_cannot_be_made_anew_is_lost(new_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _ = new_pool(2, [3])

    def fail(*args: Any, **options: Any) -> None:
        raise UnavailableError("nothing answers at the test's address")

    monkeypatch.setattr(Fragile, "__init__", fail)
    with pytest.raises(LostGenerator, match="the third of the test's engines"):
        list(pool.generate(REQUESTS))


def test_a_member_that_may_be_away_for_a_while_is_made_anew_when_it_is_back(new_pool: Any, qwen2: Any) -> None:
    pool, made = new_pool(1)
    make, left = pool._factories[0], [2]

    def new() -> Fragile:
        left[0] -= 1
        if left[0] >= 0:
            raise UnavailableError("nothing answers at the test's address")
        return make()

    def gone(seconds: float | None = None) -> list[Rollout]:
        raise LostGenerator("the server does not answer", retry_seconds=300)

    made[0].poll, pool._factories = gone, (new,)  # type: ignore[method-assign]
    assert tokens_of(pool.generate(REQUESTS)) == tokens_of(Engine(qwen2, seed=3).generate(REQUESTS))
    assert left == [-1] and len(made) == 2


def test_a_loss_for_good_ends_the_call_and_nothing_is_made_anew(new_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, made = new_pool(2)

    def gone(self: Fragile, seconds: float | None = None) -> list[Rollout]:
        raise LostGenerator("the cluster has ended", is_final=True)

    monkeypatch.setattr(Fragile, "poll", gone)
    with pytest.raises(LostGenerator, match="the cluster has ended"):
        list(pool.generate(REQUESTS))
    assert len(made) == 2 and pool.num_unfinished == 0


class Ringing(Generator):
    """A member that works by itself: what it is given ends when the test says so."""

    abilities = frozenset({"beside", "join"})

    def __init__(self) -> None:
        self.version, self.stats, self.num_unfinished, self.num_polls = 0, EngineStats(), 0, 0
        self.on_event: Callable[[], None] = lambda: None
        self.asked, self.ended, self.is_closed = list[Request](), list[Rollout](), False

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        wanted = list(requests)
        self.asked += wanted
        self.num_unfinished += sum(request.num_rollouts for request in wanted)

    def poll(self, seconds: float | None = None) -> list[Rollout]:
        assert seconds == 0, "the pool waits for all members at once"
        self.num_polls += 1
        ended, self.ended = self.ended, []
        self.num_unfinished -= len(ended)
        return ended

    def abort(self, ids: Any) -> None:
        assert not self.is_closed, "a closed generator is asked for nothing"

    def load_weights(self, named_tensors: Any, version: int) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def end(self, *keys: tuple[str, int]) -> None:
        self.ended += [
            Rollout(group_id=name, index=i, token_ids=(1,), logprobs=(0.0,), finish_reason="stop", version=0)
            for name, i in keys
        ]
        self.on_event()


def test_a_pool_waits_for_any_of_its_members_and_asks_none_meanwhile() -> None:
    first, second = Ringing(), Ringing()
    pool = Pool([lambda: first, lambda: second])
    assert pool.poll() == [] and pool.abilities == {"beside", "join"}
    pool.submit([Request("a", (3,), 2), Request("b", (3,), 1)])
    assert pool.poll(0) == pool.poll(0.05) == []
    before = first.num_polls + second.num_polls
    for member, keys in ((second, [("b", 0)]), (first, [("a", 1), ("a", 0)])):
        threading.Timer(0.2, member.end, keys).start()
        assert [(done.group_id, done.index) for done in pool.poll(300)] == keys
    assert first.num_polls + second.num_polls - before <= 8
    assert pool.num_unfinished == 0 and pool.poll() == []


def test_a_request_goes_to_the_member_with_the_fewest_unfinished_rollouts() -> None:
    first, second = Ringing(), Ringing()
    pool = Pool([lambda: first, lambda: second])
    pool.submit([Request("a", (3,), 5), Request("b", (3,), 2), Request("c", (3,), 2), Request("d", (3,), 2)])
    second.end(("b", 0), ("b", 1), ("c", 0), ("c", 1))
    assert len(pool.poll()) == 4
    pool.submit([Request("e", (3,), 4), Request("a", (3,), 1, first_index=5)])
    assert [[request.id for request in member.asked] for member in (first, second)] == [
        ["a", "a"],
        ["b", "c", "d", "e"],
    ]
    with pytest.raises(UsageError, match=r"rollout 5 of 'a' is unfinished or asked for twice"):
        pool.submit([Request("f", (3,)), Request("a", (3,), 3, first_index=5)])
    with pytest.raises(UsageError, match="'load'"):
        pool.load_weights([], 1)
    assert pool.num_unfinished == 12


def test_a_pool_may_be_closed_while_rollouts_run() -> None:
    member = Ringing()
    pool = Pool([lambda: member])
    stream = pool.generate([Request("a", (3,), 2)])
    threading.Timer(0.1, member.end, [("a", 0)]).start()
    next(stream)
    threading.Timer(0.1, pool.close).start()
    assert list(stream) == [] and member.is_closed, "it does not wait for what never comes"


@pytest.mark.parametrize("call", ["load_weights", "abilities", "describe", "first_logprob"])
def test_a_member_that_is_lost_when_it_is_asked_something_is_made_anew(qwen2: Any, call: str) -> None:
    made: list[Engine] = []

    class LosesCalls(Engine):
        def _check(self, name: str) -> None:
            if self is made[1] and name == call:
                raise LostGenerator(f"at {name}")

        @property
        def abilities(self) -> frozenset[str]:  # type: ignore[override]
            self._check("abilities")
            return frozenset({"join"})

        def describe(self, requests: Any) -> str:
            self._check("describe")
            return "an engine"

        def first_logprob(self, prompt_ids: Any) -> tuple[int, float]:
            self._check("first_logprob")
            return 7, -0.25

        def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
            self._check("load_weights")
            super().load_weights(named_tensors, version)

    def new() -> Engine:
        made.append(LosesCalls(copy.deepcopy(qwen2), seed=3))
        return made[-1]

    pool = Pool([new] * 2, what="2 engines")
    pool.load_weights(qwen2.named_parameters(), 2)
    assert pool.abilities == {"join"}
    assert pool.describe(REQUESTS) == "2 engines: an engine"
    assert pool.first_logprob([3]) == (7, -0.25)
    assert len(made) == 3 and made[0].version == made[2].version == pool.version == 2


def test_an_error_of_a_member_is_the_pools(new_pool: Any) -> None:
    pool, _ = new_pool(2)
    with pytest.raises(UsageError, match="another tokenizer"):
        list(pool.generate([*REQUESTS, Request("far", (10_000,))]))
    assert pool.num_unfinished == 0
    assert len(list(pool.generate(REQUESTS))) == 30


def test_abilities_are_those_of_all_members(new_pool: Any) -> None:
    """Engines in this process work when they are polled, and so does a pool of them."""
    pool, _ = new_pool(2)
    assert pool.abilities == Engine.abilities and "load" in pool.abilities and "beside" not in pool.abilities


def test_what_was_aborted_stays_so_when_a_member_is_made_anew(new_pool: Any) -> None:
    pool, made = new_pool(1, [1])
    pool.submit(REQUESTS)
    pool.abort(["s0/4", ("s0/2", 3)])
    found = drain(pool)
    aborted = {key for key, done in found.items() if done.is_open}
    assert len(made) == 2 and aborted == {("s0/2", 3), *(("s0/4", index) for index in range(6))}
    assert len(found) == 30


def test_a_watched_group_stays_with_one_member_and_is_asked_for_whole_when_that_is_lost(
    qwen2: Any, new_pool: Any
) -> None:
    watch = Steering(["small_steering:Learned", "small_steering:Forked"], {})
    wanted = tokens_of(Engine(qwen2, seed=3).generate(REQUESTS, watch=watch))
    assert len(wanted) > 30, "some forked"
    pool, made = new_pool(2, [8])
    for request in REQUESTS:
        pieces = [replace(request, num_rollouts=2, first_index=first) for first in (0, 2, 4)]
        pool.submit(pieces[:1], watch=watch)
        pool.submit(pieces[1:], watch=watch)
    with pytest.raises(UsageError, match="another watch"):
        pool.submit([Request("later", (3,))])
    assert not {*made[0].asked} & {*made[1].asked}
    found = list(drain(pool).values())
    assert tokens_of(found) == wanted and len(made) == 3 and {*made[2].asked} == {*made[1].asked}


@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_with_losses_gives_each_rollout_once_with_the_tokens_of_one_engine(
    qwen2: Any, new_pool: Any, seed: int
) -> None:
    """Submits in pieces, aborts, what goes on from aborted tokens, loads of equal weights, and losses of members."""
    rng = random.Random(seed)
    whole = tokens_of(Engine(qwen2, seed=3).generate(REQUESTS))
    num = rng.choice([1, 2, 3])
    pool, made = new_pool(num, [rng.randrange(8) for _ in range(2)])
    pool.load_weights(qwen2.named_parameters(), 1)
    waiting = [replace(one, num_rollouts=2, first_index=first) for one in REQUESTS for first in (0, 2, 4)]
    rng.shuffle(waiting)
    found, running = dict[tuple[str, int], Rollout](), set[tuple[str, int]]()
    while waiting or pool.num_unfinished:
        match rng.choice(["submit", "poll", "poll", "poll", "poll", "abort", "load"]):
            case "submit" if waiting:
                pieces = [waiting.pop() for _ in range(min(len(waiting), rng.choice([1, 2, 5])))]
                pool.submit(pieces)
                running |= {(one.id, index) for one in pieces for index in one.indices}
            case "abort" if running and rng.random() < 0.3:
                key = rng.choice(sorted(running))
                pool.abort([rng.choice([key, key[0]])])
            case "load":
                pool.load_weights(qwen2.named_parameters(), pool.version + 1)
            case _:
                for done in pool.poll():
                    key = done.group_id, done.index
                    running.remove(key)  # it comes once, and was asked for
                    assert whole[key][: len(done.token_ids)] == done.token_ids
                    if done.is_open:
                        request = next(one for one in REQUESTS if one.id == done.group_id)
                        starts = {done.index: done} if done.token_ids else {}
                        waiting.append(replace(request, num_rollouts=1, first_index=done.index, starts=starts))
                    else:
                        assert key not in found
                        found[key] = done
    assert tokens_of(found.values()) == whole and not running
    assert len(made) <= num + 2


def test_counts_are_those_of_all_members(new_pool: Any) -> None:
    pool, members = new_pool(2)
    found = list(pool.generate(REQUESTS))
    assert pool.stats.tokens == sum(len(done.token_ids) for done in found) > 0
    assert pool.stats.steps == max(member.stats.steps for member in members)
    assert pool.peak_kv_bytes == max(member.peak_kv_bytes for member in members) > 0
    pool.stats, pool.peak_kv_bytes = EngineStats(), 0
    assert pool.stats.tokens == pool.peak_kv_bytes == 0


def test_members_with_other_weights_are_found_by_a_logprob() -> None:
    class Says(Generator):
        abilities = frozenset({"proof"})

        def __init__(self, logprob: float) -> None:
            self.logprob = logprob

        def first_logprob(self, prompt_ids: Any) -> tuple[int, float]:
            return 5, self.logprob

    same = Pool([lambda: Says(-1.0), lambda: Says(-1.1)])
    assert "proof" in same.abilities and same.first_logprob([1]) == (5, -1.0)
    for other in (-3.0, float("nan")):
        with pytest.raises(PodsError, match="same weights"):
            Pool([lambda: Says(-1.0), lambda other=other: Says(other)]).first_logprob([1])  # type: ignore[misc]


def test_a_pool_has_members() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Pool([])
