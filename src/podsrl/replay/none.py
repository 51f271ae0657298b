"""On-policy training: nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.types import Group


class KeepNothing:
    """The default keeper."""

    def take(self, step: int, fresh: Sequence[Group]) -> Sequence[Group]:
        return ()

    def put(self, step: int, fresh: Sequence[Group]) -> None:
        pass
