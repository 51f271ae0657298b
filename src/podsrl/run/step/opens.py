"""Open groups as requests, and what comes of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from podsrl.generate import Request, Sampling
from podsrl.types import Open, Rollout, Way


def requests_of(
    each: Open, indices: Sequence[int], prompt_ids: tuple[int, ...], sampling: Sampling
) -> Iterator[Request]:
    """Requests for some rollouts of an open group: neighbours that are asked alike in one.

    Args:
        each: an open group.
        indices: of the rollouts, ascending.
        prompt_ids: of the group.
        sampling: how the rollouts are drawn.
    """
    ways, starts = each.way_of, {done.index: done for done in each.begun if done.is_open}
    alike = groupby(enumerate(indices), key=lambda item: (ways[item[1]], item[1] - item[0]))
    for (way, _), members in alike:
        own = [index for _, index in members]
        begun = {index: _start(each.group.id, index, way) for index in own if way.start_ids}
        begun |= {index: starts[index] for index in own if index in starts}
        yield Request(each.group.id, way.prompt_ids or prompt_ids, len(own), sampling, own[0], begun)


def _start(name: str, index: int, way: Way) -> Rollout:
    """A rollout of which there are given tokens alone; they have no version."""
    size = len(way.start_ids)
    return Rollout(
        group_id=name,
        index=index,
        token_ids=way.start_ids,
        logprobs=(0.0,) * size,
        version=0,
        given=((0, size),),
        status="open",
        parent=way.parent,
        notes=way.notes,
    )


def with_completions(opens: Sequence[Open], completions: Iterable[Rollout]) -> list[Open]:
    """The open groups with what has come of their rollouts."""
    found = {each.group.id: {done.index: done for done in each.begun} for each in opens}
    for done in completions:
        found[done.group_id][done.index] = done
    return [replace(each, begun=tuple(done for _, done in sorted(found[each.group.id].items()))) for each in opens]


def grown(each: Open, forks: Mapping[int, int]) -> Open:
    """The open group with a way for each of its forks: index -> index of the rollout that it forked from."""
    ways = each.way_of if forks else []
    for index in sorted(forks):  # a fork of a fork has a higher index
        ways.append(replace(ways[forks[index]], origin="fork"))
    return replace(each, ways=(*each.ways, *ways[each.size :]))


def shortened(each: Open, size: int) -> Open:
    """The open group with its first rollouts alone; of the others that were begun it has the numbers of tokens."""
    pruned = (done.num_own for done in each.rollouts if done.index >= size and done.num_drawn)
    alike = groupby(each.way_of[:size], key=lambda way: way)
    rollouts = tuple(rollout for rollout in each.group.rollouts if rollout.index < size)
    return Open(
        group=replace(each.group, rollouts=rollouts),
        ways=tuple(replace(way, count=len(list(members))) for way, members in alike),
        begun=tuple(done for done in each.begun if done.index < size),
        pruned=(*each.pruned, *pruned),
    )
