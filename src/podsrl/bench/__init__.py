"""Benchmarks behind `pods bench NAME`: each module has HELP, run(quick) -> JSON-able dict, and table(result)."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from rich.table import Table

BENCHES = {
    "select": "podsrl.bench.select",
    "loop": "podsrl.bench.loop",
    "engine": "podsrl.bench.engine",
    "infinite-sampling": "podsrl.bench.infinite_sampling",
    "trl": "podsrl.bench.trl",
    "update": "podsrl.bench.update",
}


class Bench(Protocol):
    """What a benchmark module offers."""

    HELP: str

    def run(self, quick: bool = False) -> dict[str, Any]: ...

    def table(self, result: dict[str, Any]) -> Table: ...


def load_bench(name: str) -> Bench:
    """Import a benchmark's module."""
    module: Any = import_module(BENCHES[name])
    bench: Bench = module
    return bench
