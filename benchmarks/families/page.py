"""Which model families of transformers run, and how exactly.

    python -m benchmarks families              all families of the installed transformers, about a minute on one core
    python -m benchmarks families qwen2 gpt2   some of them

`judge.py` says what is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import command
from benchmarks.families.judge import GAP, Verdict, family_names, judge
from benchmarks.figures.markdown import table, where
from benchmarks.timing import Say
from podsrl.errors import UsageError, nearest


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("families", __doc__)
    parser.add_argument("families", nargs="*", help="names; default: all")
    options, others = parser.parse_known_args(arguments)
    if options.families and "--save" in others:
        raise UsageError("--save: wanted all families, got some of them; leave out the names")
    command.measure(parser, arguments, run)


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


def markdown(result: dict[str, Any]) -> str:
    """The tables of docs/families.md."""
    verdicts = [Verdict(**each) for each in result["families"]]
    return f"transformers {result['transformers']}; {where(result)}.\n\n{page(verdicts)}"


def page(verdicts: Sequence[Verdict]) -> str:
    """What runs, what runs otherwise, and what does not, by reason, in Markdown."""
    runs = [each for each in verdicts if each.forward is not None]
    usual = [each for each in runs if each.limit is None and (each.update or "").startswith("packed")]
    others = [each for each in runs if each not in usual]
    refused = [each for each in verdicts if each.why_refused is not None]
    absent = [each for each in verdicts if each.why_not_built is not None]
    worst = max((max(each.engine_gap or 0, each.update_gap or 0) for each in runs), default=0.0)
    return (
        f"**{len(runs)} run**; the largest difference of all is {worst:.0e} nats ({GAP:g} would fail the test). "
        f"{len(usual)} of them have packed rows, shared prompts and the model's whole window:\n\n"
        f"- with the fast decode step: {_names(each for each in usual if each.forward == 'fast')}\n"
        f"- with the model's own forward: {_names(each for each in usual if each.forward != 'fast')}\n\n"
        f"The other {len(others)}, all with the model's own forward:\n\n"
        + _grouped(("update", "rows of at most"), others, lambda each: (_update(each), _limit(each)))
        + f"\n**{len(refused)} are refused** when the engine is made:\n\n"
        + _grouped(("why",), refused, lambda each: (_reason(each.why_refused or ""),))
        + f"\n**{len(absent)} were not built** at these sizes:\n\n"
        + _grouped(("why",), absent, lambda each: (_obstacle(each.why_not_built or ""),))
    )


def _grouped(head: Sequence[str], verdicts: Sequence[Verdict], key: Callable[[Verdict], tuple[str, ...]]) -> str:
    """A table with a row per key, the most frequent first."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for each in verdicts:
        groups.setdefault(key(each), []).append(each)
    rows = [(*cells, _names(own)) for cells, own in sorted(groups.items(), key=lambda item: -len(item[1]))]
    return table((*head, "families"), rows, num_left=len(head) + 1) + "\n"


def _names(verdicts: Iterable[Verdict]) -> str:
    return ", ".join(f"`{each.family}`" for each in verdicts)


def _update(verdict: Verdict) -> str:
    found = (verdict.update or "").replace("packed rows, prompts shared where that saves tokens", "packed, shared")
    return _short(found.replace("padded rows", "padded"))


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
    return _short(why.partition(": use ")[0])


def _obstacle(message: str) -> str:
    """The kind of reason for which a family was not built."""
    more = "it holds more than a decoder"
    return more if more in message else "its code ends with an error"


def _short(why: str) -> str:
    """Without the numbers and texts of one family."""
    return why.partition(" (")[0]
