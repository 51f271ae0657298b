"""Tasks -> completions: the engine and what it is asked."""

from podsrl.generate.base import Generator, Request, Sampling
from podsrl.generate.engine.engine import Engine
from podsrl.generate.engine.steering import StepView
from podsrl.generate.stats import EngineStats, Span

__all__ = ["Engine", "EngineStats", "Generator", "Request", "Sampling", "Span", "StepView"]
