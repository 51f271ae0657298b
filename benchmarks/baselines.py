"""Two rollouts of a question: how much a baseline from the policy's states (POISE) lowers the gradient's variance.

    python -m benchmarks baselines            10 steps to learn from, 24 to measure: a minute on one core
    python -m benchmarks baselines --quick    2 and 8 steps

The recipe systems/poise at its base model, whose weights stay: every step draws new questions and rollouts, and their
gradient is taken with each baseline. The baselines have the same rollouts, so the same tokens, and the same expected
gradient. With two rollouts and rewards of 0 and 1 GRPO's advantages are those of leave-one-out times a constant.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json
from benchmarks.timing import Say

if TYPE_CHECKING:
    from podsrl.run.step.trainer import Trainer
    from podsrl.update import Batch

Floats = NDArray[np.float64]
PENALTIES = (0.01, 1.0, 100.0)
DRAWS = 2000
"""Of steps with replacement, for the intervals."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("baselines", __doc__)
    parser.add_argument("--quick", action="store_true", help="2 steps to learn from, 8 to measure")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """The variance of the step's gradient with each baseline, over that with leave-one-out.

    Returns:
        "ratios": name -> "ratio" and its 95 % interval "low" .. "high" over steps. "right": share of right rollouts.
    """
    from podsrl.config.load import load_config
    from podsrl.run.step.trainer import Trainer
    from podsrl.systems.poise import Probe
    from podsrl.update import step_advantages, to_samples
    from podsrl.update.advantage import leave_one_out

    num_learned, num_measured = (2, 8) if options.quick else (10, 24)
    trainer = Trainer(load_config("systems/poise", ["threads=1", 'model.device="cpu"']))
    probes = {f"ridge {ridge:g}": Probe(ridge=ridge) for ridge in PENALTIES}
    gradients: dict[str, list[Floats]] = {name: [] for name in ("leave one out", *probes)}
    right = list[bool]()
    for step in range(num_learned + num_measured):
        say(f"step {step}")
        collected = trainer.sample()
        groups, selections = collected.groups, trainer.choose(collected.groups)
        own = step_advantages(groups, selections, leave_one_out)
        if step >= num_learned:
            of_probes = {name: probe.shape(groups, selections, own) for name, probe in probes.items()}
            for name, found in {"leave one out": own, **of_probes}.items():
                batch = trainer.make_batch(to_samples(groups, selections, [each.float() for each in found]))
                gradients[name].append(_gradient(trainer, batch))
        right += [rollout.is_correct for group in groups for rollout in group.rollouts]
        for probe in probes.values():
            probe.learn(collected.seen)
        trainer.progress = replace(trainer.progress, step=step + 1, data_position=collected.data_position)
    trainer.close()
    products = {name: np.stack(each) @ np.stack(each).T for name, each in gradients.items()}
    ratios = {name: _ratio(products[name], products["leave one out"]) for name in probes}
    return {"ratios": ratios, "right": float(np.mean(right)), "num_learned": num_learned, "num_measured": num_measured}


def _gradient(trainer: Trainer, batch: Batch | None) -> Floats:
    """[W] of all weights together."""
    assert batch is not None, "something is kept of every question"
    trainer.forward_backward(batch)
    weights = [each for each in trainer.model.parameters() if each.grad is not None]
    found: Floats = np.concatenate([each.grad.flatten().double().numpy() for each in weights])
    for each in weights:
        each.grad = None
    return found


def _variance(products: Floats) -> float:
    """Sum over weights of the variance between steps, from the inner products [S, S] of their gradients."""
    size = len(products)
    return float((np.trace(products) - products.sum() / size) / (size - 1))


def _ratio(products: Floats, baseline: Floats) -> Json:
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(products), (DRAWS, len(products)))
    of_draws = [_variance(products[np.ix_(each, each)]) / _variance(baseline[np.ix_(each, each)]) for each in draws]
    low, high = np.percentile(of_draws, [2.5, 97.5]).tolist()
    return {"ratio": _variance(products) / _variance(baseline), "low": low, "high": high}


def table(result: Json) -> str:
    """A row per baseline."""
    rows = [
        (name, f"{each['ratio']:.2f}× ({each['low']:.2f}–{each['high']:.2f})")
        for name, each in result["ratios"].items()
    ]
    head = ("baseline", "variance of the gradient over leave-one-out")
    return (
        f"{markdown_table(head, rows)}\n\n{result['num_measured']} steps after {result['num_learned']} of learning; "
        f"{result['right']:.0%} of the rollouts are right; 95 % intervals over steps."
    )
