"""A reproduction beside the paper it reproduces: our curves over the paper's, and both results in one table.

Ours come from a folder of `python -m benchmarks reproduce`, whose `reproduce.json` names the setting. The paper's
aggregated results are in curves.json (arXiv 2504.13818, from the raw results that its authors published).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from podsrl.compare.curves import curves_on_grid
from podsrl.compare.interval import SpeedupInterval
from podsrl.config.bounds import kept_of
from podsrl.errors import UsageError, nearest
from podsrl.report.figures import theme
from podsrl.report.figures.accuracy import band_half_width
from podsrl.report.numbers import duration
from podsrl.report.read import Comparison, read_comparison

Array = npt.NDArray[np.float64]
PODS_ARM = "pods"
_NORMAL_95 = 1.96
_COMPARABLE = 3.0
"""Training times that differ by more than this factor are drawn as shares of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperArm:
    """One arm of the paper, mean over its runs."""

    name: str
    num_rollouts: int
    num_kept: int
    seconds: Array
    """[C] training seconds of its checkpoints; empty where the paper's curve is not at hand."""
    accuracy: Array
    """[C] 0 .. 1."""
    sem: Array
    """[C] standard error over runs."""
    seconds_per_step: float
    speedup: float
    """At 99 % of the baseline's best accuracy; 1 for the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSetting:
    """One setting of the paper: its baseline and PODS."""

    name: str
    model: str
    dataset: str
    start_accuracy: float | None
    baseline: PaperArm
    pods: PaperArm


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An arm of a reproduction, ours and the paper's; None where not known, or for a speed-up: not reached."""

    arm: str
    num_rollouts: tuple[int, int]
    """Ours, the paper's."""
    num_kept: tuple[int, int]
    accuracy: tuple[float, float | None]
    """At the end of training."""
    seconds_per_step: tuple[float, float]
    speedup: tuple[SpeedupInterval, float]
    num_seeds: int
    """Ours."""


def paper_setting(name: str) -> PaperSetting:
    """A setting's results in the paper; `name` is "a" .. "e".

    Raises:
        UsageError: another name.

    Example:
        >>> paper_setting("a").pods.speedup
        2.0
    """
    data = json.loads(Path(__file__).with_name("curves.json").read_text())
    rows = [row for row in data["rows"] if row["setting"] == name and row["is_setting"]]
    if not rows:
        raise UsageError(f"setting {name!r}.{nearest(name, {row['setting'] for row in data['rows']})}")
    baseline, pods = sorted(rows, key=lambda row: row["rule"] is not None)
    return PaperSetting(
        name=name,
        model=baseline["model"],
        dataset=baseline["dataset"],
        start_accuracy=baseline["start_accuracy"],
        baseline=_arm(baseline),
        pods=_arm(pods),
    )


def reproduced_setting(folder: Path) -> PaperSetting:
    """The setting that a compare folder reproduces; UsageError for any other folder."""
    file = folder / "reproduce.json"
    if not file.is_file():
        raise UsageError(f"{folder} has no reproduce.json; give a folder of `python -m benchmarks reproduce`")
    try:
        return paper_setting(str(json.loads(file.read_text())["setting"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} does not name a setting ({error}); run `python -m benchmarks reproduce`") from None


def rows_beside_paper(comparison: Comparison, setting: PaperSetting) -> list[Row]:
    """Both arms, ours and the paper's."""
    pairs = ((comparison.baseline, setting.baseline), (PODS_ARM, setting.pods))
    return [_row(comparison, arm, paper) for arm, paper in pairs]


def overlay_figure(folder: Path | str) -> Figure:
    """Draw a reproduction's curves over the paper's, 9 × 4.8 inches.

    Ours: solid steps, with the mean's 95 % interval (Student's t) over seeds. The paper's: dots and dashes, with
    ± 1.96 standard errors. Thin lines: each side's target, 99 % of its own baseline's best accuracy. Where the training
    times differ by more than a factor of 3, time is the share of each side's own.

    Raises:
        UsageError: a folder that is no reproduction.
    """
    comparison, setting = read_comparison(folder), reproduced_setting(Path(folder))
    figure = theme.new_figure(9.0, 4.8)
    _draw_overlay(figure.subplots(), comparison, setting)
    return figure


def _draw_overlay(axes: Axes, comparison: Comparison, setting: PaperSetting) -> None:
    ours, theirs = max(float(grid[-1]) for grid in comparison.grid_seconds.values()), _longest(setting)
    is_share = theirs > 0 and not 1 / _COMPARABLE <= ours / theirs <= _COMPARABLE
    colors = theme.arm_colors([comparison.baseline, PODS_ARM], comparison.baseline)
    ends = _draw_ours(axes, comparison, colors, ours if is_share else 1.0)
    ends |= _draw_theirs(axes, setting, dict(zip(("baseline", "pods"), colors.values(), strict=True)), is_share)
    label = f"share of training time: ours {duration(ours)}, the paper's {duration(theirs)}"
    theme.style(
        axes,
        f"Setting ({setting.name}): {setting.model} on {setting.dataset}{comparison.metric_note}",
        x_label=label if is_share else "training time, evaluation excluded",
        subtitle="solid, ours: mean over seeds, 95 % interval    dashed, the paper's: mean over runs, ± 1.96 standard "
        "errors\nthin lines: each side's target, 99 % of its baseline's best accuracy    beside a name: speed-up",
    )
    theme.percent_axis(axes)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, 0.0), min(top, 1.0))
    if is_share:
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    else:
        axes.set_xlim(0, max(ours, theirs))
        theme.time_axis(axes, max(ours, theirs))
    theme.label_ends(axes, list(ends.values()), gap=0.12)


def _draw_ours(axes: Axes, comparison: Comparison, colors: Mapping[str, str], unit: float) -> dict[str, theme.EndLabel]:
    labels = {}
    for arm, color in colors.items():
        grid = np.union1d([0.0], comparison.grid_seconds[arm])  # from the untrained model on
        curves = curves_on_grid([run.accuracy_curve(comparison.metric) for run in comparison.runs[arm]], grid)
        mean, half = curves.mean(axis=0), band_half_width(curves)
        axes.plot(grid / unit, mean, color=color, linewidth=2.2, drawstyle="steps-post")
        low, high = np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)
        axes.fill_between(grid / unit, low, high, step="post", color=color, alpha=0.16, linewidth=0)
        if arm == comparison.baseline:
            axes.axhline(comparison.fraction * mean[grid > 0].max(), color=color, linewidth=0.9)
        note = "baseline" if arm == comparison.baseline else comparison.speedups[arm].text
        labels[f"ours {arm}"] = theme.EndLabel(y=float(mean[-1]), text=f"{arm}, ours", color=color, note=note)
    return labels


def _draw_theirs(
    axes: Axes, setting: PaperSetting, colors: Mapping[str, str], is_share: bool
) -> dict[str, theme.EndLabel]:
    labels: dict[str, theme.EndLabel] = {}
    unit = _longest(setting) if is_share else 1.0
    for role, arm in (("baseline", setting.baseline), ("pods", setting.pods)):
        if arm.seconds.size == 0:
            continue
        color, times, accuracy, half = colors[role], arm.seconds / unit, arm.accuracy, _NORMAL_95 * arm.sem
        axes.fill_between(times, accuracy - half, accuracy + half, color=color, alpha=0.1, linewidth=0)
        if setting.start_accuracy is not None:  # one number, without an error
            times, accuracy = np.insert(times, 0, 0.0), np.insert(accuracy, 0, setting.start_accuracy)
        axes.plot(times, accuracy, color=color, linewidth=1.4, linestyle=(0, (4, 2)), marker="o", markersize=3)
        if role == "baseline":
            axes.axhline(0.99 * arm.accuracy.max(), color=color, linewidth=0.9, linestyle=(0, (4, 3)))
        note = "baseline" if role == "baseline" else f"{arm.speedup:.2f}×"
        text = f"{arm.name}, the paper's"
        labels[f"paper {role}"] = theme.EndLabel(y=float(arm.accuracy[-1]), text=text, color=color, note=note)
    return labels


def _row(comparison: Comparison, arm: str, paper: PaperArm) -> Row:
    runs = comparison.runs[arm]
    n, m = (runs[0].option(key) for key in ("rollouts.num_rollouts", "select.num_kept"))
    curves = curves_on_grid([run.accuracy_curve(comparison.metric) for run in runs], comparison.grid_seconds[arm])
    seconds = np.concatenate([run.series("seconds/total") for run in runs])
    return Row(
        arm=arm,
        num_rollouts=(int(n), paper.num_rollouts),
        num_kept=(kept_of(m, int(n)), paper.num_kept),
        accuracy=(float(curves[:, -1].mean()), float(paper.accuracy[-1]) if paper.accuracy.size else None),
        seconds_per_step=(float(seconds.mean()), paper.seconds_per_step),
        speedup=(comparison.speedups[arm], paper.speedup),
        num_seeds=len(runs),
    )


def _arm(row: Mapping[str, object]) -> PaperArm:
    numbers = {name: np.array(row[name], dtype=np.float64) for name in ("hours", "accuracy", "sem")}
    return PaperArm(
        name=str(row["arm"]),
        num_rollouts=int(str(row["num_rollouts"])),
        num_kept=int(str(row["num_kept"])),
        seconds=numbers["hours"] * 3600,
        accuracy=numbers["accuracy"],
        sem=numbers["sem"],
        seconds_per_step=float(str(row["seconds_per_step"])),
        speedup=float(str(row["speedup_99"])),
    )


def _longest(setting: PaperSetting) -> float:
    """The last checkpoint of the paper, seconds; 0 where no curve is at hand."""
    ends = [arm.seconds[-1] for arm in (setting.baseline, setting.pods) if arm.seconds.size]
    return float(max(ends, default=0.0))
