"""Records survive the way through bytes, whatever is in them."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

import made
from loops import each
from podsrl.errors import PodsError
from podsrl.records import _save, decode, decode_open, decode_rollouts, encode, encode_open, encode_rollouts
from podsrl.types import FinishReason, Group, Notes, Open, Parent, Rollout, Status, Task, Way

NAMES = ("correct", "format", "Ω")


def float32(value: float) -> float:
    return float(np.float32(value))


texts = st.one_of(st.text(max_size=12), st.sampled_from(["", "Ω≠", "\ud800", "a\x00b"]))
maybe = st.one_of(st.none(), texts)
logprobs = st.floats(-30, 0, width=32)
versions = st.integers(-1, 10**12)
calls = st.lists(st.booleans(), max_size=3).map(tuple)
arrays = st.one_of(
    st.just(np.zeros((0, 3), np.float32)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=4),
    st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2), min_size=1, max_size=3),
)


@st.composite
def rollouts(draw: Any, index: int) -> Rollout:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), max_size=5))
    return Rollout(
        group_id=draw(texts),
        index=index,
        token_ids=tuple(ids),
        logprobs=tuple(draw(st.lists(logprobs, min_size=len(ids), max_size=len(ids)))),
        status=draw(st.sampled_from(get_args(Status))),
        finish_reason=draw(st.sampled_from([None, *get_args(FinishReason)])),
        version=draw(versions),
        versions=tuple(draw(st.one_of(st.just([]), st.lists(versions, min_size=len(ids), max_size=len(ids))))),
        given=draw(st.sampled_from([(), ((0, 1),), ((1, 2), (3, 5))])),
        parent=draw(st.one_of(st.none(), st.builds(Parent, st.integers(0, 10**6), st.integers(0, 5)))),
        heard=tuple(draw(st.lists(st.tuples(calls, st.floats(allow_nan=False)), max_size=3))),
        notes=Notes(draw(st.dictionaries(texts, arrays, max_size=2))),
        text=draw(texts),
        reward=draw(st.floats(-1e300, 1e300)),
        parts=draw(st.dictionaries(st.sampled_from(NAMES), st.floats(-10, 10))),
        is_correct=draw(st.booleans()),
        is_formatted=draw(st.booleans()),
        answer=draw(maybe),
        invalid_reason=draw(maybe),
        prompt_ids=draw(st.one_of(st.none(), st.lists(st.integers(0, 200_000), min_size=1, max_size=3).map(tuple))),
        is_unguided=draw(st.booleans()),
        origin=draw(texts),
    )


@st.composite
def group_lists(draw: Any) -> list[Group]:
    return [
        Group(
            id=f"s{place}/{draw(texts)}",
            task=Task(id=str(place), prompt="?", answer="!"),
            prompt_ids=tuple(draw(st.lists(st.integers(0, 200_000), min_size=1, max_size=4))),
            rollouts=tuple(draw(rollouts(i)) for i in range(draw(st.integers(0, 4)))),
            index=draw(st.one_of(st.none(), st.integers(0, 10**9))),
            step=draw(st.integers(0, 10**9)),
            is_trained=draw(st.booleans()),
            num_first=draw(st.one_of(st.none(), st.integers(0, 4))),
        )
        for place in range(draw(st.integers(0, 4)))
    ]


def completion(index: int, token_ids: tuple[int, ...], **changes: Any) -> Rollout:
    plain = {"group_id": f"r{index}", "version": 5, "logprobs": (-0.5, -0.25, -2.0)[: len(token_ids)]}
    return made.completion(token_ids, index=index, **(plain | changes))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(group_lists())
def test_what_is_encoded_is_decoded_to_the_same_records(groups: list[Group]) -> None:
    tasks = {(group.id, group.index): group.task for group in groups}
    found = decode(encode(groups), lambda name, index: tasks[name, index])
    assert found == groups
    for group in found:
        for rollout in group.rollouts:
            assert all(type(number) is int for number in (*rollout.token_ids, *rollout.versions))


ways = st.builds(
    Way,
    count=st.integers(1, 9),
    prompt_ids=st.one_of(st.none(), st.lists(st.integers(0, 200_000), min_size=1, max_size=3).map(tuple)),
    start_ids=st.lists(st.integers(0, 200_000), max_size=3).map(tuple),
    origin=texts,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(group_lists(), st.data())
def test_open_groups_come_back_as_they_were(groups: list[Group], data: Any) -> None:
    tasks = {(group.id, group.index): group.task for group in groups}
    opens = [
        Open(
            group=group,
            ways=tuple(data.draw(st.lists(ways, max_size=3))),
            begun=tuple(data.draw(rollouts(i)) for i in range(data.draw(st.integers(0, 2)))),
            pruned=tuple(data.draw(st.lists(st.integers(1, 2**40), max_size=2))),
        )
        for group in groups
    ]
    assert decode_open(encode_open(opens), lambda name, index: tasks[name, index]) == opens


@each(("column", "value"), [("num_ways", 1), ("num_begun", 2), ("num_begun", 0), ("way.count", None)])
def test_columns_of_open_groups_that_do_not_fit_together_are_refused(column: str, value: int | None) -> None:
    begun = (completion(0, (3, 4)),)
    each = Open(group=made.group("g", index=3), ways=(Way(count=1), Way(count=2)), begun=begun)
    columns = load(encode_open([each]))
    del columns["checksum"]
    old = columns.pop(column)
    if value is not None:
        columns[column] = np.full_like(old, value)
    with pytest.raises(PodsError, match="damaged"):
        decode_open(_save(columns), lambda name, index: each.group.task)


def test_an_invalid_rollout_keeps_its_reason_and_has_no_reward() -> None:
    rollout = made.rollout(math.nan, logprobs=(-0.1,), parts={"a": math.nan}, invalid_reason="it raised")
    group = made.group("g", rollout)
    [found] = decode(encode([group]), lambda name, index: group.task)[0].rollouts
    assert math.isnan(found.reward) and math.isnan(found.parts["a"]) and found.invalid_reason == "it raised"
    assert found.logprobs == (float32(-0.1),)


def mutated(data: bytes, source: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or exchanged, or a number of the header replaced."""
    found, where = bytearray(data), sorted(source.randrange(len(data)) for _ in range(4))
    match source.randrange(5):
        case 0:
            for place in where[: source.randint(1, 4)]:
                found[place] ^= 1 << source.randrange(8)
        case 1:
            del found[where[0] : where[1] + 1]
        case 2:
            found[where[0] : where[0]] = data[where[1] : where[2]]
        case 3:
            found[where[0] : where[1]], found[where[2] : where[3]] = (
                data[where[2] : where[3]],
                data[where[0] : where[1]],
            )
        case 4:
            numbers = [*re.finditer(rb"\d+", data)]
            start, end = numbers[source.randrange(len(numbers))].span()
            found[start:end] = str(source.randrange(2 ** source.randrange(1, 40))).encode()
    return bytes(found)


def test_altered_bytes_are_never_read_as_other_records() -> None:
    judged = {
        "text": "Ω≠",
        "reward": 0.5,
        "parts": {"a": 1.0},
        "is_correct": True,
        "notes": Notes({"b": [[1.0], [2.0]]}),
    }
    rollout = completion(0, (3, 4), **judged)
    rollouts = (rollout, completion(1, (5,), **judged, answer="7", parent=Parent(0, 1)))
    group = Group(id="g", task=Task(id="t", prompt="?", answer="!"), prompt_ids=(1, 2), rollouts=rollouts, index=3)
    whole = ([group, replace(group, id="h", rollouts=(rollout,))], [*rollouts])
    opens = [Open(group=group, ways=(Way(count=2), Way(count=1, origin="hint", prompt_ids=(4,))), begun=(whole[1][0],))]
    forms: list[tuple[Any, bytes, Any]] = [
        (whole[0], encode(whole[0]), lambda data: decode(data, lambda name, index: group.task)),
        (whole[1], encode_rollouts(whole[1]), decode_rollouts),
        (opens, encode_open(opens), lambda data: decode_open(data, lambda name, index: group.task)),
    ]
    source, num_refused = random.Random(0), 0
    for i in range(3000):
        records, data, read = forms[i % 3]
        try:
            assert read(mutated(data, source)) == records
        except PodsError:
            num_refused += 1
    assert 2600 < num_refused < 3000  # some changes, as of a header's blank, change nothing


@each(
    ("column", "value"),
    [
        ("group.prompt_ids.lengths", 1),
        ("rollout.text.lengths", 9),
        ("rollout.notes.lengths", 9),
        ("rollout.notes.shape.values", ord("7")),
        ("rollout.heard.values", 9),
        ("rollout.heard.values", -1),
        ("group_size", 1),
        ("rollout.finish_reason", 99),
        ("rollout.reward", None),
        ("rollout.answer.x", 0),
    ],
)
def test_columns_that_do_not_fit_together_are_refused_with_the_right_checksum_too(
    column: str, value: int | None
) -> None:
    heard = (((True, False), 0.5),)
    rollout = completion(0, (3, 4), text="two", reward=1.0, is_correct=True, heard=heard, notes=Notes({"a": 1}))
    group = Group(id="g", task=Task(id="t", prompt="?", answer="!"), prompt_ids=(1, 2), rollouts=(rollout, rollout))
    columns = load(encode([group]))
    del columns["checksum"]
    assert decode(_save(columns), lambda name, index: group.task) == [group]
    old = columns.pop(column, np.zeros(1))
    if value is not None:
        columns[column] = np.full_like(old, value)
    with pytest.raises(PodsError, match="damaged"):
        decode(_save(columns), lambda name, index: group.task)


def test_a_repaired_rollout_ends_with_given_tokens_and_no_sampler_ended_it() -> None:
    repaired = completion(0, (3, 4), given=((1, 2),), finish_reason=None, parent=Parent(1, 1))
    assert repaired.is_repaired and replace(repaired, status="failed").is_repaired and repaired.num_own == 0
    for other in (
        replace(repaired, finish_reason="stop"),
        replace(repaired, status="pruned"),
        replace(repaired, given=(), status="failed"),
        replace(repaired, given=((0, 1),), status="failed"),
    ):
        assert not other.is_repaired
    assert repaired.drawn_logprobs == repaired.logprobs[:1] and completion(0, (3, 4)).drawn_logprobs == (-0.5, -0.25)
