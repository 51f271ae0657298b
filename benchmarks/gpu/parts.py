"""What a GPU is for first, part by part, each within its seconds; goes on where it stopped.

    python -m benchmarks gpu                      tests, demo, gsm8k, engine, halves, in this order
    python -m benchmarks gpu --only demo gsm8k    some of them
    python -m benchmarks gpu --seconds 500        all has ended after so many seconds
    python -m benchmarks gpu --quick              a trial on any machine: tiny models, nothing is saved

Each part is a benchmark in a process of its own and saves its result below benchmarks/results/; what it prints goes to
runs/benchmarks/NAME.log. A part that has a result of this commit is left out. One that runs into its limit, or into
`--seconds`, is asked to end, and the same command goes on with what it has kept in runs/benchmarks/. A part that lacks
something (a GPU, a model, data) is skipped with the reason.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import everything, files
from benchmarks.everything import Outcome
from podsrl.errors import PodsError, UsageError


@dataclass(frozen=True, slots=True)
class Part:
    """A benchmark, and how long it may take."""

    benchmark: str
    seconds: float


PARTS: Mapping[str, Part] = {
    "tests": Part("gpu-tests", 240),
    "demo": Part("gpu-demo", 600),
    "gsm8k": Part("gpu-gsm8k", 1500),
    "engine": Part("engine-gpu", 300),
    "halves": Part("halves", 400),
}
ENDING_SECONDS = everything.PATIENCE_SECONDS
"""Of `--seconds`, what is left for a part to save a checkpoint."""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="some of " + ", ".join(PARTS))
    parser.add_argument("--seconds", type=float, help="after which all has ended; default: no limit")
    parser.add_argument("--model", help="model.path of gsm8k: a folder, or package:NAME")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; nothing is saved")
    options = parser.parse_args(arguments)
    if options.seconds is not None and options.seconds <= ENDING_SECONDS:
        raise UsageError(
            f"--seconds {options.seconds:g}: {ENDING_SECONDS:g} of them are for saving what is unfinished; wanted more"
        )
    if not options.quick and (files.commit() is None or files.has_changes()):
        raise UsageError(
            "results name their commit, and this folder has changes that no commit has, or no git: commit them, or "
            f"give the commit in the environment variable {files.COMMIT}; a trial (--quick) needs none"
        )
    outcomes = run_parts([name for name in PARTS if name in (options.only or PARTS)], options)
    for outcome in outcomes:
        print(f"{outcome.name} {outcome.state}: {outcome.why or f'{outcome.minutes:.1f} minutes'}")
    if options.quick:
        print(f"This was a trial at tiny sizes: nothing was saved. What each part printed: {everything.LOGS}/NAME.log")
    if failed := [outcome.name for outcome in outcomes if outcome.state == "failed"]:
        raise PodsError(f"{len(failed)} failed: {', '.join(failed)}; the same command runs them again")


def run_parts(names: Sequence[str], options: argparse.Namespace) -> list[Outcome]:
    """Run parts one after another, each until its limit or until `options.seconds` are nearly over."""
    start, outcomes = time.monotonic(), []
    for number, name in enumerate(names, start=1):
        part = PARTS[name]
        left = (options.seconds or float("inf")) - ENDING_SECONDS - (time.monotonic() - start)
        why = "" if options.quick else everything.why_not(part.benchmark, str(files.commit()), is_quick=False)
        if not why and left <= 0:
            why = "no time is left; the same command runs it"
        if why:
            outcomes.append(Outcome(part.benchmark, "skipped", why=why))
            continue
        words = everything.arguments_of(part.benchmark, is_quick=options.quick, when=str(files.commit()))
        if name == "gsm8k" and options.model:
            words += ["--model", options.model]
        text = f"[{number}/{len(names)}] {name}"
        outcomes.append(everything.run_one(part.benchmark, words, text, seconds=min(part.seconds, left)))
    return outcomes
