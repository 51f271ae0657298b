"""Regular expressions in adapter_config.json, which came with the adapters: tried within a limit before PEFT uses them.

Some take longer than the age of the world for a name of 40 letters.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from podsrl.errors import UsageError

MAX_SECONDS = 10.0
"""CPU time for all modules of a model; common patterns take a few milliseconds."""


def check_patterns(model: Any, config: Any, given: str) -> None:
    """Match every pattern against the name of every module, as PEFT will.

    Args:
        model: that the adapters go onto.
        config: PEFT's, of the adapters.
        given: what the user wrote in `model.path`.

    Raises:
        UsageError: it takes more than `MAX_SECONDS`. Outside of the main thread nothing can interrupt a match, and
            nothing is tried.
    """
    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.other import get_pattern_key

    if threading.current_thread() is not threading.main_thread():
        return
    keys = [*(config.rank_pattern or {}), *(config.alpha_pattern or {})]
    problem = f"model.path = {given!r}: a pattern in its adapter_config.json takes more than {MAX_SECONDS:g} seconds"
    with _limited(UsageError(f"{problem} of CPU time; name the modules in target_modules one by one")):
        for name, _ in model.named_modules():
            check_target_module_exists(config, name)
            get_pattern_key(keys, name)


@contextmanager
def _limited(error: Exception) -> Iterator[None]:
    """Raise an error after `MAX_SECONDS` of CPU time; Python's matching looks for signals now and then."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise error

    previous = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
