"""Pruning in the middle (ARRoL): how mixed the groups of the survivors are, and the tokens, over those of whole groups.

    python -m benchmarks pruned            40 steps of each rule, three seeds, standing and learning: 8 minutes
    python -m benchmarks pruned --quick    12 steps of one seed

The recipe systems/arrol, beside GRPO with as many rollouts, and with an even coin at the same token count. Standing
weights have a learning rate of 1e-9, so that all rules see the same policy; the head learns all the same. Measured are
the steps from the eleventh on, when the head has learned.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing

import numpy as np

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json
from benchmarks.timing import Say

ROLLOUTS = ("rollouts.num_rollouts=16", "select.num_kept=16")
WHOLE, RANDOM = "whole groups", "an even coin"
RULES: Mapping[str, tuple[str, Sequence[str]]] = {
    WHOLE: ("systems/grpo", ROLLOUTS),
    RANDOM: ("systems/grpo", (*ROLLOUTS, "steer.prune=random", "options.random.at=6")),
    "by group": ("systems/arrol", ()),
    "by rollout, as published": ("systems/arrol", ("options.quality.by=rollout",)),
}
"""Name -> recipe and changes."""
RATES = {"standing": 1e-9, "learning": 1.5e-4}
NUM_WARM = 10


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("pruned", __doc__)
    parser.add_argument("--quick", action="store_true", help="12 steps of one seed")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Mean p (1 - p) of the groups' judged rollouts, and tokens, of each rule.

    Returns:
        "rules": weights -> rule -> "spread" and "tokens" per seed. "num_steps".
    """
    seeds, num_steps = ((0,), 12) if options.quick else ((0, 1, 2), 40)
    found: Json = {}
    for weights, rate in RATES.items():
        for name, (recipe, changes) in RULES.items():
            say(f"{weights}: {name}")
            pairs = [_measured(recipe, [*changes, f"optim.lr={rate}", f"seed={seed}"], num_steps) for seed in seeds]
            spread, tokens = zip(*pairs, strict=True)
            found.setdefault(weights, {})[name] = {"spread": spread, "tokens": tokens}
    return {"rules": found, "num_steps": num_steps}


def _measured(recipe: str, changes: Sequence[str], num_steps: int) -> tuple[float, float]:
    from podsrl.config.load import load_config
    from podsrl.run.metrics import step_metrics
    from podsrl.run.step.trainer import Trainer
    from podsrl.run.steps import training_step

    own = ("threads=1", 'model.device="cpu"', "eval.every_seconds=0", "stop.seconds=0", f"stop.steps={num_steps}")
    with closing(Trainer(load_config(recipe, [*own, *changes]))) as trainer:
        results = [training_step(trainer) for _ in range(num_steps)][NUM_WARM:]
    groups = [group.outcomes for result in results for group in result.groups]
    shares = [float(np.mean(outcomes)) for outcomes in groups if len(outcomes) > 1]
    tokens = [step_metrics(result)["tokens/generated"] for result in results]
    return float(np.mean([share * (1 - share) for share in shares])), float(np.mean(tokens))


def table(result: Json) -> str:
    """A row per rule, for standing and for learning weights."""
    rows = []
    for weights, rules in result["rules"].items():
        for name, own in rules.items():
            over = [_over(own["spread"], rules[other]["spread"]) for other in (WHOLE, RANDOM)]
            rows.append((weights, name, *over, _over(own["tokens"], rules[WHOLE]["tokens"])))
    head = ("weights", "who goes on", "p (1 − p) over whole groups", "over the coin", "tokens over whole groups")
    steps = f"steps {NUM_WARM + 1} to {result['num_steps']}"
    return f"{markdown_table(head, rows)}\n\nMean over seeds (lowest to highest), {steps}."


def _over(own: Sequence[float], other: Sequence[float]) -> str:
    ratios = [one / base for one, base in zip(own, other, strict=True)]
    return f"{np.mean(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
