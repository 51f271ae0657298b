"""The demo, the map of where PODS helps, and long runs: their tables and figures."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import NOT_MEASURED, by_its_page, newest
from benchmarks.files import Files, Result


def interval_coverage(files: Files) -> str:
    """How often an interval holds the truth. Simulated, so of a kind on every processor."""
    from benchmarks.interval_coverage import markdown

    result = newest(files("interval-coverage"))
    return NOT_MEASURED if result is None else markdown(result["rows"])


def will_it_help(files: Files) -> str:
    """README's table, from the newest result."""
    from benchmarks.when_pods_helps.page import help_table

    result = newest(files("when-pods-helps"))
    return NOT_MEASURED if result is None else help_table(result)


def _speedups(start: str) -> Callable[[Result], str]:
    """With a KL penalty and without."""

    def text(result: Result) -> str:
        from benchmarks.when_pods_helps.page import ratio_text

        over = {
            row["kl"]: arm["over_grpo"]
            for row in result["rows"]
            for arm in row["arms"]
            if (row["start"], row["digits"], arm["arm"]) == (start, 2, "PODS 64 → 16")
        }
        return f"{ratio_text(over.get(0.04))} with a KL penalty, {ratio_text(over.get(0.0))} without"

    return text


def _demo(result: Result) -> str:
    from benchmarks.paired import over_text

    over = {arm: over_text(found) for arm, found in result["to"]["0.9"]["pods_over"].items()}
    return f"{over['grpo']} over GRPO 16 → 16, {over['grpo_ga']} over GRPO-GA 64 → 64"


FIGURES = (
    Figure(
        "demo",
        "demo",
        "the demo's task to 90 % held-out accuracy: how many times sooner PODS 64 → 16 is there, by training seconds; "
        "5 paired seeds, 95 % interval",
        _demo,
    ),
    *(
        Figure(
            f"map-{start}",
            "when-pods-helps",
            "speed-up of PODS 64 → 16 over GRPO 16 → 16 by CPU seconds to 90 % right (95 % interval; paired seeds), "
            f"from {start.replace('%', ' %')}",
            _speedups(start),
        )
        for start in ("0.9%", "1.4%", "4%", "18%", "59%")
    ),
)
PARTS: dict[str, Callable[..., str]] = {
    "demo": by_its_page("demo", "benchmarks.demo:markdown"),
    "smol": by_its_page("smol", "benchmarks.demo:markdown"),
    "demo-rates": by_its_page("demo", "benchmarks.demo:rates_markdown"),
    "when-pods-helps": by_its_page("when-pods-helps", "benchmarks.when_pods_helps.page:page"),
    "will-it-help": will_it_help,
    "interval-coverage": interval_coverage,
    "baselines": by_its_page("baselines", "benchmarks.baselines:table"),
    "pruned": by_its_page("pruned", "benchmarks.pruned:table"),
    "search": by_its_page("search", "benchmarks.search:table"),
    "memory": by_its_page("memory", "benchmarks.memory:page"),
    "judges": by_its_page("judges", "benchmarks.judges.labelled:page"),
    **{name: by_its_page(name, "benchmarks.claims:table") for name in ("claims", "claims-rare", "claims-sums")},
    "claims-stale": by_its_page("claims-stale", "benchmarks.claims_stale:table"),
    "turns": by_its_page("turns", "benchmarks.turns:table"),
    "worth": by_its_page("worth", "benchmarks.worth:page"),
    "worth-wanted": by_its_page("worth", "benchmarks.worth:wanted"),
    "worth-gains": by_its_page("worth", "benchmarks.worth:gains"),
    "worth-dear": by_its_page("worth", "benchmarks.worth:dear"),
    "soak": by_its_page("soak", "benchmarks.soak.page:markdown"),
    "kills": by_its_page("kills", "benchmarks.kills.page:markdown"),
}
