"""Which model families of transformers run, and how exactly.

    python -m benchmarks families              all families of the installed transformers, about a minute on one core
    python -m benchmarks families qwen2 gpt2   some of them

`judge.py` says what is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import command
from benchmarks.families.judge import GAP, Verdict, family_names, judge
from benchmarks.timing import Say
from podsrl.errors import UsageError, nearest


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("families", __doc__)
    parser.add_argument("families", nargs="*", help="names; default: all")
    options, others = parser.parse_known_args(arguments)
    if options.families and "--save" in others:
        raise UsageError("--save: wanted all families, got some of them; leave out the names")
    command.measure(parser, arguments, run, lambda result: page(verdicts_of(result)))


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Try the families."""
    import transformers

    known = family_names()
    for name in options.families:
        if name not in known:
            raise UsageError(
                f"family {name!r}: not known to transformers {transformers.__version__}.{nearest(name, known)}"
            )
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    verdicts = []
    for name in options.families or known:
        say(name)
        verdicts.append(asdict(judge(name)))
    return {"transformers": transformers.__version__, "families": verdicts}


def verdicts_of(result: dict[str, Any]) -> list[Verdict]:
    """From a result's JSON."""
    return [Verdict(**each) for each in result["families"]]


def page(verdicts: Sequence[Verdict]) -> str:
    """The tables in Markdown."""
    runs = [each for each in verdicts if each.forward is not None]
    refused = [each for each in verdicts if each.why_refused is not None]
    absent = [each for each in verdicts if each.why_not_built is not None]
    worst = max((max(each.engine_gap or 0, each.update_gap or 0) for each in runs), default=0.0)
    head = (
        "| family | decode step | update | rows of at most | engine, nats | update, nats |\n|---|---|---|--:|--:|--:|\n"
    )
    return (
        f"**{len(runs)} run**; the largest difference of all is {worst:.0e} nats ({GAP:g} would fail the test).\n\n"
        + head
        + "".join(map(row, runs))
        + f"\n**{len(refused)} are refused** when the engine is made:\n\n| family | why |\n|---|---|\n"
        + "".join(map(row, refused))
        + f"\n**{len(absent)} were not built** at these sizes:\n\n| family | why |\n|---|---|\n"
        + "".join(map(row, absent))
        + "\n"
    )


def row(verdict: Verdict) -> str:
    """One line of a table."""
    if verdict.why_not_built is not None:
        return f"| {verdict.family} | {_cell(verdict.why_not_built)} |\n"
    if verdict.why_refused is not None:
        return f"| {verdict.family} | {_cell(_reason(verdict.why_refused))} |\n"
    update = (verdict.update or "").replace("packed rows, prompts shared where that saves tokens", "packed, shared")
    return (
        f"| {verdict.family} | {verdict.forward} | {_cell(update.replace('padded rows', 'padded'))} "
        f"| {_limit(verdict)} | {verdict.engine_gap:.0e} | {verdict.update_gap:.0e} |\n"
    )


def _limit(verdict: Verdict) -> str:
    if verdict.limit is None:
        return "the model's window"
    if "SlidingWindow" in verdict.limit:
        return "its sliding window"
    if "keep_window" in verdict.limit:
        return "keep_window_size"
    return "its original window (longrope)" if "longrope" in verdict.limit else "its local window"


def _reason(message: str) -> str:
    """The part of an error that says why."""
    why = message.partition("by this engine: ")[2] or message.partition(" has ")[2]
    return why.partition(": use ")[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
