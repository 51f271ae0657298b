"""Markdown of results: a text or a table per processor, and where and when each was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.files import Files, Result
from podsrl.lib.resolve import load

NOT_MEASURED = "not measured yet"


def each(results: Mapping[str, Result], text_of: Callable[[Result], str]) -> str:
    """A figure within a sentence: alone, or with its processor where several have been measured.

    Example:
        >>> each({"abacus": {"x": 2}}, lambda result: f"{result['x']}×")
        '2×'
        >>> each({"abacus": {"x": 2}, "slide rule": {"x": 3}}, lambda result: f"{result['x']}×")
        '2× (abacus) and 3× (slide rule)'
    """
    texts = {processor: text_of(result) for processor, result in results.items()}
    if len({*texts.values()}) == 1:
        return next(iter(texts.values()))
    return " and ".join(f"{text} ({processor})" for processor, text in texts.items()) or NOT_MEASURED


def per_processor(results: Mapping[str, Result], part_of: Callable[[Result], str]) -> str:
    """A table or a paragraph for each processor, with where and when it was measured above it."""
    parts = (f"{where(result)}:\n\n{part_of(result).strip()}" for result in results.values())
    return "\n\n".join(parts) or f"*{NOT_MEASURED.capitalize()}.*"


def by_its_page(benchmark: str, function: str) -> Callable[[Files], str]:
    """A part that a benchmark's own function of a result writes, named "module:function" and imported on use."""
    return lambda files: per_processor(files(benchmark), lambda result: str(load(function)(result)))


def of_newest(benchmark: str, function: str) -> Callable[[Files], str]:
    """The same of the newest result alone: it is of a kind on every processor."""

    def text(files: Files) -> str:
        result = newest(files(benchmark))
        return NOT_MEASURED if result is None else str(load(function)(result))

    return text


def newest(results: Mapping[str, Result]) -> Result | None:
    """The result that was measured last; None: there is none."""
    return max(results.values(), key=lambda result: str(result["date"]), default=None)


def where(result: Result) -> str:
    """Processor, hardware, commit and date of a result.

    Example:
        >>> where({"processor": "AMD Zen 5", "hardware": "2 cores", "commit": "ab12", "date": "2026-01-02T03:04+00:00"})
        'AMD Zen 5 (2 cores; commit ab12, 2026-01-02)'
    """
    changed = ", with changes" if result.get("has_changes") else ""
    return f"{result['processor']} ({result['hardware']}; commit {result['commit']}{changed}, {result['date'][:10]})"


def where_measured(files: Files, *names: str) -> str:
    """A line per processor: its hardware, and from when to when the benchmarks were measured on it."""
    dates: dict[tuple[str, str], list[str]] = {}
    for result in (result for name in names for result in files(name).values()):
        dates.setdefault((result["processor"], result["hardware"]), []).append(result["date"][:10])
    lines = [
        f"- {processor}: {hardware}; {' to '.join(dict.fromkeys((min(days), max(days))))}"
        for (processor, hardware), days in sorted(dates.items())
    ]
    return "\n".join(lines) or NOT_MEASURED


def table(head: Sequence[str], rows: Iterable[Sequence[str]], num_left: int = 1) -> str:
    """A table whose first columns are aligned to the left.

    Example:
        >>> print(table(["arm", "ms"], [["a", "1"]]))
        | arm | ms |
        |---|--:|
        | a | 1 |
    """
    line = "|" + "---|" * num_left + "--:|" * (len(head) - num_left)
    return "\n".join([f"| {' | '.join(head)} |", line, *(f"| {' | '.join(row)} |" for row in rows)])


def percent(share: float, digits: int = 0) -> str:
    """A share as a text.

    Example:
        >>> percent(0.084, 1)
        '8.4 %'
    """
    return f"{100 * share:.{digits}f} %"
