"""Requests -> completions: what every generator is (`base.py`), and the built-in one (`engine/`)."""

from podsrl.generate.base import (
    EngineStats,
    Generator,
    Request,
    Sampling,
    Setting,
    Verbs,
    abilities_of,
    add_stats,
    verbs_of,
)
from podsrl.generate.checked import Checked
from podsrl.generate.engine.engine import Engine
from podsrl.generate.kinds import Kind, Training, new_engine, resolve_generator
from podsrl.lib.watch import End, Fork, Hold, Live, Note, Watch

__all__ = [
    "Checked",
    "End",
    "Engine",
    "EngineStats",
    "Fork",
    "Generator",
    "Hold",
    "Kind",
    "Live",
    "Note",
    "Request",
    "Sampling",
    "Setting",
    "Training",
    "Verbs",
    "Watch",
    "abilities_of",
    "add_stats",
    "new_engine",
    "resolve_generator",
    "verbs_of",
]
