"""One figure per thing that was measured: the table of docs/benchmarks.md, and single figures within sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from benchmarks.figures.markdown import each, table
from benchmarks.files import Files, Result

FAR_APART = 1.5
"""Figures of two processors differ in kind if they are a larger factor apart, or on two sides of 1."""


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
    value: Callable[[Result], float] | None = None
    """The figure as a ratio, by which processors and runs are compared; None: it is none."""
    command: str | None = None
    """Arguments on the command line; None: the benchmark's name."""

    def cell(self, result: Result | None) -> str:
        """The figure in a table; a dash where nothing was measured."""
        return "–" if result is None else self.text(result)


def one(files: Files, name: str) -> str:
    """A figure within a sentence."""
    from benchmarks.figures import FIGURES

    return each(files(FIGURES[name].benchmark), FIGURES[name].text)


def side_by_side(files: Files, figures: Sequence[Figure]) -> str:
    """All figures in a table with a column per processor, and where these differ in kind."""
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
    differing = [line for figure in figures if (line := differs_in_kind(figure, found[figure.name]))]
    lines = "".join(f"\n- {line}" for line in differing)
    note = f"\n\nThe processors differ in kind:\n{lines}" if differing else ""
    return table(["what", *processors, "benchmark"], rows, num_left=2 + len(processors)) + note


def differs_in_kind(figure: Figure, results: Mapping[str, Result]) -> str:
    """What to say where two processors' ratios lie on two sides of 1, or far apart; empty where they do not."""
    if figure.value is None:
        return ""
    values = {processor: figure.value(result) for processor, result in results.items()}
    for a, b in combinations(values, 2):
        low, high = sorted((values[a], values[b]))
        if low < 1 < high or high > FAR_APART * low:
            return f"`{figure.command or figure.benchmark}`: {values[a]:.2f} on {a}, {values[b]:.2f} on {b}"
    return ""
