"""How open groups are asked: whatever the ways, every index that is to come is asked once, in its way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import made
from made import completion, rollout
from podsrl.generate import Sampling
from podsrl.run.step.opens import grown, requests_of, with_completions
from podsrl.types import Group, Open, Rollout, Task, Way

GROUP = Group(id="s3/1/7+5", task=Task(id="7+5", prompt="?", answer="12"), prompt_ids=(9, 8), rollouts=())
SAMPLING = Sampling(max_new_tokens=4, stop_token_ids=(1,))
prompts = st.one_of(st.none(), st.lists(st.integers(2, 5), min_size=1, max_size=2).map(tuple))
ways = st.builds(Way, count=st.integers(1, 4), prompt_ids=prompts, origin=st.sampled_from(["", "hint"]))


def put_off(index: int) -> Rollout:
    return completion((7, 7), index=index, group_id=GROUP.id, **made.ended("open"))


@st.composite
def open_groups(draw: Any) -> Open:
    """Each index is judged, has ended, is put off, or has not begun."""
    found = tuple(draw(st.lists(ways, min_size=1, max_size=6)))
    fates = [draw(st.sampled_from(["judged", "ended", "put off", "none"])) for way in found for _ in range(way.count)]
    begun = [put_off(i) if fate == "put off" else completion(index=i) for i, fate in enumerate(fates)]
    return Open(
        group=replace(GROUP, rollouts=tuple(rollout(index=i) for i, fate in enumerate(fates) if fate == "judged")),
        ways=found,
        begun=tuple(done for done, fate in zip(begun, fates, strict=True) if fate in ("ended", "put off")),
    )


@given(open_groups())
def test_every_index_that_is_to_come_is_asked_once_in_its_way_from_where_it_stands(each: Open) -> None:
    done = {r.index for r in each.group.rollouts} | {b.index for b in each.begun if not b.is_open}
    asked_in = [way for way in each.ways for _ in range(way.count)]
    expected = [(i, way.prompt_ids or GROUP.prompt_ids) for i, way in enumerate(asked_in) if i not in done]
    requests = list(requests_of(each, each.to_come, GROUP.prompt_ids, SAMPLING))
    assert [(index, request.prompt_ids) for request in requests for index in request.indices] == expected
    assert {i: start for request in requests for i, start in request.starts.items()} == {
        b.index: b for b in each.begun if b.is_open
    }
    assert each.size == len(asked_in) and each.to_come == [index for index, _ in expected]
    assert {request.id for request in requests} <= {GROUP.id}
    few = each.to_come[::2]
    assert [i for request in requests_of(each, few, GROUP.prompt_ids, SAMPLING) for i in request.indices] == few
    for one, other in pairwise(requests):  # no two requests where one would do
        is_next = other.first_index == one.indices[-1] + 1
        origins = [asked_in[request.first_index].origin for request in (one, other)]
        assert not is_next or one.prompt_ids != other.prompt_ids or origins[0] != origins[1]


def test_the_rollouts_that_join_a_group_of_three_are_one_request_behind_it() -> None:
    three = replace(GROUP, rollouts=tuple(rollout(index=i) for i in range(3)))
    each = Open(group=three, ways=(Way(count=3), Way(count=5)))
    [request] = requests_of(each, each.to_come, GROUP.prompt_ids, SAMPLING)
    assert (request.id, request.first_index, request.num_rollouts) == (GROUP.id, 3, 5)


def test_completions_come_in_the_order_of_their_indices_and_in_place_of_what_they_go_on_from() -> None:
    each = Open(group=GROUP, ways=(Way(count=4),), begun=(put_off(1), put_off(3)))
    ended = completion((7, 7, 8), index=1, group_id=GROUP.id)
    first = completion((5,), index=0, group_id=GROUP.id)
    [found] = with_completions([each], [ended, first])
    assert found.begun == (first, ended, put_off(3))
    assert found.to_come == [2, 3]


def test_a_fork_is_asked_as_its_source_and_every_other_way_stays() -> None:
    shown = Way(count=2, prompt_ids=(9,), origin="examples")
    each = Open(group=GROUP, ways=(Way(count=3), shown))
    found = grown(each, {6: 0, 5: 3})
    assert found.ways == (*each.ways, Way(count=1, prompt_ids=(9,), origin="fork"), Way(count=1, origin="fork"))
    assert found.size == 7 and grown(each, {}) == each
