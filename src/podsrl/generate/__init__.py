"""Requests -> completions: what every generator is (`base.py`), and the built-in one (`engine/`)."""

from podsrl.generate.base import EngineStats, Generator, Request, Sampling
from podsrl.generate.engine.engine import Engine
from podsrl.generate.engine.steering import Span, StepView

__all__ = ["Engine", "EngineStats", "Generator", "Request", "Sampling", "Span", "StepView"]
