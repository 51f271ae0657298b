"""Where PODS helps: CPU seconds to fixed accuracies by start accuracy, n and m, beside GRPO and GRPO-GA.

    python -m benchmarks when-pods-helps                  all runs that are missing: hours
    python -m benchmarks when-pods-helps --minutes 30     those that fit, by their worth; the same command goes on
    python -m benchmarks when-pods-helps --starts 4% 18%  from these alone: a second process may make the others
    python -m benchmarks when-pods-helps --minutes 0      none: the table of what is there
    python -m benchmarks when-pods-helps --save           also the picture and the tables of docs/measurements.md
    python -m benchmarks when-pods-helps --quick          one short run of two arms, nothing tuned, about a minute

GRPO trains on all of its m rollouts per question, GRPO-GA on all of its n, PODS on m of n. Each has its own best
learning rate from each start, which is found first on other seeds. All run on one thread, one after the other, and end
once they hold 90 % or have taken three times the seconds of PODS 64 → 16. Only training counts. Finished runs are lines
of a file and are not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks import command, runs
from benchmarks.paired import Json
from benchmarks.runs import Limits
from benchmarks.timing import Say
from benchmarks.when_pods_helps.grid import BLOCKS, QUICK_BLOCKS, STARTS, plan_of, wanted
from benchmarks.when_pods_helps.summary import summarize

_QUICK_LIMITS = Limits(accuracy=0.8, cpu_seconds=15.0)


def main(arguments: Sequence[str]) -> None:
    from benchmarks.when_pods_helps.page import publish

    parser = runs.new_parser(
        "when-pods-helps", __doc__, quick="two runs to 80 %%, nothing tuned, nothing kept", parts=STARTS
    )
    command.measure(parser, arguments, run, publish=publish)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are."""
    cells = wanted(QUICK_BLOCKS if options.quick else BLOCKS)
    records, tuning = runs.make(
        plan_of(cells),
        "when-pods-helps",
        options,
        say,
        dict.fromkeys(wanted(QUICK_BLOCKS), _QUICK_LIMITS),
        of=lambda cell: cell.start in (options.starts or STARTS),
    )
    return {"quick": options.quick, **summarize(cells, records, tuning)}
