"""The demo, the map of where PODS helps, and long runs: their tables and figures."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import NOT_MEASURED, newest, per_processor
from benchmarks.files import Files, Result


def demo(files: Files) -> str:
    """Seconds of the demo's arms to fixed accuracies, and how much sooner PODS is."""
    from benchmarks.demo import markdown

    return per_processor(files("demo"), markdown)


def demo_rates(files: Files) -> str:
    """CPU seconds of the demo's arms by learning rate."""
    from benchmarks.demo import rates_markdown

    return per_processor(files("demo"), rates_markdown)


def when_pods_helps(files: Files) -> str:
    """The map."""
    from benchmarks.when_pods_helps.page import page

    return per_processor(files("when-pods-helps"), page)


def soak(files: Files) -> str:
    """Memory, files and logs of an hour of training."""
    from benchmarks.soak.page import markdown

    return per_processor(files("soak"), markdown)


def kills(files: Files) -> str:
    """Where the kills fell, and how the runs ended."""
    from benchmarks.kills.page import markdown

    return per_processor(files("kills"), markdown)


def interval_coverage(files: Files) -> str:
    """How often an interval holds the truth. Simulated, so of a kind on every processor."""
    from benchmarks.interval_coverage import markdown

    result = newest(files("interval-coverage"))
    return NOT_MEASURED if result is None else markdown(result["rows"])


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
    "demo": demo,
    "demo-rates": demo_rates,
    "when-pods-helps": when_pods_helps,
    "interval-coverage": interval_coverage,
    "soak": soak,
    "kills": kills,
}
