"""The demo, comparisons of arms, and long runs: their tables and figures."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import by_its_page, of_newest
from podsrl.lib.resolve import load

FIGURES = (
    Figure(
        "demo",
        "demo",
        "the demo's task to 90 % held-out accuracy: how many times sooner PODS 64 → 16 is there, by training seconds; "
        "5 paired seeds, 95 % interval",
        lambda result: str(load("benchmarks.demo:headline")(result)),
    ),
)
PARTS: dict[str, Callable[..., str]] = {
    "demo": by_its_page("demo", "benchmarks.demo:markdown"),
    "smol": by_its_page("smol", "benchmarks.smol:page"),
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
