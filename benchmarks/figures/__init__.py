"""The measured parts of README and docs: each is a function of the result files that gives Markdown.

No module here imports a benchmark: what a benchmark's own function writes is named as "module:function".
"""

from collections.abc import Callable

from benchmarks.figures import gpu, runs, speed, systems, tables, trl
from benchmarks.figures.headline import Figure, side_by_side
from benchmarks.figures.markdown import each, where_measured
from benchmarks.files import Files, Result

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (*speed.FIGURES, *trl.FIGURES, *runs.FIGURES)}
"""Name -> figure, in the order of the table in docs/benchmarks.md."""
ELSEWHERE = ("demo", "planner", "reference-solutions", "trl-accuracy", "when-pods-helps")
"""Benchmarks whose figures are not in that table: other parts of the pages show them."""


def one(files: Files, name: str) -> str:
    """A figure within a sentence."""
    return each(files(FIGURES[name].benchmark), FIGURES[name].text)


def all_figures(files: Files) -> str:
    """The table of docs/benchmarks.md."""
    return side_by_side(files, [figure for figure in FIGURES.values() if figure.benchmark not in ELSEWHERE])


def where_all(files: Files) -> str:
    """Hardware and dates of the benchmarks of that table."""
    return where_measured(files, *dict.fromkeys(figure.benchmark for figure in FIGURES.values()))


PARTS: dict[str, Callable[..., str]] = {
    "all": all_figures,
    "one": one,
    "where": where_all,
    **tables.PARTS,
    **gpu.PARTS,
    **systems.PARTS,
    **trl.PARTS,
    **runs.PARTS,
}
"""Name in a mark -> function of the files and of the mark's other words."""
TABLES = {
    "choice": "choice",
    "claims": "claims",
    "claims-sums": "claims-sums",
    "closing": "closing",
    "demo": "demo",
    "engine-gpu": "engine-gpu-table",
    "families": "families",
    "halves": "halves-table",
    "interval-coverage": "interval-coverage",
    "judges": "judges",
    "kills": "kills",
    "memory": "memory",
    "orders": "orders",
    "smol": "smol",
    "soak": "soak",
    "systems": "systems-measured",
    "trl-accuracy": "trl-accuracy-table",
    "trl-real": "trl-real",
    "when-pods-helps": "when-pods-helps",
}
"""Benchmark -> the part that is its table."""


def shown(result: Result) -> str:
    """A result for a terminal: its figures, and its table as on the pages; empty if it has neither."""
    name = result["name"]
    lines = [f"{figure.what}: {figure.text(result)}" for figure in FIGURES.values() if figure.benchmark == name]
    if name in TABLES:
        lines.append(PARTS[TABLES[name]](lambda asked: {result["processor"]: result} if asked == name else {}))
    if lines and result.get("options", {}).get("quick"):
        lines.insert(0, "Quick sizes; the texts below name those of the whole measurement.")
    return "\n\n".join(lines)
