"""What is shown of a result: a table and a picture in docs/benchmarks.md."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.paired import Run, over_text, sooner, times_text, times_to
from podsrl.report.figures import theme
from podsrl.report.figures.svg import save_svg

PICTURE = command.ROOT / "docs" / "images" / "trl-accuracy.svg"
TARGETS = (0.5, 0.8, 0.9)
Json = dict[str, Any]


def runs_of(result: Json) -> dict[str, list[Run]]:
    """Arm -> seconds and accuracy of each seed's evaluations."""
    curves = [
        {arm: list(zip(c["seconds"], c["accuracy"], strict=True)) for arm, c in s.items()} for s in result["curves"]
    ]
    return {arm: [each[arm] for each in curves] for arm in result["arms"]}


def markdown(result: Json) -> str:
    """A table of each arm's seconds to the highest target, and of two speed-ups; then a note."""
    runs, top = runs_of(result), TARGETS[-1]
    ours, peer = result["ours"], result["peer"]
    head = ["arm", "rate", f"seconds to {100 * top:g} %, seed by seed"]
    head += [f"has {100 * top:g} % sooner than “{peer}”", f"“{ours}” has it sooner than this arm"]
    slower = sooner(runs, top, ours)
    rows = []
    for arm, facts in result["arms"].items():
        times = times_text([s if is_there else None for s, is_there in times_to(runs, top)[arm]])
        both = (
            "" if arm == peer else over_text(sooner(runs, top, arm)[peer]),
            "" if arm == ours else over_text(slower[arm]),
        )
        rows.append([arm, f"{facts['lr']:g}", times, *both])
    return (
        f"{table(head, rows)}\n\nTraining seconds on {result['questions']} held-out questions, evaluated every "
        f"{result['every']:g} s of an arm's training; {len(result['curves'])} paired seeds, TRL {result['trl']}, "
        f"machine's load {max(result['load']):.1f} at most. How many times sooner: geometric mean, 95 % interval.\n"
    )


def headline(result: Json) -> str:
    """How many times sooner podsrl's PODS has the highest accuracy than TRL."""
    slower = sooner(runs_of(result), TARGETS[-1], result["ours"])
    large, small = (over_text(slower[arm]) for arm in (result["peer"], "TRL, 16 trained"))
    return f"{large} with 64 rollouts per question, {small} with 16"


def publish(result: Json) -> None:
    """Draw the picture."""
    save_svg(draw(result), PICTURE)


def draw(result: Json) -> Figure:
    """Each seed's curve of every arm."""
    runs = runs_of(result)
    colors = theme.arm_colors(list(runs), result["peer"])
    figure = theme.new_figure(9.0, 5.0)
    axes = figure.subplots()
    label = "training seconds (logarithmic), evaluation excluded"
    theme.style(axes, f"Held-out accuracy, {len(result['curves'])} seeds, a line each", x_label=label, key_rows=2)
    theme.write_key(axes, colors, 3)
    for arm, own in runs.items():
        for run in own:
            axes.plot(*zip(*run[1:], strict=True), color=colors[arm], linewidth=1.6, alpha=0.75)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g} s"))
    axes.xaxis.set_minor_locator(LogLocator(subs=()))
    axes.set_ylim(0, 1.02)
    theme.percent_axis(axes)
    axes.axhline(TARGETS[-1], color=theme.INK, linewidth=0.9, linestyle=(0, (4, 3)))
    note = theme.plain(f"{result['hardware']}; TRL {result['trl']}")
    figure.supxlabel(note, x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure
