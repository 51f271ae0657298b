"""On-policy training: nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.types import Group


class KeepNothing:
    """The default keeper."""

    def take(self, step: int, fresh: Sequence[Group]) -> Sequence[Group]:
        return ()

    def put(self, step: int, fresh: Sequence[Group]) -> None:
        pass

    def state(self) -> Sequence[Group]:
        return ()

    def restore(self, groups: Sequence[Group]) -> None:
        if groups:
            raise UsageError(
                f"the checkpoint holds {len(groups)} groups that a keeper kept, and this run has none: set "
                "trainer.keeper to the keeper that the run had before it loads"
            )
