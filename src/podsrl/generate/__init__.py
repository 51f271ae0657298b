"""Tasks -> completions: the engine and what it is asked."""

from podsrl.generate.engine import Engine
from podsrl.generate.request import Generator, Request, Sampling
from podsrl.generate.stats import EngineStats, Span
from podsrl.generate.view import StepView

__all__ = ["Engine", "EngineStats", "Generator", "Request", "Sampling", "Span", "StepView"]
