"""A pool of generators in this process: which share each gets, what comes back, and what happens when one is lost."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import Any

import pytest
import torch
from contract import tokens_of
from torch import Tensor

from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError
from podsrl.generate import Engine, EngineStats, Generator, Request, Sampling
from podsrl.scale.generators.pool import MAX_LOSSES, Pool
from podsrl.types import Completion

REQUESTS = [Request(f"s0/{i}", (3 + i, 9), 6, Sampling(max_new_tokens=12, stop_token_ids=(1,))) for i in range(5)]


class Fragile(Engine):
    """An engine that is lost after so many completions of a call, as often as `deaths` says."""

    deaths: list[int]

    def __init__(self, model: Any, deaths: list[int]) -> None:
        super().__init__(copy.deepcopy(model), seed=3)
        self.deaths, self.is_closed, self.asked = deaths, False, list[str]()
        self.aborted: list[Any] = []  # by another thread than the one that steps

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        wanted = list(requests)
        self.asked += [request.id for request in wanted]
        self.aborted.clear()  # of the call before, when it had just ended
        return self._until_lost(super().generate(wanted))

    def _until_lost(self, stream: Iterator[Completion]) -> Iterator[Completion]:
        after = self.deaths.pop(0) if self.deaths else None
        for count, done in enumerate(stream):
            if count == after:
                raise LostGenerator("the third of the test's engines is lost")
            yield done
            while self.aborted:
                super().abort(self.aborted.pop())

    def abort(self, ids: Any) -> None:
        self.aborted.append(list(ids))

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

    def gone(requests: Iterable[Request]) -> Iterator[Completion]:
        raise LostGenerator("the server does not answer", retry_seconds=300)

    made[0].generate, pool._factories = gone, (new,)  # type: ignore[method-assign]
    assert tokens_of(pool.generate(REQUESTS)) == tokens_of(Engine(qwen2, seed=3).generate(REQUESTS))
    assert left == [-1] and len(made) == 2


def test_a_loss_for_good_ends_the_call_and_nothing_is_made_anew(new_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, made = new_pool(2)

    def gone(self: Fragile, requests: Iterable[Request]) -> Iterator[Completion]:
        raise LostGenerator("the cluster has ended", is_final=True)

    monkeypatch.setattr(Fragile, "generate", gone)
    with pytest.raises(LostGenerator, match="the cluster has ended"):
        list(pool.generate(REQUESTS))
    assert len(made) == 2


def test_a_pool_may_be_closed_during_a_call(qwen2: Any) -> None:
    is_closed = Event()

    class Silent(Engine):
        def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
            is_closed.wait()
            yield from ()

        def abort(self, ids: Any) -> None:
            assert not is_closed.is_set(), "a closed generator is asked for nothing"

    pool = Pool([lambda: Silent(qwen2)] * 2)
    stream = pool.generate(REQUESTS)
    pool.close()
    del stream  # it does not wait for what never comes
    is_closed.set()


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
    assert pool.abilities == {"beside", "join"}
    assert pool.describe(REQUESTS) == "2 engines: an engine"
    assert pool.first_logprob([3]) == (7, -0.25)
    assert len(made) == 3 and made[0].version == made[2].version == pool.version == 2


def test_an_error_of_a_member_is_the_pools(new_pool: Any) -> None:
    pool, _ = new_pool(2)
    with pytest.raises(UsageError, match="another tokenizer"):
        list(pool.generate([*REQUESTS, Request("far", (10_000,))]))
    assert len(list(pool.generate(REQUESTS))) == 30


def test_generation_begins_with_the_call_and_one_call_is_open_at_a_time(new_pool: Any) -> None:
    pool, members = new_pool(2)
    stream = pool.generate(REQUESTS)
    assert all(member.asked for member in members)
    with pytest.raises(UsageError, match="another call is open"):
        pool.generate(REQUESTS)
    with pytest.raises(UsageError, match="is open"):
        pool.load_weights([], 1)
    assert len(list(stream)) == 30 and pool.abilities == {"beside", "join", "start", "abort_rollouts", "watch"}


def test_an_abort_that_comes_when_all_is_made_ends_nothing_of_the_next_call(new_pool: Any) -> None:
    pool, _ = new_pool(3)
    wanted = tokens_of(pool.generate(REQUESTS))
    stream = pool.generate(REQUESTS)
    wait_until_all_is_made()
    stream.close()  # which ends the rollouts that it has not read
    assert tokens_of(pool.generate(REQUESTS)) == wanted


def wait_until_all_is_made() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("generator-"):  # reads a member of a pool
            thread.join()


def test_what_was_aborted_stays_so_when_a_member_is_made_anew(qwen2: Any) -> None:
    """The first member is lost at once, and asked again after the caller's abort."""
    aborted: list[tuple[int, list[Any]]] = []

    class Notes(Fragile):
        def abort(self, ids: Any) -> None:
            aborted.append((id(self), list(ids)))
            super().abort(ids)

    made: list[Notes] = []

    def new() -> Notes:
        made.append(Notes(qwen2, [1] if not made else []))
        return made[-1]

    pool = Pool([new])
    for count, _ in enumerate(pool.generate(REQUESTS)):
        if count == 0:
            pool.abort(["s0/4"])
    assert (id(made[1]), ["s0/4"]) in aborted


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
