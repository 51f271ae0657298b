"""Tasks -> completions: the engine and what it is asked."""

from podsrl.generate.engine import Engine
from podsrl.generate.request import Generator, Request, Sampling

__all__ = ["Engine", "Generator", "Request", "Sampling"]
