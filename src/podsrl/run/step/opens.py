"""Open groups as requests, and what comes of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from podsrl.generate import Request, Sampling
from podsrl.types import FORK, Begun, Completion, Open

TOO_LONG = "guide_too_long"
"""`Rollout.origin` where a guide's prompt or a start was too long, so that the task was asked plainly."""


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
    ways, starts = each.way_of, {done.index: done for done in each.begun if done.is_postponed}
    alike = groupby(enumerate(indices), key=lambda item: (ways[item[1]], item[1] - item[0]))
    for (way, _), members in alike:
        own = [index for _, index in members]
        begun = {index: _start(index, way.start_ids) for index in own if way.start_ids}
        begun |= {index: starts[index] for index in own if index in starts}
        yield Request(each.group.id, way.prompt_ids or prompt_ids, len(own), sampling, own[0], begun)


def _start(index: int, ids: tuple[int, ...]) -> Begun:
    """A rollout of which there are given tokens alone; they have no version."""
    return Begun(index=index, token_ids=ids, logprobs=(0.0,) * len(ids), version=0, given=((0, len(ids)),))


def with_completions(opens: Sequence[Open], completions: Iterable[Completion]) -> list[Open]:
    """The open groups with what has come of their rollouts; `Completion.request_id` is the group's id."""
    found = {each.group.id: {done.index: done for done in each.begun} for each in opens}
    for done in completions:
        found[done.request_id][done.index] = done
    return [replace(each, begun=tuple(done for _, done in sorted(found[each.group.id].items()))) for each in opens]


def grown(each: Open, forks: Mapping[int, int]) -> Open:
    """The open group with a way for each of its forks: index -> index of the rollout that it forked from."""
    ways = each.way_of if forks else []
    for index in sorted(forks):  # a fork of a fork has a higher index
        ways.append(replace(ways[forks[index]], origin=FORK))
    return replace(each, ways=(*each.ways, *ways[each.size :]))


def shortened(each: Open, size: int) -> Open:
    """The open group with its first rollouts alone; of the others that were begun it has the numbers of tokens."""
    known = (*(rollout.completion for rollout in each.group.rollouts), *each.begun)
    pruned = (done.num_own for done in known if done.index >= size and done.num_drawn)
    alike = groupby(each.way_of[:size], key=lambda way: way)
    rollouts = tuple(rollout for rollout in each.group.rollouts if rollout.completion.index < size)
    return Open(
        group=replace(each.group, rollouts=rollouts),
        ways=tuple(replace(way, count=len(list(members))) for way, members in alike),
        begun=tuple(done for done in each.begun if done.index < size),
        pruned=(*each.pruned, *pruned),
    )
