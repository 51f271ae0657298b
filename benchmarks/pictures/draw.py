"""The ten drawings: 5 inches wide, so that their smallest text has 9 pixels on a phone that shows 360."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from podsrl.report.figures import theme
from podsrl.update import group_advantages

Json = dict[str, Any]
WIDTH = 5.0
CORRECT, WRONG, GREY = theme.SERIES[0], theme.SERIES[1], "#9a9a9a"  # the colour-blind tell them apart
COLUMNS = 8
WAYS = ("worked out,\ncorrect", "worked out,\nwrong", "guessed,\ncorrect", "guessed,\nwrong")


def question(shown: Json) -> Figure:
    """The prompt, and the first answer of each way to answer."""
    figure = theme.new_figure(WIDTH, 2.6)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set(xlim=(0, 10), ylim=(0, 5))
    box = {"boxstyle": "round,pad=0.5", "linewidth": 1.2, "facecolor": "none"}
    axes.text(0.2, 4.5, shown["prompt"], fontsize=11, weight="bold", color=theme.INK, bbox={**box, "ec": theme.INK})
    firsts = {way: i for i, way in reversed([*enumerate(ways(shown))])}
    for row, (way, i) in enumerate(sorted(firsts.items())):
        y = 3.2 - 0.95 * row
        [color] = _colors(shown, [i])
        axes.annotate("", (1.1, y), (0.5, 4.0), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.2})
        axes.text(1.4, y, shown["texts"][i], fontsize=10, va="center", color=theme.INK, bbox={**box, "ec": color})
        axes.text(10, y, WAYS[way].replace("\n", " "), fontsize=9, va="center", ha="right", color=theme.MUTED)
    return figure


def answers(shown: Json) -> Figure:
    """What each answer says, in the order of generation."""
    figure = theme.new_figure(WIDTH, 3.0)
    axes = figure.subplots()
    said = [text.partition("Answer: ")[2].removesuffix(".") for text in shown["texts"]]
    _cells(axes, said, [GREY] * len(said))
    return figure


def rewards(shown: Json) -> Figure:
    """The same answers with their rewards."""
    figure = theme.new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    _cells(axes, [f"{reward:g}" for reward in shown["rewards"]], _colors(shown, range(len(shown["rewards"]))))
    theme.write_key(axes, {"correct": CORRECT, "wrong": WRONG}, 2)
    return figure


def sort(shown: Json) -> Figure:
    """Rewards by rank."""
    figure = theme.new_figure(WIDTH, 2.2)
    _stairs(figure.subplots(), shown, range(len(shown["rewards"])))
    return figure


def split(shown: Json) -> Figure:
    """What is kept, and the variance of every split."""
    figure = theme.new_figure(WIDTH, 4.2)
    upper, lower = figure.subplots(2, 1)
    _stairs(upper, shown, shown["kept"])
    variances = split_variances(shown["rewards"], len(shown["kept"]))
    lower.bar(range(len(variances)), variances, color=GREY)
    best = best_split(shown)
    lower.bar(best, variances[best], color=theme.SERIES[2])
    theme.style(lower, "Variance of the kept rewards", x_label="k, how many are kept from the top")
    lower.set_xticks(range(0, len(variances), 4))
    return figure


def advantages(shown: Json) -> Figure:
    """Advantages of the kept answers, by reward."""
    figure = theme.new_figure(WIDTH, 2.6)
    axes = figure.subplots()
    order = [i for i in _order(shown) if i in shown["kept"]]
    values = kept_advantages(shown)
    axes.bar(range(len(order)), [values[i] for i in order], color=_colors(shown, order))
    axes.axhline(0, color=theme.INK, linewidth=1)
    theme.style(axes, "Advantage", x_label="kept answers, by reward")
    axes.set_xticks([])
    return figure


def update(shown: Json) -> Figure:
    """How many times more probable the update made each answer, by the way in which it was found."""
    figure = theme.new_figure(WIDTH, 3.0)
    axes = figure.subplots()
    found = ways(shown)
    for way in range(len(WAYS)):
        own = sorted((i for i, each in enumerate(found) if each == way), key=lambda i: i in shown["kept"])
        heights = np.linspace(-way - 0.3, -way + 0.3, len(own)).tolist()
        _dots(axes, [factor(shown, i) for i in own], heights, shown, own, size=26)
    _times_axis(axes, [0.5, 0.7, 1, 1.5, 2, 3, 5], "less probable ←", "→ more probable")
    axes.set_yticks([-way for way in range(len(WAYS))], WAYS)
    theme.style(axes, "", x_label="probability after the update, times that before")
    axes.grid(visible=False)
    return figure


def ends(result: Json) -> Figure:
    """A group with one correct answer, and one with one wrong answer."""
    figure = theme.new_figure(WIDTH, 3.6)
    for axes, group in zip(figure.subplots(2, 1), (result["rare"], result["common"]), strict=True):
        order = _order(group)
        columns, rows = [place % 16 for place in range(len(order))], [-(place // 16) for place in range(len(order))]
        _dots(axes, columns, rows, group, order, size=70)
        found = kept_advantages(group).values()
        title = f"{sum(group['correct'])} of {len(order)} correct: advantages {max(found):+.2f} and {min(found):+.2f}"
        axes.set_title(title.replace("-", "−"), loc="left", fontsize=10, color=theme.INK)
        axes.set(xlim=(-0.7, 15.7), ylim=(-3.7, 0.7))
        axes.set_axis_off()
    return figure


def costs(demo: Json) -> Figure:
    """Seconds of a step by stage, where 16 of 16, 16 of 64 and 64 of 64 answers are trained on."""
    figure = theme.new_figure(WIDTH, 2.2)
    axes = figure.subplots()
    arms = {"grpo": "GRPO\n16 of 16", "pods": "PODS\n16 of 64", "grpo_ga": "GRPO\n64 of 64"}
    colors = {stage: theme.STAGE_COLORS[stage] for stage in ("generate", "update", "other")}
    for row, arm in enumerate(arms):
        left = 0.0
        for stage, seconds in stages(demo, arm).items():
            axes.barh(-row, seconds, left=left, color=colors[stage], height=0.6)
            left += seconds
        axes.annotate(
            f"{left:.2f} s", (left, -row), (4, 0), textcoords="offset points", va="center", fontsize=10, color=theme.INK
        )
    theme.style(axes, "")
    axes.set_yticks([-row for row in range(len(arms))], list(arms.values()))
    axes.set_ylabel("trained", fontsize=9, color=theme.MUTED)
    theme.write_key(axes, colors, 3)
    axes.margins(x=0.16)
    axes.grid(visible=False)
    axes.set_xticks([])
    return figure


def limits(found: Json) -> Figure:
    """How many times sooner PODS 64 → 16 is than GRPO 16 → 16, by start accuracy, with 95 % intervals."""
    figure = theme.new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    starts = list(dict.fromkeys(row["start"] for row in found["rows"] if row["digits"] == 2))
    colors = {"with a KL penalty": theme.SERIES[0], "without": theme.SERIES[1]}
    for kl, color, shift in zip((0.04, 0.0), colors.values(), (0.14, -0.14), strict=True):
        for place, start in enumerate(starts):
            over, y = speedup(found, start, kl), shift - place
            axes.plot([over["interval"][end] for end in ("low", "high")], [y, y], color=color, linewidth=2)
            axes.plot(over["ratio"], y, color=color, marker="o", markersize=6)
    _times_axis(axes, [0.25, 0.5, 1, 2], "PODS later ←", "→ PODS sooner")
    theme.style(axes, "", x_label="how many times sooner than GRPO 16 → 16")
    axes.set_yticks([-place for place in range(len(starts))], [start.replace("%", " %") for start in starts])
    axes.set_ylabel("correct at the start", fontsize=9, color=theme.MUTED)
    theme.write_key(axes, colors, 2)
    axes.grid(visible=False)
    return figure


# --- numbers of the drawings and of the page ---


def ways(group: Json) -> list[int]:
    """The way in which each answer was found, as a place in `WAYS`."""
    pairs = zip(group["texts"], group["correct"], strict=True)
    return [2 * ("=" not in text) + (not is_correct) for text, is_correct in pairs]


def factor(group: Json, place: int) -> float:
    """Probability of an answer after the update, over that before it."""
    return float(torch.tensor(group["after"][place] - group["before"][place], dtype=torch.float64).exp())


def kept_advantages(group: Json) -> dict[int, float]:
    """Index of each kept answer -> its advantage."""
    rewards = torch.tensor([group["rewards"][i] for i in group["kept"]], dtype=torch.float64)
    return dict(zip(group["kept"], group_advantages(rewards).tolist(), strict=True))


def split_variances(rewards: Sequence[float], num_kept: int) -> list[float]:
    """Variances of the k highest and num_kept - k lowest rewards, for k = 0 .. num_kept.

    Example:
        >>> split_variances([0.0, 0.0, 1.0], 2)
        [0.0, 0.25, 0.25]
    """
    ordered = torch.tensor(sorted(rewards), dtype=torch.float64)
    kept = [torch.cat([ordered[: num_kept - k], ordered[len(ordered) - k :]]) for k in range(num_kept + 1)]
    return [round(float(each.var(correction=0)), 6) for each in kept]


def best_split(group: Json) -> int:
    """How many of the highest rewards the split with the largest variance has; of equal ones, the most even."""
    m = len(group["kept"])
    variances = split_variances(group["rewards"], m)
    return max(range(m + 1), key=lambda k: (variances[k], -abs(2 * k - m)))


def stages(demo: Json, arm: str) -> dict[str, float]:
    """Seconds of a step: generation, update, and all else."""
    seconds = demo["stage_seconds"][arm]
    named = {stage: seconds[stage] for stage in ("generate", "update")}
    return {**named, "other": sum(seconds.values()) - sum(named.values())}


def speedup(found: Json, start: str, kl: float) -> Json:
    """Of PODS 64 → 16 over GRPO 16 → 16 on two-digit sums, to 90 % correct by CPU seconds."""
    wanted = (2, start, kl, "PODS 64 → 16")
    [over] = [
        arm["over_grpo"]["0.9"]["cpu_seconds"]
        for row in found["rows"]
        for arm in row["arms"]
        if (row["digits"], row["start"], row["kl"], arm["arm"]) == wanted
    ]
    return dict(over)


# --- parts of the drawings ---


def _order(group: Json) -> list[int]:
    """Answers by reward, equal ones by index."""
    return sorted(range(len(group["rewards"])), key=lambda i: (group["rewards"][i], i))


def _colors(group: Json, places: Sequence[int]) -> list[str]:
    return [CORRECT if group["correct"][i] else WRONG for i in places]


def _cells(axes: Axes, texts: Sequence[str], colors: Sequence[str]) -> None:
    """A cell per answer; that of a correct one is filled."""
    for i, (text, color) in enumerate(zip(texts, colors, strict=True)):
        x, y, is_full = i % COLUMNS, -(i // COLUMNS), color == CORRECT
        face = color if is_full else "none"
        axes.add_patch(Rectangle((x - 0.45, y - 0.42), 0.9, 0.84, facecolor=face, edgecolor=color, linewidth=1.2))
        axes.text(x, y, text, fontsize=10, ha="center", va="center", color=theme.PAPER if is_full else theme.INK)
    axes.set(xlim=(-0.5, COLUMNS - 0.5), ylim=(0.5 - len(texts) / COLUMNS, 0.5))
    axes.set_axis_off()


def _stairs(axes: Axes, group: Json, kept: Sequence[int]) -> None:
    order = _order(group)
    _dots(axes, range(1, len(order) + 1), [group["rewards"][i] for i in order], {**group, "kept": kept}, order, size=30)
    theme.style(axes, "", x_label="rank of the answer, by reward")
    axes.set_ylabel("reward", fontsize=9, color=theme.MUTED)
    axes.set_xticks([1, *range(16, len(order) + 1, 16)])
    axes.set_yticks([0, 0.5, 1])
    axes.margins(y=0.15)


def _dots(
    axes: Axes, x: Sequence[float], y: Sequence[float], group: Json, places: Sequence[int], *, size: float
) -> None:
    """A dot per answer; full ones are kept."""
    colors = _colors(group, places)
    faces = [color if i in group["kept"] else theme.PAPER for i, color in zip(places, colors, strict=True)]
    axes.scatter(x, y, s=size, facecolors=faces, edgecolors=colors, linewidths=1.2, clip_on=False, zorder=3)


def _times_axis(axes: Axes, ticks: Sequence[float], less: str, more: str) -> None:
    """Ratios on the x axis, and above what is drawn what they mean on both sides of 1."""
    axes.axvline(1, color=theme.INK, linewidth=1)
    axes.set_ylim(top=0.8)
    for text, side, shift in ((less, "right", -5), (more, "left", 5)):
        axes.annotate(
            text, (1, 0.6), (shift, 0), textcoords="offset points", ha=side, va="center", fontsize=9, color=theme.MUTED
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
