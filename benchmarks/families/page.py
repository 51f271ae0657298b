"""Which model families run, and how exactly: writes results/families.json and the tables of docs/families.md.

    python benchmarks/families.py              all families of the installed transformers, about a minute on one core
    python benchmarks/families.py qwen2 gpt2   some of them, printed only

What is measured is in podsrl/bench/families.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import transformers

from benchmarks.families.judge import GAP, Verdict, family_names, judge
from podsrl.lib.machine import hardware_line

RESULTS = Path(__file__).parents[1] / "results" / "families.json"
PAGE = Path(__file__).parents[2] / "docs" / "families.md"
BEGIN, END = "<!-- tables: python benchmarks/families.py -->\n", "<!-- end of the tables -->\n"


def main(options: argparse.Namespace) -> None:
    """Try families, and write what came out where all were tried."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    verdicts = []
    for name in options.families or family_names():
        verdicts.append(judge(name))
        print(row(verdicts[-1]), flush=True)
    if options.families:
        return
    setting = {"hardware": hardware_line(), "transformers": transformers.__version__}
    RESULTS.write_text(json.dumps({**setting, "families": [asdict(each) for each in verdicts]}, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + page(verdicts, **setting) + END + rest.partition(END)[2])


def page(verdicts: Sequence[Verdict], hardware: str, transformers: str) -> str:
    """The tables in Markdown."""
    runs = [each for each in verdicts if each.forward is not None]
    refused = [each for each in verdicts if each.why_refused is not None]
    absent = [each for each in verdicts if each.why_not_built is not None]
    worst = max(max(each.engine_gap or 0, each.update_gap or 0) for each in runs)
    head = (
        "| family | decode step | update | rows of at most | engine, nats | update, nats |\n|---|---|---|--:|--:|--:|\n"
    )
    return (
        f"\ntransformers {transformers}; {hardware}.\n\n"
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
    return "keep_window_size" if "keep_window" in verdict.limit else _named(verdict.limit)


def _named(limit: str) -> str:
    return "its original window (longrope)" if "longrope" in limit else "its local window"


def _reason(message: str) -> str:
    """The part of an error that says why."""
    why = message.partition("by this engine: ")[2] or message.partition(" has ")[2]
    return why.partition(": use ")[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="names; default: all")
    main(parser.parse_args())
