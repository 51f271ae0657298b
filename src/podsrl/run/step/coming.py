"""What open groups lack, as the generator gives it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from podsrl.generate import Generator, Kind, Request, Watch, abilities_of, answers_of
from podsrl.run.step.turns import Silence, Talk
from podsrl.types import Completion


class Coming:
    """Completions as they come, whose `request_id` is their group's id. A generator "beside" starts with it.

    Args:
        engine: the generator.
        requests: their random streams are the groups' ids.
        kind, num_words, watch: as in `answers_of`; errors too.
        talk: what is said to rollouts whose turn has ended.
    """

    def __init__(
        self,
        engine: Generator,
        requests: Sequence[Request],
        *,
        kind: Kind,
        num_words: int,
        watch: Watch | None = None,
        talk: Talk | None = None,
    ) -> None:
        self._engine, self._kind, self._num_words, self._watch = engine, kind, num_words, watch
        self._talk = talk or Silence()
        self._of_rollout = {(one.random_stream, index): one for one in requests for index in one.indices}
        self._first_ended: dict[str, int] = {}
        self._begin(requests)
        self._turns = self._turn_by_turn()
        self.forks: dict[str, dict[int, int]] = {}
        """Group's id -> index of each fork that came -> an index that was asked as its source was."""

    def __iter__(self) -> Coming:
        return self

    def __next__(self) -> Completion:
        return next(self._turns)

    @property
    def must_wait(self) -> bool:
        """Whether the next one is still to be generated, as far as is known."""
        return getattr(self._engine, "num_ready", 0) == 0

    def end(self, name: str, first: int) -> None:
        """A group needs no rollout from this index on: those that run are ended, the others never start.

        A generator without the ability "abort_rollouts" generates their turns to the end all the same.
        """
        self._first_ended[name] = first
        if "abort_rollouts" in abilities_of(self._engine):
            own = [request for request in self._requests.values() if request.random_stream == name]
            with self._kind.calling():
                self._engine.abort([(one.id, index) for one in own for index in one.indices if index >= first])

    def end_all(self) -> None:
        """End all rollouts that are not done: they come as "aborted", with their tokens if the generator keeps them."""
        with self._kind.calling():
            self._engine.abort(list(self._requests))

    def _begin(self, requests: Sequence[Request]) -> None:
        self._requests = {request.id: request for request in requests}
        self._found = answers_of(self._engine, requests, kind=self._kind, num_words=self._num_words, watch=self._watch)

    def _turn_by_turn(self) -> Iterator[Completion]:
        while True:
            for completion in self._found:
                request = self._requests[completion.request_id]
                if completion.index not in request.indices:
                    self.forks.setdefault(request.random_stream, {})[completion.index] = request.first_index
                begun = request.starts.get(completion.index, completion)
                done = replace(
                    completion,
                    request_id=request.random_stream,
                    calls=begun.calls,
                    earned=begun.earned,
                    num_shared=begun.num_shared,
                )
                if not self._talk.takes(done):
                    yield done
            going_on = []
            for done in self._talk.answers():
                if not done.is_postponed:
                    yield done
                elif done.index >= self._first_ended.get(done.request_id, math.inf):
                    yield replace(done, finish_reason="aborted")
                else:
                    going_on.append(self._request(done))
            if not going_on:
                return
            self._begin(going_on)

    def _request(self, done: Completion) -> Request:
        """For what is behind the tokens of a rollout."""
        first, name, index = self._of_rollout[done.request_id, done.index], done.request_id, done.index
        own = f"{name}+{index}/{len(done.token_ids)}"
        return replace(first, id=own, num_rollouts=1, first_index=index, stream=name, starts={index: done})
