"""Open groups as requests, and what comes of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from podsrl.generate import Request, Sampling
from podsrl.types import FORK, Begun, Completion, Open

TOO_LONG = "guide_too_long"
"""`Rollout.origin` where a guide's prompt or a start was too long, so that the task was asked plainly."""


def requests_of(each: Open, prompt_ids: tuple[int, ...], sampling: Sampling) -> Iterator[Request]:
    """Requests for the rollouts that are still to be generated: neighbours that are asked alike in one.

    The group's id names the random numbers, so that later rollouts continue those of the earlier ones.

    Args:
        each: an open group.
        prompt_ids: of the group.
        sampling: how the rollouts are drawn.
    """
    name, ways, starts = each.group.id, each.way_of, {done.index: done for done in each.begun if done.is_postponed}
    alike = groupby(enumerate(each.to_come), key=lambda item: (ways[item[1]], item[1] - item[0]))
    for number, ((way, _), members) in enumerate(alike):
        indices = [index for _, index in members]
        own = name if number == 0 else f"{name}+{indices[0]}"
        ids, begun = (
            way.prompt_ids or prompt_ids,
            {index: _start(index, way.start_ids) for index in indices if way.start_ids},
        )
        begun |= {index: starts[index] for index in indices if index in starts}
        yield Request(own, ids, len(indices), sampling, first_index=indices[0], stream=name, starts=begun)


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
    """The open group with a way for each of its forks: index -> an index that was asked as its source was."""
    ways = each.way_of if forks else []
    return replace(each, ways=(*each.ways, *(replace(ways[forks[index]], origin=FORK) for index in sorted(forks))))


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
