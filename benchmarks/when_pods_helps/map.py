"""Where PODS helps: CPU seconds to fixed accuracies by start accuracy, n and m, beside GRPO and GRPO-GA.

    python -m benchmarks when-pods-helps                  all runs that are missing: hours
    python -m benchmarks when-pods-helps --minutes 30     those that fit, by their worth; the same command goes on
    python -m benchmarks when-pods-helps --starts 4% 18%  from these alone: a second process may make the others
    python -m benchmarks when-pods-helps --minutes 0      none: the table of what is there
    python -m benchmarks when-pods-helps --save           also the picture and the tables of docs/when-pods-helps.md
    python -m benchmarks when-pods-helps --quick          one short run of two arms, nothing tuned, about a minute

GRPO trains on all of its m rollouts per question, GRPO-GA on all of its n, PODS on m of n. Each has its own best
learning rate from each start, which is found first on other seeds. All run on one thread, one after the other, and end
once they hold 90 % or have taken three times the seconds of PODS 64 → 16. Only training counts. Finished runs are lines
of a file and are not made again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import command
from benchmarks.timing import Say, titled
from benchmarks.when_pods_helps.cells import Cell, Json, Limits, Log, Run
from benchmarks.when_pods_helps.grid import BLOCKS, QUICK_BLOCKS, STARTS, limits, tuning_runs, wanted
from benchmarks.when_pods_helps.harness import MARKS, Marks, run_cell
from benchmarks.when_pods_helps.summary import summarize
from podsrl.errors import UsageError
from podsrl.lib.time_left import time_text

_RUN_SECONDS = 25.0
"""Of a run, evaluations included, until there is a mean of real ones."""
_QUICK_LIMITS = Limits(accuracy=0.8, cpu_seconds=15.0)


def main(arguments: Sequence[str]) -> None:
    from benchmarks.when_pods_helps.page import publish

    parser = new_run_parser("when-pods-helps", __doc__, quick="two runs to 80 %%, nothing tuned, nothing kept")
    command.measure(parser, arguments, run, publish=publish)


def new_run_parser(
    name: str, doc: str | None, *, quick: str, part: str = "starts", parts: Iterable[str] = STARTS
) -> argparse.ArgumentParser:
    """The options of a benchmark that makes missing runs, all of them or those of some parts."""
    parser = command.new_parser(name, doc)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--minutes", type=float, help="begin no run that would end later; default: no limit")
    parser.add_argument(f"--{part}", nargs="+", choices=parts, help="make runs of these alone; default: of all")
    parser.add_argument("--out", type=Path, help=f"folder of finished runs; default: runs/{name}")
    return parser


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are."""
    folder = options.out or command.ROOT / "runs" / "when-pods-helps"
    if options.quick:
        log, tuning = Log(None), Log(None)
        for cell in wanted(QUICK_BLOCKS):
            run_cell(cell, _QUICK_LIMITS, log, titled(say, cell.arm))
        return {"quick": True, **summarize(wanted(QUICK_BLOCKS), log, tuning)}
    log, tuning = Log(folder / "runs.jsonl"), Log(folder / "tuning.jsonl")
    cells = wanted(BLOCKS)
    own = [cell for cell in cells if cell.start in (options.starts or STARTS)]
    make_missing(lambda: next_runs(own, log, tuning), options.minutes, say)
    log, tuning = Log(log.file), Log(tuning.file)  # also what another process with other starts has made meanwhile
    return {"quick": False, **summarize(cells, log, tuning)}


def make_missing(
    next_run: Callable[[], tuple[Run, Limits, Log, int] | None],
    minutes: float | None,
    say: Say,
    marks: Marks = MARKS,
) -> None:
    """Run what the logs do not hold as long as there is time: `next_run` says what, as `next_runs` does.

    Raises:
        UsageError: minutes below 0.
    """
    if minutes is not None and minutes < 0:
        raise UsageError(f"--minutes = {minutes:g}: wanted at least 0")
    start, num_made = time.monotonic(), 0
    while (missing := next_run()) is not None:
        cell, bounds, target, num_missing = missing
        elapsed = time.monotonic() - start
        each = elapsed / num_made if num_made else _RUN_SECONDS
        if minutes is not None and elapsed + each > 60 * minutes:
            break
        title = f"{num_missing} runs to go, about {time_text(num_missing * each)}: {cell.title}"
        run_cell(cell, bounds, target, titled(say, title), marks)
        num_made += 1


def next_runs(cells: Sequence[Cell], log: Log, tuning: Log) -> tuple[Cell, Limits, Log, int] | None:
    """The next run, its limits, the log that it goes to, and how many of the cells are missing; None: none is."""
    left = [cell for cell in cells if not is_there(cell, log, tuning)]
    if not left:
        return None
    rate, tuning_run = tuning_runs(left[0], tuning)
    if tuning_run is not None:
        return *tuning_run, tuning, len(left)
    cell = left[0].at(rate)
    return cell, limits(cell, log, tuning), log, len(left)


def is_there(cell: Cell, log: Log, tuning: Log) -> bool:
    """Whether the cell is finished, at the rate that is its arm's best."""
    rate, tuning_run = tuning_runs(cell, tuning)
    return tuning_run is None and log.holds(cell.at(rate), limits(cell.at(rate), log, tuning))
