"""Searches at test time on stories: right answers against generated tokens, with the exact judge of single steps.

    python -m benchmarks search            128 held-out questions, up to 8 answers: some minutes on one core
    python -m benchmarks search --quick    16 questions, up to 2 answers
    python -m benchmarks search --save     also the picture of docs/search.md

The model is the base model of `builtin:steps`, untrained by rewards. Every search has the same questions, the same
limit of tokens and the same first random numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json
from benchmarks.timing import Say

BASELINE = "majority"
PICTURE = command.ROOT / "docs" / "images" / "search.svg"


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("search", __doc__)
    parser.add_argument("--quick", action="store_true", help="16 questions, up to 2 answers")
    command.measure(parser, arguments, run, publish=publish)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Run every search at every width.

    Returns:
        "points": a `Point` as JSON per search and width, with "right": of each question a 1 where its given answer is
        right, else a 0. "tokens": the limit per question.
    """
    from podsrl.evaluation.evaluator import Evaluator
    from podsrl.evaluation.search import SEARCHES, STEP_ENDS
    from podsrl.evaluation.search.judge import StepJudge
    from podsrl.evaluation.search.result import point_of, widths
    from podsrl.evaluation.search.run import run_search
    from podsrl.evaluation.target import find_target

    num_questions, most = (16, 2) if options.quick else (128, 8)
    found = find_target("steps", ["--threads=1", '--model.device="cpu"'])
    tokens = most * found.config.rollouts.max_new_tokens
    points = list[Json]()
    with Evaluator(found.config, num_questions=num_questions) as evaluator:
        for name, width in [(name, width) for name in SEARCHES for width in widths(most)]:
            say(f"{name} with {width}")
            of_all = run_search(
                evaluator,
                SEARCHES[name],
                width=width,
                tokens=tokens,
                judge=StepJudge("steps"),
                step_end=STEP_ENDS["steps"],
            )
            right = "".join(str(int(each.answer is not None and each.answer.is_correct)) for each in of_all)
            points.append({**point_of(name, width, of_all).to_json(), "right": right})
    return {"points": points, "tokens": tokens}


def table(result: Json) -> str:
    """A row per search: right answers, their interval and the tokens, at each width; and who beats majority."""
    of_search: dict[str, dict[int, Json]] = {}
    for point in result["points"]:
        of_search.setdefault(point["search"], {})[point["width"]] = point
    sizes = [*of_search[BASELINE]]
    rows = [(name, *(_cell(own[size]) for size in sizes)) for name, own in of_search.items()]
    head = ("search", *(f"{size} answer{'s' if size > 1 else ''}" for size in sizes))
    text = f"{markdown_table(head, rows)}\n\nRight answers (95 % interval; generated tokens per question)."
    majority = [*of_search.pop(BASELINE).values()]
    return f"{text} Over `{BASELINE}` at equal tokens: {'; '.join(_over(majority, own) for own in of_search.values())}."


def _over(majority: Sequence[Json], own: dict[int, Json]) -> str:
    """What a search adds at its largest width: points, with their paired 95 % interval over questions.

    Majority at equal tokens lies between its two nearest points, linearly in the tokens; beyond its ends it is the end.
    """
    point = own[max(own)]
    tokens = [each["tokens"] for each in majority]
    rights = np.array([[int(digit) for digit in each["right"]] for each in majority])
    equal = np.array([np.interp(point["tokens"], tokens, of_question) for of_question in rights.T])
    more = 100 * (np.array([int(digit) for digit in point["right"]]) - equal)
    half = 1.96 * more.std(ddof=1) / len(more) ** 0.5
    low, high = more.mean() - half, more.mean() + half
    verdict = "beats it" if low > 0 else "is beaten" if high < 0 else "differs within its interval"
    size = f"{point['width']} answers"
    return f"`{point['search']}` with {size} {verdict}, {more.mean():+.1f} points ({low:+.1f} to {high:+.1f})"


def _cell(point: Json) -> str:
    low, high = 100 * point["low"], 100 * point["high"]
    return f"{point['accuracy']:.1%} ({low:.0f}–{high:.0f}; {point['tokens']:,.0f})"


def publish(result: Json) -> None:
    """Draw the picture that `pods eval --plot` draws."""
    from podsrl.evaluation.search.result import Point
    from podsrl.report.figures.search import search_figure
    from podsrl.report.figures.svg import save_svg

    names = [field.name for field in fields(Point)]
    points = [Point(**{name: point[name] for name in names}) for point in result["points"]]
    save_svg(search_figure(points), PICTURE)
