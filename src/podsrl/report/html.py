"""One self-contained HTML page of runs and comparisons: figures, checks, token ledger, and every recorded rollout.

The page loads nothing, works without JavaScript, and treats everything that a model wrote as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from podsrl.compare.costs import COSTS, NO_PRICES
from podsrl.errors import UsageError
from podsrl.report import facts, numbers
from podsrl.report.comparison import Comparison, is_comparison, read_comparison
from podsrl.report.figures.bars import mean_stages, shown_fates, token_ledger
from podsrl.report.figures.compare import comparison_figure, headline
from podsrl.report.figures.costs import cost_figure, needed_figure
from podsrl.report.figures.run import run_figures
from podsrl.report.figures.svg import COLOR_VARIABLES, inline_svg
from podsrl.report.figures.theme import arm_colors
from podsrl.report.page import render_page, write_page
from podsrl.report.read import Run, read_run
from podsrl.report.standing import live_state
from podsrl.run.group_log import RecordedGroup
from podsrl.run.health import check_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A run as the page shows it."""

    label: str
    """Runs of one label share a colour: the arm of a comparison, or the run's own name."""
    name: str
    """Unique in the page."""
    run: Run
    groups: tuple[RecordedGroup, ...]
    """Those of the run's recorded groups that the page has room for."""


def write_report(runs: Sequence[Path | str], out: Path | str, *, max_groups: int = 60) -> Path:
    """Write one HTML file about runs and comparisons, laid over each other.

    Args:
        runs: folders that `pods train` or `pods compare` wrote, at least one; a comparison brings its own runs.
        out: the file to write; missing folders above it are made, an older file is replaced at once.
        max_groups: recorded groups in the page, at least 1, shared evenly by the runs; the page says what is left out.

    Raises:
        UsageError: no folder, one given twice, one that is no run, an `out` that is a folder, max_groups under 1.

    Example:
        >>> write_report([], "report.html")
        Traceback (most recent call last):
        podsrl.errors.UsageError: runs is empty; give at least one folder of `pods train` or `pods compare`
    """
    folders, target = [Path(run) for run in runs], Path(out)
    check_folders(folders, target)
    if max_groups < 1:
        raise UsageError(f"max_groups = {max_groups}; show at least 1")
    write_page(target, render_report(folders, max_groups=max_groups))
    return target


def render_report(folders: Sequence[Path], *, max_groups: int = 60, is_live: bool = False) -> str:
    """Draw the page of `write_report`; a live one says how far its runs are, and loads itself again."""
    comparisons = [read_comparison(folder) for folder in folders if is_comparison(folder)]
    single = [read_run(folder) for folder in folders if not is_comparison(folder)]
    return _render(comparisons, _name_runs(comparisons, single, max_groups), is_live)


def check_folders(folders: Sequence[Path], out: Path) -> None:
    """Raise UsageError where there is no folder, one is given twice, or the file to write is a folder."""
    if not folders:
        raise UsageError("runs is empty; give at least one folder of `pods train` or `pods compare`")
    resolved = [folder.resolve() for folder in folders]
    twice = [folder for folder, real in zip(folders, resolved, strict=True) if resolved.count(real) > 1]
    if twice:
        raise UsageError(f"{twice[0]} is given twice; give each folder once")
    if out.is_dir():
        raise UsageError(f"{out} is a folder; give the file to write, for example {out / 'report.html'}")


def _name_runs(comparisons: Sequence[Comparison], single: Sequence[Run], max_groups: int) -> list[Shown]:
    pairs = [(label, f"{label} · seed {seed}", run) for label, seed, run in _arms(comparisons)]
    pairs += [(name, name, run) for name, run in zip(_folder_names(single, pairs), single, strict=True)]
    room = max(1, max_groups // len(pairs))
    return [Shown(label=label, name=name, run=run, groups=_spread_out(run.groups, room)) for label, name, run in pairs]


def _folder_names(runs: Sequence[Run], taken: Sequence[tuple[str, str, Run]]) -> list[str]:
    """Each run's folder, with as many of the folders above it as tell all runs and arms apart."""
    labels = [label for label, _, _ in taken]
    parts = [run.path.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len({*names, *labels}) == len(names) + len({*labels}):
            return names
    return [str(run.path.resolve()) for run in runs]


def _arms(comparisons: Sequence[Comparison]) -> list[tuple[str, int, Run]]:
    """(label, seed, run) of every run of every comparison; with several comparisons the label says which."""
    found = []
    for comparison in comparisons:
        for arm, runs in comparison.runs.items():
            label = arm if len(comparisons) == 1 else f"{comparison.path.name}: {arm}"
            found += [(label, seed, run) for seed, run in zip(comparison.seeds[arm], runs, strict=True)]
    return found


def _spread_out(groups: Sequence[RecordedGroup], room: int) -> tuple[RecordedGroup, ...]:
    """At most `room` groups, evenly over the run, the first and the last among them."""
    if len(groups) <= room:
        return tuple(groups)
    return tuple(groups[i] for i in np.linspace(0, len(groups) - 1, room).round().astype(int).tolist())


def _render(comparisons: Sequence[Comparison], shown: Sequence[Shown], is_live: bool) -> str:
    by_label: dict[str, list[Run]] = {}
    for item in shown:
        by_label.setdefault(item.label, []).append(item.run)
    ledgers = {label: token_ledger(group) for label, group in by_label.items()}
    baseline = comparisons[0].baseline if len(comparisons) == 1 else None
    figures = run_figures(by_label, baseline=baseline)
    colors = arm_colors(list(by_label), baseline)
    return render_page(
        "template.html.j2",
        live=live_state([item.run for item in shown]) if is_live else None,
        title=", ".join(by_label),
        comparisons=[(c, _comparison_svg(c, i), _cost_svgs(c, i)) for i, c in enumerate(comparisons)],
        shown=shown,
        legend=[(label, COLOR_VARIABLES[color]) for label, color in colors.items()],
        figures={
            name: inline_svg(figure, name.replace("_", "-"), name.replace("_", " ")) for name, figure in figures.items()
        },
        stages={label: mean_stages(group) for label, group in by_label.items()},
        ledgers=ledgers,
        fates=shown_fates(ledgers),
        checks={item.name: check_run(item.run) for item in shown},
        costs=COSTS,
        no_prices=NO_PRICES,
        facts=facts,
        numbers=numbers,
    )


def _comparison_svg(comparison: Comparison, index: int) -> Markup:
    return inline_svg(comparison_figure(comparison), f"comparison-{index}", headline(comparison).text)


def _cost_svgs(comparison: Comparison, index: int) -> tuple[Markup, dict[str, Markup]] | None:
    """What each arm needed, and accuracy per cost; None where the comparison does not say what was spent."""
    if not comparison.costs:
        return None
    needed = inline_svg(needed_figure(comparison), f"needed-{index}", "cost over the baseline's by arm and cost")
    return needed, {
        cost: inline_svg(cost_figure(comparison, cost), f"{cost}-{index}", f"held-out accuracy against {COSTS[cost]}")
        for cost in comparison.costs
    }
