"""How a round's rollouts are asked: whatever the ways, every index is asked once, in its way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from made import rollout
from podsrl.generate import Sampling
from podsrl.run.step.wanted import More, Wanted, merged
from podsrl.types import Group, Task

GROUP = Group(id="s3/1/7+5", task=Task(id="7+5", prompt="?", answer="12"), prompt_ids=(9, 8), rollouts=())
SAMPLING = Sampling(max_new_tokens=4, stop_token_ids=(1,))
prompts = st.one_of(st.none(), st.lists(st.integers(2, 5), min_size=1, max_size=2).map(tuple))
ways = st.lists(st.builds(More, st.integers(1, 4), prompts, st.sampled_from(["", "hint"])), min_size=1, max_size=6)
taken = st.lists(st.integers(0, 40), unique=True, max_size=5).map(sorted)


def one_by_one(more: list[More] | tuple[More, ...]) -> list[More]:
    return [replace(each, count=1) for each in more for _ in range(each.count)]


@given(ways)
def test_merged_ways_are_the_same_rollouts_and_no_two_neighbours_are_asked_alike(more: list[More]) -> None:
    found = merged(more)
    assert one_by_one(found) == one_by_one(more)
    assert all(replace(one, count=1) != replace(other, count=1) for one, other in pairwise(found))
    assert merged(found) == found


@given(ways, taken)
def test_requests_ask_every_index_behind_the_group_once_in_its_way(more: list[More], indices: list[int]) -> None:
    wanted = Wanted(replace(GROUP, rollouts=tuple(rollout(index=index) for index in indices)), tuple(more))
    first = max(indices, default=-1) + 1
    requests = list(wanted.requests(GROUP.prompt_ids, SAMPLING))
    asked = [(index, request.prompt_ids, way.origin) for request, way in requests for index in request.indices]
    expected = [(each.prompt_ids or GROUP.prompt_ids, each.origin) for each in one_by_one(more)]
    assert asked == [(index, *way) for index, way in enumerate(expected, start=first)]
    assert len({request.id for request, _ in requests}) == len(requests) and requests[0][0].id == GROUP.id
    assert {request.stream for request, _ in requests} == {GROUP.id}
    assert wanted.count == len(expected)
