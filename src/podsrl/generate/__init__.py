"""Requests -> completions: what every generator is (`base.py`), and the built-in one (`engine/`)."""

from podsrl.generate.base import EngineStats, Generator, Request, Sampling, Setting, abilities_of, add_stats
from podsrl.generate.checked import answers_of
from podsrl.generate.engine.engine import Engine
from podsrl.generate.engine.steering import Span, StepView
from podsrl.generate.kinds import Kind, new_engine, resolve_generator

__all__ = [
    "Engine",
    "EngineStats",
    "Generator",
    "Kind",
    "Request",
    "Sampling",
    "Setting",
    "Span",
    "StepView",
    "abilities_of",
    "add_stats",
    "answers_of",
    "new_engine",
    "resolve_generator",
]
