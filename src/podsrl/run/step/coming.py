"""What open groups lack, as the generator gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podsrl.generate import Generator, Kind, Request, abilities_of, answers_of
from podsrl.types import Completion


class Coming:
    """Completions as they come, whose `request_id` is their group's id. A generator "beside" starts with it.

    Args:
        engine: the generator.
        requests: their random streams are the groups' ids.
        kind, num_words: as in `answers_of`; errors too.
    """

    def __init__(self, engine: Generator, requests: Sequence[Request], *, kind: Kind, num_words: int) -> None:
        self._engine, self._requests, self._kind = engine, requests, kind
        self._name_of = {request.id: request.random_stream for request in requests}
        self._found = answers_of(engine, requests, kind=kind, num_words=num_words)

    def __iter__(self) -> Coming:
        return self

    def __next__(self) -> Completion:
        completion = next(self._found)
        return replace(completion, request_id=self._name_of[completion.request_id])

    def end(self, name: str, first: int) -> None:
        """A group needs no rollout from this index on: those that run are ended, the others never start.

        A generator without the ability "abort_rollouts" generates them all the same.
        """
        if "abort_rollouts" in abilities_of(self._engine):
            own = [request for request in self._requests if request.random_stream == name]
            with self._kind.calling():
                self._engine.abort([(one.id, index) for one in own for index in one.indices if index >= first])
