"""What is shown of a result: a table in the terminal, a table in docs/benchmarks.md, and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import command
from benchmarks.trl_accuracy.times import TARGETS, ratio_text, seconds_text, steps_text

PICTURE = command.ROOT / "docs" / "images" / "trl-accuracy.svg"
Json = dict[str, Any]


def rows(result: Json, clock: str = "seconds") -> Iterator[list[str]]:
    """Head and body of the table: seconds to each target, and the ratios at the highest."""
    found, top = result["clocks"][clock], f"{TARGETS[-1]:g}"
    yield [
        "arm",
        "rate",
        *(f"seconds to {100 * target:g} %" for target in TARGETS),
        f"steps to {100 * TARGETS[-1]:g} %",
        f"seconds of “{result['peer']}” over this arm's",
        f"this arm's over those of “{result['ours']}”",
    ]
    for arm, facts in result["arms"].items():
        times = (seconds_text(found[f"{each:g}"]["seconds"][arm], found["trained"][arm]) for each in TARGETS)
        both = (ratio_text(found[top][key][arm]) for key in ("sooner", "slower"))
        yield [arm, f"{facts['lr']:g}", *times, steps_text(found[top]["steps"][arm]), *both]


def markdown(result: Json) -> str:
    """For the page, with the peer's ratio by processor seconds, too."""
    head, *body = rows(result)
    of_cpu = [cells[-2] for cells in rows(result, "cpu_seconds")][1:]
    lines = [[*head[:-1], "the same by CPU seconds", head[-1]], ["---"] * (len(head) + 1)]
    lines += [[*cells[:-1], cpu, cells[-1]] for cells, cpu in zip(body, of_cpu, strict=True)]
    shown = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{shown}\n\n{_title(result)}; {_spread_note(result)}.\n"


def publish(result: Json) -> None:
    """Draw the picture."""
    from benchmarks.trl_accuracy.picture import draw
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)


def _title(result: Json) -> str:
    return (
        f"Training seconds to an accuracy on {result['questions']} held-out questions; ratios at "
        f"{100 * TARGETS[-1]:g} %; each arm is evaluated every {result['every']:g} s of its training"
    )


def _spread_note(result: Json) -> str:
    seeds = f"{result['seeds']} paired seeds" if result["seeds"] > 1 else "one seed"
    spread = "median (lowest … highest), ratios within a seed; " if result["seeds"] > 1 else ""
    return f"{spread}{seeds}, TRL {result['trl']}, machine's load {max(result['load']):.1f} at most"
