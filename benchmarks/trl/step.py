"""One step compared with TRL's GRPOTrainer: losses on the same batch, seconds of an update and of a whole step.

    python -m benchmarks trl            8 prompts × 16 rollouts, about half an hour on one core
    python -m benchmarks trl --quick    2 prompts × 4 rollouts, about a minute

One process, one thread, float32, a small Qwen2 model, n rollouts per prompt, all of which are trained on. TRL runs with
its own training loop, scaled dot-product attention, its fused head and fused AdamW, without logging, saving,
recomputation or a reference model; micro-batches and ways to generate are chosen for the least time. Needs TRL:
pip install -e '.[trl]'.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import command
from benchmarks.timing import Say


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizes:
    """The size of the step, and how often it is measured."""

    shape: str = "s256"
    num_prompts: int = 8
    num_rollouts: int = 16
    prompt_tokens: tuple[int, int] = (100, 200)
    mean_tokens: float = 150.0
    """Mean length of completions in the ragged case, where it is geometric and cut at the limit."""
    max_new_tokens: int = 200
    rows: tuple[int, ...] = (8, 32)
    """Rows of TRL's micro-batches to try; each divides P · n."""
    tokens: tuple[int, ...] = (8192, 32_768)
    """Tokens of ours."""
    batch_tokens: tuple[int, ...] = (64, 256)
    """Tokens per step of transformers' continuous batching."""
    rounds: int = 5


QUICK = StepSizes(
    shape="s128",
    num_prompts=2,
    num_rollouts=4,
    prompt_tokens=(20, 40),
    mean_tokens=30.0,
    max_new_tokens=40,
    rows=(8,),
    tokens=(8192,),
    batch_tokens=(64,),
    rounds=2,
)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("trl", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller step")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> dict[str, Any]:
    """Compare losses, then measure. UsageError: TRL is not installed."""
    from benchmarks.trl.setup import check_trl

    version = check_trl()
    from benchmarks.trl.losses import compare_losses
    from benchmarks.trl.seconds import measure_step, measure_update
    from benchmarks.trl.setup import make_scene

    sizes = QUICK if options.quick else StepSizes()
    result: dict[str, Any] = {"update": {}, "step": {}}
    for kind, mean in {"ragged": sizes.mean_tokens, "equal": None}.items():
        scene = make_scene(
            sizes.shape,
            num_prompts=sizes.num_prompts,
            num_rollouts=sizes.num_rollouts,
            prompt_tokens=sizes.prompt_tokens,
            mean_tokens=mean,
            max_new_tokens=sizes.max_new_tokens,
        )
        update = measure_update(scene, sizes, lambda text: say(f"update, {text}"))
        result["update"][kind] = update
        result["step"][kind] = measure_step(scene, update, sizes, lambda text: say(f"step, {text}"))
        sizes = replace(sizes, rows=(update["trl_rows"],), tokens=(update["micro_batch_tokens"],))
    return {
        "trl": version,
        "shape": sizes.shape,
        "attention": scene.model.config._attn_implementation,
        "parameters": scene.model.num_parameters(),
        "num_prompts": sizes.num_prompts,
        "num_rollouts": sizes.num_rollouts,
        "losses": compare_losses(),
        **result,
    }
