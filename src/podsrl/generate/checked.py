"""What a generator gives, checked against what it was asked: it may live elsewhere, or be a user's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from podsrl.errors import PodsError, UsageError, short
from podsrl.generate.base import Generator, Request, abilities_of, begin, fault_of
from podsrl.generate.kinds import Kind
from podsrl.lib.watch import Key, Watch
from podsrl.types import Completion, FinishReason

_MOST_LOGPROB = 1e-3
"""Rounding may lift the log-prob of a certain token above 0."""
_UNFINISHED = ("aborted", "invalid", "pruned", "postponed")


def answers_of(
    generator: Generator, requests: Iterable[Request], *, kind: Kind, num_words: int, watch: Watch | None = None
) -> Iterator[Completion]:
    """The completions of `generator.generate(requests)` as they come. A generator "beside" begins when this is called.

    Args:
        kind: of the generator.
        num_words: size of the model's vocabulary.
        watch: sees the rollouts while they are generated; its forks come with the next indices of their groups.

    Raises:
        PodsError: a completion that was not asked for, came before, or cannot be; or one that did not come.
        UsageError: a user's own generator raised, or one lacks the ability "join" or "start" that a request needs.
    """
    wanted = list(requests)
    _check_abilities(wanted, generator)
    with kind.calling():
        found = begin(generator, wanted, watch)
    return _checked(found, wanted, kind, num_words, _Forks(() if watch is None else wanted))


def _check_abilities(requests: Sequence[Request], generator: Generator) -> None:
    abilities = abilities_of(generator)
    for request in requests:
        what = f"group {request.random_stream!r}, and the generator {type(generator).__name__} lacks the ability"
        if "join" not in abilities and (request.first_index > 0 or request.random_stream != request.id):
            raise UsageError(
                f"more rollouts are wanted of {what} 'join': use one that has it, or a budget of one round"
            )
        if "start" not in abilities and request.starts:
            raise UsageError(f"rollout {min(request.starts)} goes on in {what} 'start': use one that has it")


def _checked(
    found: Iterator[Completion], requests: Sequence[Request], kind: Kind, num_words: int, forks: _Forks
) -> Iterator[Completion]:
    name, missing = kind.option, {(request.id, index): request for request in requests for index in request.indices}
    total = len(missing)
    with kind.calling():
        for completion in found:
            if not isinstance(completion, Completion):
                raise PodsError(f"{name} gave {short(completion)}; wanted a podsrl.types.Completion")
            place = completion.request_id, completion.index
            request = missing.pop(place, None) or forks.source(*place)
            fault = "not asked for, or given before" if request is None else _fault(completion, request, num_words)
            if fault:
                raise PodsError(f"{name} gave rollout {place[1]} of request {place[0]!r}, which is {fault}")
            yield completion
    if missing:
        first, index = next(iter(missing))
        raise PodsError(
            f"{name} ended without {len(missing)} of {total} rollouts, such as {index} of request {first!r}"
        )
    if (lost := forks.lost()) is not None:
        raise PodsError(f"{name} gave forks of group {lost[0]!r} and none with the index {lost[1]} before them")


class _Forks:
    """The rollouts of these requests that a watch adds: the next indices of each group, once each."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._by_id, self._sizes, self._seen = {one.id: one for one in requests}, dict[str, int](), set[Key]()
        for one in requests:
            self._sizes[one.random_stream] = max(one.indices.stop, self._sizes.get(one.random_stream, 0))

    def source(self, name: str, index: int) -> Request | None:
        """The request of a fork that comes; None: it is no fork, or came before."""
        request = self._by_id.get(name)
        if request is None:
            return None
        key = request.random_stream, index
        if index < self._sizes[key[0]] or key in self._seen:
            return None
        self._seen.add(key)
        return request

    def lost(self) -> Key | None:
        """(group, index) of a fork that has not come, where a later one has."""
        before = ((name, index - 1) for name, index in self._seen if index > self._sizes[name])
        return next((key for key in before if key not in self._seen), None)


def _fault(completion: Completion, request: Request, num_words: int) -> str:
    """What is wrong with a completion; empty where nothing is."""
    ids, logprobs, most = completion.token_ids, completion.logprobs, request.sampling.max_new_tokens
    if completion.finish_reason not in get_args(FinishReason):
        return f"ended by {short(completion.finish_reason)}, wanted one of {', '.join(get_args(FinishReason))}"
    if not all(isinstance(each, tuple) for each in (ids, logprobs, completion.versions, completion.given)):
        return "of lists, wanted token_ids, logprobs, versions and given as tuples"
    if not ids and completion.finish_reason not in _UNFINISHED:
        return "without tokens"
    if len(ids) > most:
        return f"of {len(ids)} tokens, wanted at most {most}"
    if fault := fault_of(completion):
        return f"of {len(ids)} tokens, wanted {fault}"
    start = request.starts.get(completion.index)
    if start is not None and (ids[: len(start.token_ids)] != start.token_ids or completion.given != start.given):
        return f"not what goes on from its start: {short(ids)} with given = {completion.given}"
    if ids and not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < num_words):
        return f"not of token ids 0 .. {num_words - 1}: {short(ids)}"
    if completion.finish_reason != "invalid" and not _are_logprobs(logprobs):
        return f"without log-probs, natural logarithms of at most 0: {short(logprobs)}"
    return ""


def _are_logprobs(values: Sequence[float]) -> bool:
    return math.isfinite(sum(values)) and max(values, default=0.0) <= _MOST_LOGPROB
