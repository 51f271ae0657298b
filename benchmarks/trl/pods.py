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
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import command
from benchmarks.timing import Say, take_turns, titled

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
    from benchmarks.trl.seconds import best_setting, by_round, compared, timed
    from benchmarks.trl.setup import grpo_trainer

    rows, told = len(scene.prompts) * scene.num_rollouts, titled(say, f"beta {beta}")
    best = {}
    for name, kept in ((GRPO, None), (PODS, num_kept)):
        own = [replace(scene, model=copy.deepcopy(scene.model)) for _ in range(2)]
        arms = {
            size: timed(grpo_trainer(each, rows_at_once=size, num_kept=kept, beta=beta))
            for size, each in zip((rows // 4, rows), own, strict=True)
        }
        best[name] = best_setting(arms, told, name)
        best[name].arm()  # warm
    taken = take_turns(by_round({name: found.arm for name, found in best.items()}), rounds, told)
    return {"rows_at_once": {name: found.setting for name, found in best.items()}, **compared(taken, PODS)}
