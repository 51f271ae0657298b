"""What a generator gives, checked against what it was asked: it may live elsewhere, or be a user's own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import get_args

from podsrl.errors import PodsError, UsageError, short
from podsrl.generate.base import Generator, Request, abilities_of, fault_of, verbs_of
from podsrl.generate.kinds import Kind
from podsrl.lib.watch import Key, Watch
from podsrl.types import FinishReason, Rollout, Status

_MOST_LOGPROB = 1e-3
"""Rounding may lift the log-prob of a certain token above 0."""


class Checked:
    """The verbs of a generator; each completion is checked.

    Args:
        generator: any.
        kind: of the generator.
        num_words: size of the model's vocabulary.
    """

    def __init__(self, generator: Generator, *, kind: Kind, num_words: int) -> None:
        self._generator, self._verbs, self._kind, self._num_words = generator, verbs_of(generator), kind, num_words
        self._missing: dict[Key, Request] = {}
        self._num_asked = 0  # since nothing ran
        self._watched: dict[str, Request] = {}  # of each group that a watch sees, the one with the last indices
        self._forks: dict[str, set[int]] = defaultdict(set)

    @property
    def num_unfinished(self) -> int:
        """Rollouts that are to come."""
        return self._verbs.num_unfinished or len(self._missing)

    def submit(self, requests: Sequence[Request], watch: Watch | None = None) -> None:
        """As `Generator.submit`; errors too.

        Raises:
            UsageError: a user's own generator raised, or one lacks the ability "join" or "start" that a request needs.
        """
        _check_abilities(requests, self._generator)
        with self._kind.calling():
            if watch is None:
                self._verbs.submit(requests)
            else:
                self._verbs.submit(requests, watch=watch)
        for request in requests:
            self._missing |= {(request.id, index): request for index in request.indices}
            self._num_asked += request.num_rollouts
            last = self._watched.get(request.id)
            if watch is not None and (last is None or last.indices.stop < request.indices.stop):
                self._watched[request.id] = request

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        """As `Generator.poll`; errors too.

        Raises:
            PodsError: a completion that was not asked for, came before, or cannot be; or one that did not come.
            UsageError: a user's own generator raised.
        """
        with self._kind.calling():
            found = self._verbs.poll(seconds)
        for completion in found:
            self._check(completion)
        if not self._verbs.num_unfinished:
            self._check_end()
        return found

    def abort(self, ids: Iterable[str | Key]) -> None:
        """As `Generator.abort`."""
        with self._kind.calling():
            self._verbs.abort(list(ids))

    def _check(self, completion: Rollout) -> None:
        if not isinstance(completion, Rollout):
            raise PodsError(f"{self._kind.option} gave {short(completion)}; wanted a podsrl.types.Rollout")
        name, index = key = completion.group_id, completion.index
        request = self._missing.pop(key, None) or self._source(completion)
        fault = "not asked for, or given before" if request is None else _fault(completion, request, self._num_words)
        if fault:
            raise PodsError(f"{self._kind.option} gave rollout {index} of group {name!r}, which is {fault}")

    def _source(self, completion: Rollout) -> Request | None:
        """Of a fork that comes, a request of its group; None: it is no fork, or came before."""
        name, index = completion.group_id, completion.index
        request, is_fork = self._watched.get(name), completion.parent is not None
        if request is None or not is_fork or index < request.indices.stop or index in self._forks.get(name, ()):
            return None
        self._forks[name].add(index)
        return request

    def _check_end(self) -> None:
        """Nothing runs any more."""
        if self._missing:
            name, index = next(iter(self._missing))
            raise PodsError(
                f"{self._kind.option} ended without {len(self._missing)} of {self._num_asked} rollouts, such as "
                f"{index} of group {name!r}"
            )
        for name, forks in self._forks.items():
            if lost := {*range(self._watched[name].indices.stop, max(forks))} - forks:
                raise PodsError(
                    f"{self._kind.option} gave forks of group {name!r} and none with the index {min(lost)} before them"
                )
        self._num_asked, self._watched, self._forks = 0, {}, defaultdict(set)


def _check_abilities(requests: Sequence[Request], generator: Generator) -> None:
    abilities = abilities_of(generator)
    for request in requests:
        what = f"group {request.id!r}, and the generator {type(generator).__name__} lacks the ability"
        if "start" not in abilities and request.starts:
            raise UsageError(f"rollout {min(request.starts)} goes on in {what} 'start': use one that has it")
        if "join" not in abilities and request.first_index > 0:
            raise UsageError(
                f"more rollouts are wanted of {what} 'join': use one that has it, or a budget of one round"
            )


def _fault(completion: Rollout, request: Request, num_words: int) -> str:
    """What is wrong with a completion; empty where nothing is."""
    ids, logprobs, most = completion.token_ids, completion.logprobs, request.sampling.max_new_tokens
    for option, value, known in (
        ("status", completion.status, get_args(Status)),
        ("finish_reason", completion.finish_reason, get_args(FinishReason) if completion.status == "done" else (None,)),
    ):
        if value not in known:
            return f"{completion.status} with {option} = {short(value)}, wanted one of {', '.join(map(str, known))}"
    if not all(isinstance(each, tuple) for each in (ids, logprobs, completion.versions, completion.given)):
        return "of lists, wanted token_ids, logprobs, versions and given as tuples"
    if not ids and completion.status == "done":
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
    if completion.status != "failed" and not _are_logprobs(logprobs):
        return f"without log-probs, natural logarithms of at most 0: {short(logprobs)}"
    return ""


def _are_logprobs(values: Sequence[float]) -> bool:
    return math.isfinite(sum(values)) and max(values, default=0.0) <= _MOST_LOGPROB
