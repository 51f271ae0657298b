"""Groups survive the journey between processes, whatever is in them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podsrl.scale.exchange import decode, encode, exchange_groups
from podsrl.scale.processes import join_processes
from podsrl.types import Completion, Group, Rollout, Task

NAMES = ("correct", "format")


def float32(value: float) -> float:
    return float(np.float32(value))


texts = st.one_of(st.text(max_size=12), st.sampled_from(["", "Ω≠", "\ud800", "a\x00b"]))
maybe = st.one_of(st.none(), texts)
logprobs = st.floats(-30, 0, width=32)


@st.composite
def rollouts(draw: Any, index: int, group_id: str) -> Rollout:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), max_size=5))
    behaviour = draw(st.lists(logprobs, min_size=len(ids), max_size=len(ids)))
    reason = draw(maybe)
    completion = Completion(
        request_id=group_id,
        index=index,
        token_ids=tuple(ids),
        logprobs=tuple(behaviour),
        finish_reason=draw(st.sampled_from(["stop", "length", "aborted", "invalid"])),
        version=draw(st.integers(0, 10**9)),
    )
    return Rollout(
        completion=completion,
        text=draw(texts),
        reward=draw(st.floats(-1e300, 1e300)),
        parts={name: draw(st.floats(-10, 10)) for name in NAMES},
        is_correct=draw(st.booleans()),
        is_formatted=draw(st.booleans()),
        answer=draw(maybe),
        invalid_reason=reason,
    )


@st.composite
def group_lists(draw: Any) -> list[Group]:
    found = []
    for place in range(draw(st.integers(0, 4))):
        group_id = f"s{place}/{draw(texts)}"
        size = draw(st.integers(0, 4))
        found.append(
            Group(
                id=group_id,
                task=Task(id=str(place), prompt="?", answer="!"),
                prompt_ids=tuple(draw(st.lists(st.integers(0, 200_000), min_size=1, max_size=4))),
                rollouts=tuple(draw(rollouts(i, group_id)) for i in range(size)),
            )
        )
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(group_lists())
def test_what_is_encoded_is_decoded_to_the_same_records(groups: list[Group]) -> None:
    tasks = [group.task for group in groups]
    places = {place: group for place, group in enumerate(groups) if place != 1}
    assert decode(encode(places), tasks) == places
    for group in decode(encode(places), tasks).values():
        for rollout in group.rollouts:
            assert all(type(number) is int for number in rollout.completion.token_ids)


def test_an_invalid_rollout_keeps_its_reason_and_has_no_reward() -> None:
    done = Completion(request_id="g", index=0, token_ids=(1,), logprobs=(-0.1,), finish_reason="stop", version=0)
    rollout = Rollout(
        completion=done, text="", reward=math.nan, parts={"a": math.nan}, is_correct=False, invalid_reason="it raised"
    )
    group = Group(id="g", task=Task(id="t", prompt="?", answer="!"), prompt_ids=(1,), rollouts=(rollout,))
    [found] = decode(encode({0: group}), [group.task])[0].rollouts
    assert math.isnan(found.reward) and math.isnan(found.parts["a"]) and found.invalid_reason == "it raised"
    assert found.completion.logprobs == (float32(-0.1),)


def swap(num_groups: int) -> list[Group]:
    """Every process brings the groups of its rank; the second one's answers are longer."""
    processes = join_processes("cpu")
    tasks = [Task(id=f"t{i}", prompt="?", answer="!") for i in range(num_groups)]
    own = {}
    for place in processes.share(range(num_groups)):
        length = 1 + processes.rank
        done = Completion(
            request_id=f"g{place}", index=0, token_ids=(place,) * length, logprobs=(-1.0,) * length,
            finish_reason="stop", version=3,
        )  # fmt: skip
        rollout = Rollout(completion=done, text="x" * place, reward=float(place), parts={}, is_correct=True)
        own[place] = Group(id=f"g{place}", task=tasks[place], prompt_ids=(place,), rollouts=(rollout,))
    columns = {"a": 1}  # results travel by pickle, which knows no read-only mapping
    groups = exchange_groups(tasks, own, processes)
    return [replace(group, task=replace(group.task, columns=columns)) for group in groups]


@pytest.mark.slow
def test_all_processes_hold_all_groups_in_the_tasks_order(three: Any) -> None:
    for num_groups in (7, 2):  # with two, the third process brings none
        answers = three.run(swap, num_groups)
        assert answers[0] == answers[1] == answers[2]
        assert [group.id for group in answers[0]] == [f"g{i}" for i in range(num_groups)]
        lengths = [len(group.rollouts[0].completion.token_ids) for group in answers[0]]
        assert lengths == [1, 2, 3, 1, 2, 3, 1][:num_groups]
        assert all(group.task.id == f"t{i}" for i, group in enumerate(answers[0]))


def test_a_group_without_rollouts_does_not_shift_the_others() -> None:
    done = Completion(request_id="b", index=0, token_ids=(1,), logprobs=(-1.0,), finish_reason="stop", version=0)
    rollout = Rollout(completion=done, text="t", reward=1.0, parts={"p": 1.0}, is_correct=True)
    task = Task(id="t", prompt="?", answer="!")
    empty = Group(id="a", task=task, prompt_ids=(1,), rollouts=())
    full = replace(empty, id="b", rollouts=(rollout,))
    assert decode(encode({0: empty, 1: full}), [task, task]) == {0: empty, 1: full}
