"""What is shown of a soak: a table in the terminal; tables and a picture in docs/long-runs.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import command
from benchmarks.soak.result import FLAT_BYTES

PICTURE = command.ROOT / "docs" / "images" / "soak.svg"
TITLES = {
    ("pods", "main"): "recipe `pods`: trainer",
    ("ahead", "main"): "one step ahead: trainer",
    ("ahead", "generator"): "one step ahead: generator",
    ("ahead", "reward workers"): "one step ahead: reward worker, supervisor",
    ("watch", "main"): "`pods watch` on the recipe's run",
    ("page", "main"): "`pods report --live` on it",
}
MANY_STEPS = 60_000
"""A week of steps of ten seconds."""
Json = dict[str, Any]


def rows(result: Json) -> Iterator[list[str]]:
    """Head and body of the table of processes."""
    yield ["process", "steps", "memory", "per 1,000 steps", "open files", "threads", "processes"]
    for each in result["processes"]:
        yield [
            TITLES.get((each["command"], each["kind"]), f"{each['command']}: {each['kind']}"),
            f"{each['steps']:,.0f}",
            f"{each['rss_after_warm_up'] / 2**20:.1f} → {each['rss_at_the_end'] / 2**20:.1f} MiB",
            f"{each['bytes_per_1000_steps'] / 2**20:+.2f} MiB",
            *(_most(each, what) for what in ("files", "threads", "count")),
        ]


def _most(each: Json, what: str) -> str:
    grows = each[f"{what}_per_1000_steps"]
    return f"{each[f'{what}_most']}" + (f" ({grows:+.1f} per 1,000 steps)" if abs(grows) >= 0.1 else "")


def file_rows(result: Json) -> Iterator[list[str]]:
    """Head and body of the table of logs."""
    yield ["run", "file", "bytes per step", f"of {MANY_STEPS:,} steps"]
    for each in result["files"]:
        size = each["bytes_per_step"]
        title = TITLES[each["command"], "main"].partition(":")[0]
        yield [title, f"`{each['file']}`", f"{size:,.0f}", f"{MANY_STEPS * size / 2**20:,.0f} MiB"]


def markdown(result: Json) -> str:
    """For the page."""
    tables = "\n\n".join(as_markdown(list(each)) for each in (rows(result), file_rows(result)))
    return (
        f"![Memory and logs against steps](images/{PICTURE.name})\n\n{_title(result)}. {_verdict(result)}\n\n{tables}"
        f"\n\n{_end(result)}\n"
    )


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table, its first line the head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body))


def publish(result: Json) -> None:
    """Draw the picture of docs/long-runs.md."""
    from benchmarks.soak.picture import draw
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)


def _title(result: Json) -> str:
    steps = " and ".join(f"{num:,} steps ({run})" for run, num in result["steps"].items())
    return f"{result['minutes']:.0f} minutes, {steps}, the first quarter of the steps is warm-up"


def _verdict(result: Json) -> str:
    grown = [each for each in result["processes"] if each["bytes_per_1000_steps"] >= FLAT_BYTES]
    names = [TITLES.get((each["command"], each["kind"]), each["kind"]) for each in grown]
    flat = f"grows by less than {FLAT_BYTES / 2**20:g} MiB per 1,000 steps"
    return f"Memory of every process {flat}, except of: {', '.join(names)}." if names else f"Memory {flat}."


def _end(result: Json) -> str:
    left = {what.replace("_", " "): len(found) for what, found in result["left"].items()}
    codes = ", ".join(f"{run} {result[run]}" for run in result["steps"])
    again = ", ".join(
        f"{run} in {each['seconds']:.0f} s (exit code {each['code']})" for run, each in result["resumed"].items()
    )
    nothing = ", ".join(f"{num} {what}" for what, num in left.items())
    return (
        f"At most {result['temporary_files']} temporary files and {result['segments']} named segments of shared memory "
        f"at once. Exit codes after Ctrl-C: {codes}. Left behind: {nothing}. "
        f"Resumed, the first new step written: {again}."
    )
