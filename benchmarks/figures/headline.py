"""One figure per thing that was measured: the table of docs/benchmarks.md, and single figures within sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.figures.markdown import table
from benchmarks.files import Files, Result


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that a benchmark measures."""

    name: str
    """In the mark `<!-- figures: one NAME -->`."""
    benchmark: str
    what: str
    """Markdown: what is measured, with its sizes."""
    text: Callable[[Result], str]
    """The figure, with its spread."""
    command: str | None = None
    """Arguments on the command line; None: the benchmark's name."""

    def cell(self, result: Result | None) -> str:
        """The figure in a table; a dash where nothing was measured."""
        return "–" if result is None else self.text(result)


def side_by_side(files: Files, figures: Sequence[Figure]) -> str:
    """All figures in a table with a column per processor."""
    found = {figure.name: files(figure.benchmark) for figure in figures}
    processors = sorted({processor for results in found.values() for processor in results})
    rows = [
        [
            figure.what,
            *(figure.cell(found[figure.name].get(each)) for each in processors),
            f"`{figure.command or figure.benchmark}`",
        ]
        for figure in figures
    ]
    return table(["what", *processors, "benchmark"], rows, num_left=2 + len(processors))
