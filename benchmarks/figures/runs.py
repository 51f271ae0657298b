"""The demo, the map of where PODS helps, and long runs: their tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import by_its_page, of_newest
from benchmarks.files import Result
from podsrl.lib.resolve import load


def _speedups(start: str, result: Result) -> str:
    """Over GRPO of both sizes."""
    return str(load("benchmarks.when_pods_helps:speedups")(result, start))


FIGURES = (
    Figure(
        "demo",
        "demo",
        "the demo's task to 90 % held-out accuracy: how many times sooner PODS 64 → 16 is there, by training seconds; "
        "5 paired seeds, 95 % interval",
        lambda result: str(load("benchmarks.demo:headline")(result)),
    ),
    *(
        Figure(
            f"map-{start}",
            "when-pods-helps",
            "how many times as fast PODS 64 → 16 reaches 90 %, by CPU seconds (95 % interval; paired seeds), "
            f"from {start.replace('%', ' %')}",
            partial(_speedups, start),
        )
        for start in ("0.9%", "4%", "18%", "59%")
    ),
)
PARTS: dict[str, Callable[..., str]] = {
    "demo": by_its_page("demo", "benchmarks.demo:markdown"),
    "smol": by_its_page("smol", "benchmarks.demo:markdown"),
    "when-pods-helps": by_its_page("when-pods-helps", "benchmarks.when_pods_helps:page"),
    "will-it-help": of_newest("when-pods-helps", "benchmarks.when_pods_helps:help_table"),
    "interval-coverage": of_newest("interval-coverage", "benchmarks.interval_coverage:markdown"),
    "families": of_newest("families", "benchmarks.families.page:markdown"),
    "memory": by_its_page("memory", "benchmarks.memory:page"),
    "judges": by_its_page("judges", "benchmarks.judges.labelled:page"),
    **{name: by_its_page(name, "benchmarks.claims:table") for name in ("claims", "claims-sums")},
    "choice": by_its_page("choice", "benchmarks.choice:page"),
    "closing": by_its_page("closing", "benchmarks.closing:page"),
    "orders": by_its_page("orders", "benchmarks.orders:orders_table"),
    "soak": by_its_page("soak", "benchmarks.soak.page:markdown"),
    "kills": by_its_page("kills", "benchmarks.kills.page:markdown"),
}
