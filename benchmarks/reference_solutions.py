"""Every reference solution of GSM8K and MATH, judged against its own answer and against the next row's.

    PODS_DATA=DIR python -m benchmarks reference-solutions             all rows, some minutes on two cores
    PODS_DATA=DIR python -m benchmarks reference-solutions --quick     the first rows

DIR holds gsm8k/train.jsonl (`question`, `answer`) and math/train.jsonl, math/test.jsonl (`problem`, `solution`, perhaps
`answer`). The rewards `math_correct` and `boxed_correct` judge in worker processes, as in a run. Against its own answer
every solution should be right; against the next row's answer it should be wrong unless the two answers are equal.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.timing import Say
from podsrl.errors import UsageError
from podsrl.lib.boxed import boxed_answer
from podsrl.score.base import Rows, Values
from podsrl.score.panel import Panel
from podsrl.score.rewards.canonical import canonical
from podsrl.tasks.answers import gsm8k_answer
from podsrl.types import Task

QUICK_ROWS, NUM_WORKERS = 200, 2
REWARDS = ("math_correct", "boxed_correct")


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("reference-solutions", __doc__)
    parser.add_argument("--quick", action="store_true", help="the first 200 rows of each file")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Judge the files below PODS_DATA."""
    if "PODS_DATA" not in os.environ:
        raise UsageError("PODS_DATA is not set: wanted a folder with gsm8k/ and math/ as JSON lines")
    return measure(Path(os.environ["PODS_DATA"]), say, QUICK_ROWS if options.quick else None)


def measure(folder: Path, say: Say = lambda text: None, num_rows: int | None = None) -> dict[str, Any]:
    """Judge all sets with each reward."""
    sets = {"gsm8k": gsm8k(folder)[:num_rows], "math": math(folder)[:num_rows]}
    found: dict[str, Any] = {}
    for reward in REWARDS:
        say(reward)
        with Panel({reward: "--reward"}, num_workers=NUM_WORKERS) as workers:
            found[reward] = {"sets": {name: judge(reward, workers, pairs) for name, pairs in sets.items()}}
    return {"rewards": found}


def gsm8k(folder: Path) -> list[tuple[Task, str]]:
    """The task and the solution of every training row."""
    rows = read(folder / "gsm8k" / "train.jsonl")
    return [task(f"gsm8k/train/{i}", gsm8k_answer(row["answer"]), row["answer"]) for i, row in enumerate(rows)]


def math(folder: Path) -> list[tuple[Task, str]]:
    """The task and the solution of every row of both files."""
    return [
        task(f"math/{split}/{i}", row.get("answer") or boxed_answer(row["solution"]), row["solution"])
        for split in ("train", "test")
        for i, row in enumerate(read(folder / "math" / f"{split}.jsonl"))
    ]


def task(name: str, answer: str | None, solution: str) -> tuple[Task, str]:
    return Task(id=name, prompt="", answer=answer or ""), solution


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judge(reward: str, workers: Panel, pairs: list[tuple[Task, str]]) -> dict[str, Any]:
    """One set against its own answers, and against those of the next row."""
    tasks, solutions = [task for task, _ in pairs], [solution for _, solution in pairs]
    neighbours = tasks[1:] + tasks[:1]
    own = workers.judge(reward, rows(list(zip(tasks, solutions, strict=True))))
    shifted = workers.judge(reward, rows(list(zip(neighbours, solutions, strict=True))))
    coincidences = [i for i, value in enumerate(shifted.values) if value == 1]
    unequal = [i for i in coincidences if canonical(tasks[i].answer) != canonical(neighbours[i].answer)]
    return {
        "num_rows": len(pairs),
        "num_correct": own.values.count(1.0),
        "failures": [
            {"id": tasks[i].id, "answer": tasks[i].answer, "reason": reason(own, i)}
            for i, value in enumerate(own.values)
            if value != 1
        ],
        "num_correct_by_the_next_answer": len(coincidences),
        "of_these_not_the_same_string": [[tasks[i].answer, neighbours[i].answer] for i in unequal],
        "num_invalid_by_the_next_answer": len(shifted.faults),
    }


def rows(pairs: list[tuple[Task, str]]) -> Rows:
    return Rows(tasks=[task for task, _ in pairs], texts=[text for _, text in pairs], token_ids=[()] * len(pairs))


def reason(values: Values, row: int) -> str:
    return values.faults[row].reason if row in values.faults else "judged as wrong"
