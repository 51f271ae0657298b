"""What `record.trackers` names: whether it is installed, and where a run starts and ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from podsrl.config.schema import RunConfig
from podsrl.errors import UnavailableError, UsageError
from podsrl.lib.progress import Say
from podsrl.run.folder import RunFolder
from podsrl.scale.processes import Processes

Tracking = Callable[[RunConfig, Path, Say], AbstractContextManager[None]]
"""Runs trackers beside a block; `podsrl.integrations.trackers.tracking` is one."""


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of its name, such as W&B makes, has no origin."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # a finder that knows it and cannot load it, or a half-made module
        return False
    return spec is not None and spec.origin is not None


def check_trackers(config: RunConfig) -> None:
    """UnavailableError: the package of a tracker is not installed."""
    for name in config.record.trackers:
        if not is_installed(name):
            raise UnavailableError(
                f"record.trackers names {name}, which is not installed: pip install 'podsrl[trackers]', or leave it out"
            )


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
