"""Imports of thousands of modules, as torch and transformers bring, without the work of the garbage collector.

While modules are imported, almost every new object stays; the collector looks through all of them hundreds of times,
which is a third of the processor time of a command's start. A library leaves the collector of its user alone, so only
what starts a process of this package calls this.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

TRAINING = ("podsrl.run.session", "transformers.modeling_utils")
"""All that a run imports before its model's own class."""


def load(*names: str) -> None:
    """Import modules while the garbage collector waits; later it does not look through what exists by then.

    Without effect where all are imported already, so that no process is frozen twice by the same imports.
    """
    if not gc.isenabled() or all(name in sys.modules for name in names):
        return
    gc.disable()
    try:
        for name in names:
            import_module(name)
    finally:
        gc.freeze()
        gc.enable()
