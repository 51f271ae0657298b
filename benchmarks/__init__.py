"""Measurements behind the figures of the docs: `python -m benchmarks NAME [options]`, from the root of a checkout.

Every benchmark is a module with a docstring, whose first line `python -m benchmarks` lists, and
`main(arguments: Sequence[str]) -> None`.
"""

BENCHMARKS = {
    "select": "select",
    "engine": "engine.peers",
    "gpu-tests": "gpu.checks",
    "gpu-demo": "gpu.smol",
    "gpu-gsm8k": "gpu.gsm8k",
    "engine-gpu": "engine.gpu",
    "halves": "halves",
    "watch": "engine.watched",
    "update": "update",
    "memory": "memory",
    "floor": "floor",
    "budgets": "budgets",
    "demo": "demo",
    "smol": "smol",
    "trl": "trl.step",
    "trl-accuracy": "trl_accuracy.seeds",
    "trl-pods": "trl.pods",
    "trl-real": "trl.real",
    "families": "families.page",
    "planner": "planner",
    "when-pods-helps": "when_pods_helps",
    "choice": "choice",
    "closing": "closing",
    "claims": "claims",
    "claims-sums": "claims_sums",
    "systems": "systems",
    "interval-coverage": "interval_coverage",
    "orders": "orders",
    "soak": "soak.hour",
    "kills": "kills.thousand",
    "reference-solutions": "reference_solutions",
    "judges": "judges.labelled",
}
"""Name on the command line -> module below this package."""

COMMANDS = {"all": "everything", "gpu": "gpu.parts", "pages": "pages"}
"""What works on the benchmarks together; in the same form."""
