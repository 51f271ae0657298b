"""How every figure looks: colours, axes, units of time, labels beside their lines.

Colours are hex strings that the HTML page replaces by CSS variables (`svg.py`): one drawing serves light and dark.
Series colours are Okabe and Ito's, bar colours Paul Tol's light scheme: both stay apart for colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, PercentFormatter

from podsrl.errors import cut
from podsrl.lib.stages import FATES, OTHER, SHOWN_STAGES, UNACCOUNTED
from podsrl.report.numbers import compact, duration

INK = "#1f2328"
MUTED = "#656d76"
GRID = "#d8dee4"
PAPER = "#ffffff"
ON_BAR = "#1f2329"
"""Text on a coloured bar: as dark as INK, but dark in both modes, hence another value."""
BASELINE = "#6e7781"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STAGE_COLORS = dict(
    zip(
        (*SHOWN_STAGES, OTHER),
        ("#77aadd", "#bbcc33", "#44bb99", "#ee8866", "#ffaabb", "#dddddd"),
        strict=True,
    )
)
TOKEN_COLORS = dict(
    zip(
        (*FATES, UNACCOUNTED),
        ("#44bb99", "#dddddd", "#eedd88", "#ee8866", "#77aadd", "#ffaabb"),
        strict=True,
    )
)
LONGEST_NAME = 26
"""Characters of a name in a figure."""

_TICK_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLabel:
    """A label beside the right end of a line."""

    y: float
    text: str
    color: str
    note: str = ""
    """A second, quieter line under the text."""


def new_figure(width: float, height: float) -> Figure:
    """Make a figure of so many inches that knows no window and no global state."""
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    return figure


def plain(text: str) -> str:
    """Return text that matplotlib draws as it is: a dollar sign would start a formula."""
    return text.replace("$", r"\$")


def arm_colors(arms: Sequence[str], baseline: str | None = None) -> dict[str, str]:
    """Each arm's colour: the baseline is grey, the others come in a fixed order."""
    others = [arm for arm in arms if arm != baseline]
    colors = {arm: SERIES[i % len(SERIES)] for i, arm in enumerate(others)}
    return {arm: colors.get(arm, BASELINE) for arm in arms}


def style(axes: Axes, title: str, *, x_label: str = "", subtitle: str = "", key_rows: int = 0) -> None:
    """Give axes their title, unit and quiet horizontal grid; `key_rows` leaves lines free under the title."""
    num_lines = key_rows + len(subtitle.splitlines())
    axes.set_title(plain(title), loc="left", fontsize=11, color=INK, weight="bold", pad=10 + 14 * num_lines)
    if subtitle:
        axes.annotate(
            plain(subtitle),
            (0, 1),
            (0, 8),
            xycoords="axes fraction",
            textcoords="offset points",
            va="bottom",
            fontsize=8.5,
            color=MUTED,
            linespacing=1.35,
        )
    axes.set_xlabel(plain(x_label), fontsize=9, color=MUTED)
    axes.tick_params(labelsize=9, labelcolor=MUTED, color=GRID, length=3)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def write_key(axes: Axes, colors: Mapping[str, str], columns: int) -> None:
    """Write each name with its colour between the axes and their title, in so many columns (`style`'s key_rows)."""
    axes.legend(
        handles=[Patch(facecolor=color, label=plain(cut(name, LONGEST_NAME))) for name, color in colors.items()],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=0.9,
        handleheight=0.9,
        handletextpad=0.5,
        columnspacing=1.2,
        borderpad=0.0,
        borderaxespad=0.2,
    )


def percent_axis(axes: Axes) -> None:
    """Write fractions on the y axis as percent, within 0 to 100 %; what is drawn afterwards has to lie there too."""
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), min(high, 1.0))


def step_axis(axes: Axes) -> None:
    """Put ticks at whole steps on the x axis."""
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))


def number_axis(axes: Axes, *, from_zero: bool) -> None:
    """Write each number of the y axis whole, without a common factor or offset; `from_zero` starts it at 0."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    if from_zero:
        axes.set_ylim(bottom=0, top=1.08 * axes.get_ylim()[1] or 1)


def time_axis(axes: Axes, longest: float) -> None:
    """Write seconds on the x axis in the unit that suits the longest, with whole-numbered ticks."""
    step = next((tick for tick in _TICK_SECONDS if longest / tick <= 6.1), 86400 * max(1, round(longest / 86400 / 6)))
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds, longest=longest)))


def label_ends(axes: Axes, labels: Sequence[EndLabel], *, gap: float) -> None:
    """Write labels right of the axes at the height of their lines, pushed apart where they would overlap.

    The axes have their final y limits; `gap` is the smallest distance of two labels, as a fraction of their height.
    """
    bottom, top = axes.get_ylim()
    ordered = sorted(labels, key=lambda label: label.y)
    heights = spread([(label.y - bottom) / (top - bottom) for label in ordered], gap)
    for label, height in zip(ordered, heights, strict=True):
        _write_beside(axes, label, height)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights so that neighbours are at least `gap` apart, as little and as evenly as possible.

    Example:
        >>> [round(height, 2) for height in spread([0.5, 0.5, 0.9], 0.2)]
        [0.4, 0.6, 0.9]
    """
    clusters: list[list[float]] = []
    for height in heights:
        clusters.append([height, 1])
        # A cluster is (centre, members); two that touch become one around their common centre.
        while len(clusters) > 1 and _gap_missing(clusters[-2], clusters[-1], gap):
            (center, count), (next_center, next_count) = clusters[-2:]
            total = count + next_count
            clusters[-2:] = [[(center * count + next_center * next_count) / total, total]]
    return [center + (i - (count - 1) / 2) * gap for center, count in clusters for i in range(int(count))]


def _gap_missing(lower: Sequence[float], upper: Sequence[float], gap: float) -> bool:
    return upper[0] - lower[0] < gap * (lower[1] + upper[1]) / 2 - 1e-9


def _write_beside(axes: Axes, label: EndLabel, height: float) -> None:
    lines = [(cut(label.text, LONGEST_NAME), 5 if label.note else 0, 10.0, label.color, "bold")]
    if label.note:
        lines.append((label.note, -8, 8.5, MUTED, "normal"))
    for text, shift, size, color, weight in lines:
        axes.annotate(
            plain(text),
            (1.0, height),
            (8, shift),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=size,
            color=color,
            weight=weight,
            annotation_clip=False,
        )
