"""Requests -> completions: what every generator is (`base.py`), and the built-in one (`engine/`)."""

from podsrl.generate.base import EngineStats, Generator, Request, Sampling, Setting, abilities_of, add_stats
from podsrl.generate.checked import answers_of
from podsrl.generate.engine.engine import Engine
from podsrl.generate.engine.steering import Span
from podsrl.generate.kinds import Kind, new_engine, resolve_generator
from podsrl.generate.watch import End, Fork, Live, Watch

__all__ = [
    "End",
    "Engine",
    "EngineStats",
    "Fork",
    "Generator",
    "Kind",
    "Live",
    "Request",
    "Sampling",
    "Setting",
    "Span",
    "Watch",
    "abilities_of",
    "add_stats",
    "answers_of",
    "new_engine",
    "resolve_generator",
]
