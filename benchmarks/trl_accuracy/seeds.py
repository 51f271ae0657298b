"""Training seconds until 50, 80 and 90 % are right in the demo: TRL's GRPOTrainer, PODS in TRL, and podsrl itself.

    python -m benchmarks trl-accuracy            5 seeds, about 40 minutes on an idle core
    python -m benchmarks trl-accuracy --quick    one seed, 12 seconds per arm, nothing tuned, under two minutes
    python -m benchmarks trl-accuracy --save     also the picture and the table of docs/benchmarks.md

Model, task, KL penalty, questions per step and held-out questions are those of the recipe `demo`; one thread. All arms
have the same questions, rewards, temperature, token limit, loss and AdamW. An arm has the learning rate of the demo's
arm with as many rollouts, generated and kept (`python -m benchmarks demo --tune` measures them), as TRL's loss and
gradient are podsrl's (`python -m benchmarks trl`). TRL has its fastest micro-batch and way to generate, which are
measured first. With each seed the arms take turns. podsrl's engine answers the held-out questions; only generating,
scoring and updating count as training. Each finished seed is a line of a file: the same command goes on after Ctrl-C.
Needs TRL: pip install -e '.[trl]'.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks import command
from benchmarks.paired import Finished
from benchmarks.timing import Say, titled
from podsrl.config.files import read_tree
from podsrl.lib.machine import hardware_line

if TYPE_CHECKING:
    from benchmarks.trl_accuracy.arms import Judge

ARMS: dict[str, tuple[Literal["podsrl", "TRL"], int, int]] = {
    "TRL, 64 trained": ("TRL", 64, 64),
    "TRL, 16 trained": ("TRL", 16, 16),
    "PODS in TRL, 64 → 16": ("TRL", 64, 16),
    "podsrl, 64 trained": ("podsrl", 64, 64),
    "podsrl, 16 trained": ("podsrl", 16, 16),
    "podsrl PODS, 64 → 16": ("podsrl", 64, 16),
}
"""Arm -> trainer, rollouts per question, and how many of them are kept."""
PEER, OURS = "TRL, 64 trained", "podsrl PODS, 64 → 16"
_TOP = 0.9
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    seeds: int = 5
    seconds: float = 240.0
    """Training seconds of an arm at most."""
    turn: float = 2.0
    """Training seconds of a turn."""
    every: float = 1.0
    """Training seconds between two evaluations."""
    questions: int = 256
    """Held out."""


WHOLE, QUICK = Size(), Size(seeds=1, seconds=12.0)


def main(arguments: Sequence[str]) -> None:
    from benchmarks.trl_accuracy.page import publish

    parser = command.new_parser("trl-accuracy", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, short, and nothing is tuned")
    parser.add_argument("--out", type=Path, help="folder of finished seeds; default: runs/trl-accuracy")
    command.measure(parser, arguments, run, publish=publish)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Tune, then train every arm with every seed. UsageError: TRL is missing."""
    from benchmarks.trl.setup import check_trl, quiet

    size, demo = QUICK if options.quick else WHOLE, read_tree("demo")
    settings = {**asdict(size), "base": demo["base"], "demo_arms": demo["arms"], "trl": check_trl()}
    key = hashlib.sha256(json.dumps([settings, hardware_line()]).encode()).hexdigest()[:12]
    folder = options.out or command.ROOT / "runs" / "trl-accuracy"
    finished = Finished(None if options.quick else folder / "seeds.jsonl")
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    with quiet():
        return {**settings, "quick": options.quick, **_measure(size, finished, key, say, is_tuned=not options.quick)}


def _measure(size: Size, finished: Finished, key: str, say: Say, *, is_tuned: bool) -> Json:
    from benchmarks.trl_accuracy.arms import Judge

    tuned, seeds = {}, []
    with closing(Judge(num_questions=size.questions)) as judge:
        for name in ARMS:
            own = f"{key} {name}"
            tuned[name] = finished.once(own, partial(_tuned, name, titled(say, name), is_tuned))
        for seed in range(size.seeds):
            own, told = f"{key} seed {seed}", titled(say, f"seed {seed + 1} of {size.seeds}")
            seeds.append(finished.once(own, partial(_trained, seed, size, tuned, judge, told)))
    return {
        "load": [each["load"] for each in seeds],
        "ours": OURS,
        "peer": PEER,
        "arms": {name: {k: value for k, value in own.items() if k != "key"} for name, own in tuned.items()},
        "curves": [each["curves"] for each in seeds],
    }


def _tuned(name: str, say: Say, is_tuned: bool) -> Json:
    """An arm's settings, and what was tried."""
    from benchmarks.trl_accuracy.arms import Sizes, rate_of
    from benchmarks.trl_accuracy.ways import best_way

    sizes = Sizes(*ARMS[name])
    way, tried = best_way(sizes, say, is_first=not is_tuned)
    return {**asdict(sizes), "lr": rate_of(sizes), "way": way and asdict(way), "tried_cpu_seconds": tried}


def _trained(seed: int, size: Size, tuned: Mapping[str, Json], judge: Judge, say: Say) -> Json:
    """All arms with one seed: their curves, and the machine's load afterwards."""
    from benchmarks.trl_accuracy.arms import Sizes, Way, new_arm
    from benchmarks.trl_accuracy.turns import Curve, train_in_turns

    def show(name: str, curves: Mapping[str, Curve]) -> None:
        say(f"{name}: {curves[name].accuracy[-1]:.0%} after {curves[name].seconds[-1]:.1f} s")

    with ExitStack() as stack:
        arms = {}
        for name, sizes in ARMS.items():
            way = tuned[name]["way"] and Way(**tuned[name]["way"])
            arm = new_arm(Sizes(*sizes), way, seed=seed, budget=size.seconds)
            arms[name] = stack.enter_context(closing(arm))
        curves = train_in_turns(
            arms,
            judge,
            target=_TOP,
            budget=size.seconds,
            turn_seconds=size.turn,
            every_seconds=size.every,
            first=seed,
            say=show,
        )
    return {"load": round(os.getloadavg()[0], 1), "curves": {name: asdict(curve) for name, curve in curves.items()}}
