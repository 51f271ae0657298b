"""Rules for answers on 316 labelled texts of real models: how many right ones each loses, how many wrong ones it pays.

    python -m benchmarks judges     half a minute on one core; needs TRL (pip install -c constraints.txt -e '.[trl]')

The texts are in benchmarks/judges/answers.jsonl. A text that the limit cut ("length") may miss its answer's end.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.files import Result
from benchmarks.timing import Say
from podsrl.score import is_correct

ANSWERS = Path(__file__).parent / "answers.jsonl"
Judge = Callable[[dict[str, Any]], bool]
"""From a line of `ANSWERS` to whether it is paid."""
STRICT, FLEXIBLE = re.compile(r"#### (\-?[0-9\.\,]+)"), re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
"""What lm-evaluation-harness looks for in an answer to GSM8K: the first of one, the last of the other."""
IGNORED = re.compile(r",|\$|(?s:.*)#### |\.$")
"""What it leaves out of both sides before it compares them."""


def main(arguments: Sequence[str]) -> None:
    command.measure(command.new_parser("judges", __doc__), arguments, run)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Judge all texts by all rules."""
    rows, judges = labelled(), {**JUDGES, "TRL `accuracy_reward`": _by_trl()}
    found = {}
    for name, judge in judges.items():
        say(name)
        found[name] = verdicts(rows, judge)
    cut = [place for place, row in enumerate(rows) if row["finish"] == "length"]
    return {"num_rows": len(rows), "num_right": sum(row["right"] for row in rows), "cut": cut, "judges": found}


def labelled() -> list[dict[str, Any]]:
    """The lines of `ANSWERS`."""
    return [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]


def verdicts(rows: Sequence[dict[str, Any]], judge: Judge) -> dict[str, list[int]]:
    """Places of the right texts that a rule refuses, and of the wrong ones that it pays."""
    paid = [judge(row) for row in rows]
    return {
        "refused": [place for place, row in enumerate(rows) if row["right"] and not paid[place]],
        "falsely_paid": [place for place, row in enumerate(rows) if paid[place] and not row["right"]],
    }


def _by_math_verify(row: dict[str, Any]) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"${row['answer']}$"), parse(row["text"])))


def _by_trl() -> Judge:
    from trl.rewards import accuracy_reward

    def judge(row: dict[str, Any]) -> bool:
        answer = row["answer"] if "\\" not in row["answer"] else f"${row['answer']}$"
        return bool(accuracy_reward([[{"role": "assistant", "content": row["text"]}]], [answer]) == [1.0])

    return judge


def _matches(found: str | None, row: dict[str, Any]) -> bool:
    return found is not None and IGNORED.sub("", found).lower() == IGNORED.sub("", row["answer"]).lower()


def _strictly(row: dict[str, Any]) -> bool:
    found = STRICT.search(row["text"])
    return _matches(found and found[1], row)


def _flexibly(row: dict[str, Any]) -> bool:
    found = [first or second for first, second in FLEXIBLE.findall(row["text"])]
    return _matches(found[-1] if found else None, row)


JUDGES: dict[str, Judge] = {
    "`math_correct`": lambda row: is_correct(row["text"], row["answer"], row["question"]),
    "`math_correct` without the question": lambda row: is_correct(row["text"], row["answer"]),
    "math_verify, its default": _by_math_verify,
    "lm-evaluation-harness, strict": _strictly,
    "lm-evaluation-harness, flexible": _flexibly,
}
"""Name -> rule; TRL's, which may not be installed, is not among them."""


def page(result: Result) -> str:
    """The table of docs/rewards.md."""
    num_wrong = result["num_rows"] - result["num_right"]
    rows = [
        (name, str(len(one["refused"])), str(len({*one["refused"]} - {*result["cut"]})), str(len(one["falsely_paid"])))
        for name, one in result["judges"].items()
    ]
    head = (
        f"rule, on {result['num_rows']} texts",
        f"correct, but refused (of {result['num_right']})",
        "of these not cut off",
    )
    return table((*head, f"wrong, but paid (of {num_wrong})"), rows)
