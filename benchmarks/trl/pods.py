"""Seconds of a step of TRL's GRPOTrainer with all n rollouts trained, and with PODSTrainer, which trains on m of them.

    python -m benchmarks trl-pods             64 rollouts per prompt, of which 16 are kept: a few minutes
    python -m benchmarks trl-pods --quick     a small size, to see that it works

Both run TRL's own loop in one process, on one thread, in turns, with the same small Qwen2 model, prompts and reward,
without a reference model (beta = 0) and with one. Each first picks the faster of two sizes of micro-batches. Needs TRL:
pip install -e '.[trl]'.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import command
from benchmarks.timing import Say, Taken, ratios, take_turns

BETAS = (0.0, 0.04)
GRPO, PODS = "GRPOTrainer", "PODSTrainer"


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("trl-pods", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller step")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> dict[str, Any]:
    """Measure both. UsageError: TRL is not installed."""
    from transformers.utils.logging import disable_progress_bar

    from benchmarks.trl.setup import check_trl, make_scene

    version = check_trl()
    disable_progress_bar()
    num_prompts, n, m, rounds = (2, 8, 4, 2) if options.quick else (2, 64, 16, 7)
    scene = make_scene(
        "s128", num_prompts=num_prompts, num_rollouts=n, prompt_tokens=(8, 16), mean_tokens=None, max_new_tokens=48
    )
    with tempfile.TemporaryDirectory() as folder:
        scene.model.save_pretrained(folder)  # TRL loads the reference model from the path of the policy
        scene.model.config._name_or_path = folder
        found = {str(beta): _compare(scene, m, beta, rounds, say) for beta in BETAS}
    sizes = {"num_prompts": num_prompts, "num_rollouts": n, "num_kept": m, "parameters": scene.model.num_parameters()}
    return {"trl": version, **sizes, "betas": found}


def _compare(scene: Any, num_kept: int, beta: float, rounds: int, say: Say) -> dict[str, Any]:
    from benchmarks.trl.seconds import best_setting, by_round

    rows = len(scene.prompts) * scene.num_rollouts
    generating: dict[str, list[float]] = {}
    best = {}
    for name, kept in ((GRPO, None), (PODS, num_kept)):
        generating[name] = []
        arms = {size: _arm(scene, size, kept, beta, generating[name]) for size in (rows // 4, rows)}
        best[name] = best_setting(arms, say, f"beta {beta}, {name}")
        best[name].arm()  # warm
        generating[name].clear()
    taken = take_turns(
        by_round({name: found.arm for name, found in best.items()}), rounds, lambda text: say(f"beta {beta}, {text}")
    )
    seconds = {name: [one.seconds for one in found] for name, found in taken.items()}
    cpu_seconds = {name: [one.cpu_seconds for one in found] for name, found in taken.items()}
    return {
        "rows_at_once": {name: found.setting for name, found in best.items()},
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "generating_seconds": {name: statistics.median(values) for name, values in generating.items()},
        "ratio": ratios(seconds[PODS], seconds[GRPO]),
        "cpu_ratio": ratios(cpu_seconds[PODS], cpu_seconds[GRPO]),
    }


def _arm(scene: Any, rows_at_once: int, num_kept: int | None, beta: float, generating: list[float]) -> Any:
    """One step of the trainer; it adds the seconds in which TRL generated."""
    from benchmarks.trl.setup import StepClock, grpo_trainer, quiet

    own = replace(scene, model=copy.deepcopy(scene.model))
    trainer = grpo_trainer(own, rows_at_once=rows_at_once, num_kept=num_kept, beta=beta)
    generate, clock = trainer._generate_single_turn, StepClock()

    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = generate(*arguments, **named)
        generating.append(time.perf_counter() - start)
        return result

    trainer._generate_single_turn = timed
    trainer.add_callback(clock)

    def arm() -> Taken:
        with quiet():
            trainer.train()
        return clock.taken

    return arm
