"""Rollouts that join a group later, by a second request: they are those of one request for all."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Completion


@pytest.fixture(scope="module")
def exact(qwen2: Any) -> Any:
    """In float64, where no token hangs on how many rows are computed together."""
    return copy.deepcopy(qwen2).double()


PROMPT = (5, 7, 9)
FIRST, ALL = 8, 32
PLAIN = Sampling(temperature=0.7, max_new_tokens=12)
STOPPED = Sampling(temperature=0.9, top_p=0.9, max_new_tokens=12, stop_token_ids=(11, 40), stop_strings=("a", "7"))
WHOLE = Request("s3/0/q", PROMPT, ALL, PLAIN)


def part(request: Request, first: int, count: int, name: str | None = None) -> Request:
    """Rollouts first .. first + count - 1 of a request, by a request of their own."""
    name = f"{request.id}+{first}" if name is None else name
    return Request(name, request.prompt_ids, count, request.sampling, first_index=first, stream=request.id)


def by_index(completions: list[Completion]) -> dict[int, Completion]:
    found = {completion.index: completion for completion in completions}
    assert len(found) == len(completions)
    return found


def check_same(found: list[Completion], wanted: list[Completion]) -> None:
    mine, theirs = by_index(found), by_index(wanted)
    assert mine.keys() == theirs.keys()
    for index, completion in mine.items():
        other = theirs[index]
        assert (completion.token_ids, completion.finish_reason) == (other.token_ids, other.finish_reason)
        assert completion.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.parametrize("sampling", [PLAIN, STOPPED], ids=["plain", "stops"])
@pytest.mark.parametrize(
    ("scheduler", "num_slots"), [("full", None), ("continuous", 5), ("micro+ljf", 6), ("probed+sjf", 7), ("dynamic", 5)]
)
def test_eight_rollouts_and_24_later_ones_are_the_32_of_one_request(
    exact: Any, tokenizer: Any, scheduler: str, num_slots: int | None, sampling: Sampling
) -> None:
    request = Request("s3/0/q", PROMPT, ALL, sampling)
    wanted = list(Engine(exact, seed=4, tokenizer=tokenizer).generate([request]))
    engine = Engine(exact, seed=4, num_slots=num_slots, scheduler=scheduler, tokenizer=tokenizer)
    found = list(engine.generate([part(request, 0, FIRST, "s3/0/q")]))
    assert sorted(completion.index for completion in found) == list(range(FIRST))
    found += engine.generate([part(request, FIRST, ALL - FIRST, "s3/0/q")])  # the first has ended: its id is free again
    assert {completion.request_id for completion in found} == {"s3/0/q"}
    check_same(found, wanted)
    assert len({completion.token_ids for completion in found}) > FIRST


@pytest.mark.parametrize("scheduler", ["continuous", "dynamic+sjf"])
def test_they_may_join_while_the_first_run_and_are_forked_and_aborted(exact: Any, scheduler: str) -> None:
    wanted = list(Engine(exact, seed=4).generate([WHOLE]))
    engine = Engine(exact, seed=4, num_slots=12, scheduler=scheduler)
    engine.submit([part(WHOLE, 0, FIRST, WHOLE.id)])
    found = [completion for _ in range(3) for completion in engine.step()]
    engine.submit([part(WHOLE, FIRST, 20), part(WHOLE, 30, 2)])  # 28 and 29 are left out
    found += engine.step()
    engine.fork(f"{WHOLE.id}+{FIRST}", FIRST, into="fork", num_rollouts=3)
    engine.abort([(f"{WHOLE.id}+{FIRST}", FIRST + 2)])
    while engine.num_unfinished > 0:
        found += engine.step()
    group = [completion for completion in found if completion.request_id != "fork"]
    assert sorted(completion.index for completion in group) == [*range(28), 30, 31]
    (aborted,) = [completion for completion in group if completion.finish_reason == "aborted"]
    assert aborted.index == FIRST + 2
    assert aborted.token_ids == by_index(wanted)[aborted.index].token_ids[: len(aborted.token_ids)]
    whole = [completion for completion in group if completion is not aborted]
    check_same(whole, [completion for completion in wanted if completion.index in by_index(whole)])
    assert len(found) == len(group) + 3


def test_a_stream_alone_names_the_numbers(exact: Any) -> None:
    engine = Engine(exact, seed=4)
    wanted = list(engine.generate([WHOLE]))
    check_same(list(engine.generate([Request("other", PROMPT, ALL, PLAIN, stream=WHOLE.id)])), wanted)
    other = by_index(list(engine.generate([Request("other", PROMPT, ALL, PLAIN)])))
    assert any(other[completion.index].token_ids != completion.token_ids for completion in wanted)


def test_rollouts_that_would_draw_the_same_tokens_at_once_are_an_error(exact: Any) -> None:
    engine = Engine(exact)
    engine.submit([part(WHOLE, 0, FIRST, WHOLE.id)])
    with pytest.raises(UsageError, match=r"first_index = 7.*rollouts 7 to 7 of stream 's3/0/q'"):
        engine.submit([part(WHOLE, 7, 4)])
    with pytest.raises(UsageError, match=r"rollouts 9 to 9 of stream"):
        engine.submit([part(WHOLE, 8, 2), part(WHOLE, 9, 2)])
    with pytest.raises(UsageError, match="used twice"):
        engine.submit([part(WHOLE, 8, 2, WHOLE.id)])
    assert {key[0] for key in engine.states()} == {WHOLE.id}


def test_a_negative_first_index_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"first_index of request 'a' = -1: wanted 0 or more"):
        Request("a", PROMPT, first_index=-1)


def test_the_engine_says_that_it_can(exact: Any) -> None:
    assert {"join", "abort_rollouts", "pause", "fork", "hooks"} <= Engine(exact).abilities
