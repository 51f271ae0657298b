"""What `record.trackers` names: where a run starts and ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.callbacks import Say
from podsrl.run.saving.folder import RunFolder
from podsrl.scale.processes import Processes

Tracking = Callable[[RunConfig, Path, Say], AbstractContextManager[None]]
"""Runs trackers beside a block; `podsrl.integrations.trackers.tracking` is one."""


def check_tracking(config: RunConfig, tracking: Tracking | None) -> None:
    """UsageError: the config names trackers, and the caller brings nothing that runs them."""
    if config.record.trackers and tracking is None:
        raise UsageError(
            f"record.trackers = {', '.join(config.record.trackers)}, and nothing starts them here: pass "
            "tracking=podsrl.integrations.trackers.tracking, or leave them out"
        )


@contextmanager
def tracked(
    tracking: Tracking | None, config: RunConfig, folder: RunFolder | None, say: Say, processes: Processes
) -> Iterator[None]:
    """Process 0, which has the folder, tracks for all processes; the folder is as the run goes on from it."""
    if tracking is None or not config.record.trackers:
        yield
        return
    with nullcontext() if folder is None else tracking(config, folder.path, say):
        yield
    processes.gather(None)  # a launcher ends all soon after one has ended
