"""`pods eval --search`: accuracy against generated tokens, as a table, JSON and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from podsrl.cli.console import check_plot, counted, errors, output, say
from podsrl.cli.progress import bar, waiting
from podsrl.errors import UsageError, nearest
from podsrl.evaluation.search import SEARCHES, STEP_END, STEP_ENDS
from podsrl.evaluation.target import Target

if TYPE_CHECKING:
    from podsrl.evaluation.search.base import Search
    from podsrl.evaluation.search.judge import StepJudge
    from podsrl.evaluation.search.result import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """What the command line says of a search; None: nothing."""

    search: str | None
    judge: str | None
    tokens: int | None
    step_end: str | None
    plot: Path | None

    def check_unused(self) -> None:
        """UsageError: an option that only a search reads, without one."""
        given = {"--judge": self.judge, "--tokens": self.tokens, "--step-end": self.step_end, "--plot": self.plot}
        if unread := [f"{name} {value}" for name, value in given.items() if value is not None]:
            raise UsageError(f"{unread[0]}: only a search reads it; add --search majority, or leave it out")


def evaluate_search(found: Target, flags: SearchFlags, num_questions: int, *, is_json: bool) -> None:
    """Run each search at each width and show what they find; Ctrl-C shows what there is of it.

    Raises:
        UsageError: the flags do not go together, with the config or with the model.
    """
    from podsrl.evaluation.search.judge import StepJudge
    from podsrl.evaluation.search.result import widths

    searches = _checked(flags, found)
    judge = None if flags.judge is None else StepJudge(flags.judge)
    asked = [(name, width) for name in searches for width in widths(found.config.eval.num_samples)]
    points = list[Any]()
    with suppress(KeyboardInterrupt):
        for point in _points(found, flags, num_questions, asked, judge):
            points.append(point)
    _show(points, judge, flags, is_json=is_json)
    if len(points) < len(asked):
        raise KeyboardInterrupt


def _checked(flags: SearchFlags, found: Target) -> dict[str, Search]:
    """The searches by name, which go together with the other flags and the config."""
    assert flags.search is not None
    width, limit = found.config.eval.num_samples, found.config.rollouts.max_new_tokens
    searches = {name: _search(name, width) for name in flags.search.split(",")}
    if width < 2:
        raise UsageError("--search: --samples (eval.num_samples) = 1, and one answer leaves no choice; try --samples 8")
    if flags.tokens is None or flags.tokens < limit:
        got = "there is no --tokens" if flags.tokens is None else f"--tokens {flags.tokens}"
        raise UsageError(
            f"--search {flags.search}: {got}; wanted the most tokens for a question, at least {limit} for one "
            f"answer (rollouts.max_new_tokens): --tokens {width * limit} is enough for {width}"
        )
    judged = [name for name, search in searches.items() if search.is_judged]
    if judged and flags.judge is None:
        raise UsageError(
            f"--search {judged[0]} wants a judge of answers so far, and there is no --judge: 'steps' for the task set "
            "steps, or a function of your own, 'module:function'"
        )
    if flags.judge is not None and not judged:
        raise UsageError(f"--judge {flags.judge}: --search {flags.search} asks no judge: leave it out")
    if flags.step_end is not None and not any(search.is_stepwise for search in searches.values()):
        raise UsageError(f"--step-end {flags.step_end!r}: --search {flags.search} looks at whole answers: leave it out")
    if flags.judge == "steps" and found.config.task.name != "steps":
        raise UsageError(f"--judge steps knows the task set steps alone; task.name = {found.config.task.name!r}")
    check_plot(flags.plot)
    return searches


def _search(name: str, width: int) -> Search:
    if name not in SEARCHES:
        raise UsageError(f"--search {name}: no such search; several are joined by commas.{nearest(name, SEARCHES)}")
    search = SEARCHES[name]
    if search.most is not None and width > search.most:
        raise UsageError(f"--search {name}: --samples (eval.num_samples) = {width}, wanted at most {search.most}")
    return search


def _points(
    found: Target,
    flags: SearchFlags,
    num_questions: int,
    asked: Sequence[tuple[str, int]],
    judge: StepJudge | None,
) -> Iterator[Point]:
    """Run the searches and widths that are asked for, one after another."""
    from podsrl.evaluation.evaluator import Evaluator
    from podsrl.evaluation.search.result import point_of
    from podsrl.evaluation.search.run import run_search

    assert flags.tokens is not None
    step_end = flags.step_end or STEP_ENDS.get(flags.judge or "", STEP_END)
    with waiting("loading"):
        evaluator = Evaluator(found.config, num_questions=num_questions, adapters=found.adapters)
    with evaluator, bar("searching") as advance:
        for warning in evaluator.warnings:
            say(f"warning: {warning}", errors)
        for place, (name, width) in enumerate(asked):
            done, total = (sum(size for _, size in part) for part in (asked[:place], asked))
            advance(done, total, f"{name} with {counted(width, 'answer')}")
            answers = run_search(
                evaluator, SEARCHES[name], width=width, tokens=flags.tokens, judge=judge, step_end=step_end
            )
            yield point_of(name, width, answers)


def _show(points: list[Point], judge: StepJudge | None, flags: SearchFlags, *, is_json: bool) -> None:
    if not points:
        errors.print("no search was done")
        return
    if flags.plot is not None:
        from podsrl.report.figures.search import search_figure

        search_figure(points).savefig(flags.plot)
    if is_json:
        counts = {"num_judged": judge.num_judged, "num_not_judged": len(judge.faults)} if judge else {}
        output.print_json(data={"tokens_bound": flags.tokens, **counts, "points": [each.to_json() for each in points]})
    else:
        output.print(_table(points))
    if judge is not None and judge.faults:
        some = f"{len(judge.faults):,} of {judge.num_judged:,} texts have no score and count as 0"
        say(f"warning: {some}: {judge.faults[0]}", errors)


def _table(points: list[Point]) -> Table:
    table = Table(title=f"{points[0].num_questions:,} questions; generated tokens per question")
    for name in ("search", "answers", "correct", "95 % interval", "tokens", "most", "no answer"):
        table.add_column(name, justify="left" if name == "search" else "right")
    for point in points:
        low, high = point.interval
        tokens = (f"{point.tokens:,.0f}", f"{point.most_tokens:,}")
        ends = f"{100 * low:.0f}–{high:.0%}"
        table.add_row(
            point.search, str(point.width), f"{point.accuracy:.1%}", ends, *tokens, f"{point.num_unanswered:,}"
        )
    return table
