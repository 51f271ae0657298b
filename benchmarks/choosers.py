"""Parts of a budget on simulated questions: what a rollout finds, compared with the plain stream.

    python -m benchmarks choosers            five paired seeds, about ten minutes
    python -m benchmarks choosers --quick    one seed and a tenth of the rollouts

Every arm generates the same number of rollouts, probes and groups that were left out included, from the same questions
with the same seeds (`benchmarks.population`: no model, no texts). Ratios are to the stream with the same seed;
figures are medians over the seeds, with the lowest and the highest in brackets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.population import Population, SimulatedStep, simulate
from benchmarks.timing import Say
from podsrl.control import make_budget
from podsrl.tasks import Stream

Floats = NDArray[np.float64]
NUM_QUESTIONS, NUM_PROMPTS, NUM_ROLLOUTS = 2000, 32, 8
TOTAL = 100 * NUM_PROMPTS * NUM_ROLLOUTS
"""Rollouts that every arm generates: a hundred steps of the stream."""

POPULATIONS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "mostly solved or hopeless": lambda rng: rng.normal(0, 6, NUM_QUESTIONS),
    "mostly hard": lambda rng: rng.normal(-4, 3, NUM_QUESTIONS),
    "three levels": lambda rng: np.log([9.0, 0.43, 0.02])[rng.integers(3, size=NUM_QUESTIONS)],
}
"""Name -> logits of success; the levels are p = 0.9, 0.3 and 0.02."""

ARMS: dict[str, tuple[dict[str, str], dict[str, dict[str, Any]]]] = {
    "stream": ({}, {}),
    "DAPO": ({"enough": "mixed", "keep": "mixed"}, {}),
    "DPS": ({"questions": "dynamics"}, {}),
    "DARS": ({"rollouts": "harder"}, {"harder": {"mode": "ET", "most": 32}}),
    "DARS, HW": ({"rollouts": "harder"}, {"harder": {"mode": "HW", "most": 64}}),
    "sGPO": ({"questions": "profile", "rollouts": "profile"}, {}),
    "GDRO rollouts": ({"rollouts": "bandit"}, {"bandit": {"eta": 2.6}}),
    "XRPO": ({"rollouts": "confidence"}, {}),
}
"""Name -> slots of the budget, and the options of its parts."""
MOST_STEPS = {"sGPO": 600}
"""Of an arm whose steps have fewer rollouts than the stream's."""

MEASURES: dict[str, Callable[[Sequence[SimulatedStep]], float]] = {
    "mixed groups": lambda steps: sum(step.num_mixed for step in steps),
    "all wrong": lambda steps: (
        sum(step.num_all_wrong for step in steps) / max(sum(step.num_groups for step in steps), 1)
    ),
    "p(1-p)": lambda steps: (
        sum(step.spread * step.num_rollouts for step in steps) / sum(step.num_rollouts for step in steps)
    ),
    "success": lambda steps: steps[-1].success,
    "steps": len,
}
"""Of all steps of an arm: trained groups with right and wrong rollouts; share of the trained groups that are all wrong;
mean p(1-p) per generated rollout; mean success of all questions at the end; optimizer steps."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("choosers", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed and a tenth of the rollouts")
    command.measure(parser, arguments, _run, table)


def _run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    return run(1, TOTAL // 10, say) if options.quick else run(5, TOTAL, say)


def run(num_seeds: int, total: int, say: Say) -> dict[str, Any]:
    """All measures of every arm, population and seed; each arm stops with the step that brings it to `total`."""
    cases = []
    for name, logits in POPULATIONS.items():
        for arm in ARMS:
            say(f"{name}: {arm}")
            found = [_measured(arm, logits(np.random.default_rng(seed)), seed, total) for seed in range(num_seeds)]
            cases.append({"population": name, "arm": arm, **{key: [one[key] for one in found] for key in MEASURES}})
    return {"total": total, "num_seeds": num_seeds, "num_questions": NUM_QUESTIONS, "cases": cases}


def _measured(arm: str, logits: Floats, seed: int, total: int) -> dict[str, float]:
    steps = simulate(
        make_budget(*ARMS[arm]),
        Population(logits),
        Stream(NUM_QUESTIONS, seed=seed),
        num_prompts=NUM_PROMPTS,
        num_rollouts=NUM_ROLLOUTS,
        num_steps=MOST_STEPS.get(arm, total // (NUM_PROMPTS * NUM_ROLLOUTS)),
        seed=seed,
    )
    spent = list(accumulate(step.num_rollouts for step in steps))
    assert spent[-1] >= total, f"{arm} has spent {spent[-1]} of {total} rollouts"
    last = next(i for i, count in enumerate(spent) if count >= total)
    return {key: float(measure(steps[: last + 1])) for key, measure in MEASURES.items()}


def table(result: dict[str, Any]) -> str:
    """One row per population and arm: the stream's own medians, and ratios to it."""
    head = f"{result['total']:,} rollouts of {result['num_questions']:,} simulated questions, as ratios to the stream"
    streams = {case["population"]: case for case in result["cases"] if case["arm"] == "stream"}
    rows = [[case["population"], *_row(case, streams[case["population"]])] for case in result["cases"]]
    shown = markdown_table(("questions", "arm", *MEASURES), rows, num_left=2)
    return f"{head}; {result['num_seeds']} paired seeds\n\n{shown}"


def _row(case: Mapping[str, Any], stream: Mapping[str, Any]) -> list[str]:
    cells = []
    for key in MEASURES:
        if case is stream:
            cells.append(f"{median(case[key]):.4g}")
        else:
            ratios = sorted(own / of_stream for own, of_stream in zip(case[key], stream[key], strict=True) if of_stream)
            cells.append(f"{median(ratios):.2f}× ({ratios[0]:.2f} … {ratios[-1]:.2f})" if ratios else "-")
    return [case["arm"], *cells]
