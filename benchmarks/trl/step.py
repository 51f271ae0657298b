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

from rich.console import Group
from rich.table import Table

from benchmarks import command
from benchmarks.timing import Say, spread_text


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
    tokens: tuple[int, ...] = (8192, 32_768)
    batch_tokens: tuple[int, ...] = (64, 256)
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
    command.measure(parser, arguments, run, table)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> dict[str, Any]:
    """Compare losses, then measure. UsageError: TRL is not installed."""
    from benchmarks.trl.setup import check_trl

    version = check_trl()
    from benchmarks.trl.losses import compare_losses
    from benchmarks.trl.seconds import Settings, measure_step, measure_update
    from benchmarks.trl.setup import make_scene

    sizes = QUICK if options.quick else StepSizes()
    settings = Settings(rows=sizes.rows, tokens=sizes.tokens, batch_tokens=sizes.batch_tokens, rounds=sizes.rounds)
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
        update = measure_update(scene, settings, lambda text: say(f"update, {text}"))
        result["update"][kind] = update
        result["step"][kind] = measure_step(scene, update, settings, lambda text: say(f"step, {text}"))
        settings = replace(settings, rows=(update["trl_rows"],), tokens=(update["micro_batch_tokens"],))
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


def table(result: dict[str, Any]) -> Group:
    """Losses, and seconds."""
    return Group(_losses_table(result), _seconds_table(result))


def _losses_table(result: dict[str, Any]) -> Table:
    shown = Table(
        title=f"Loss on the same off-policy batch, ours and that of TRL {result['trl']}",
        caption="gradient: largest difference of an element, relative to the largest element",
    )
    for name in ("loss", "podsrl", "TRL", "difference", "gradient", "tokens bounded"):
        shown.add_column(name, justify="left" if name == "loss" else "right")
    for name, loss in result["losses"].items():
        numbers = (f"{loss['ours']:.6f}", f"{loss['trl']:.6f}", f"{loss['difference']:.0e}")
        shown.add_row(name, *numbers, f"{loss['gradient_difference']:.0e}", f"{loss['clip_fraction']:.0%}")
    return shown


def _seconds_table(result: dict[str, Any]) -> Table:
    work = f"{result['num_prompts']} prompts × {result['num_rollouts']} rollouts"
    shown = Table(
        title=f"Seconds of one step: {work}, {result['parameters'] / 1e6:.1f} M parameters, float32",
        caption=f"medians of turns, ratio (lowest … highest) within a turn; {result['hardware']}",
    )
    for name in ("part", "completions", "arm"):
        shown.add_column(name)
    for name in ("seconds", "ratio", "CPU seconds", "CPU ratio"):
        shown.add_column(name, justify="right")
    for part in ("update", "step"):
        for kind, found in result[part].items():
            for arm, seconds in found["median_seconds"].items():
                cpu, name = found["median_cpu_seconds"][arm], "whole step" if part == "step" else part
                ratios = [spread_text(found[key]) if arm == "podsrl" else "" for key in ("ratio", "cpu_ratio")]
                shown.add_row(name, kind, arm, f"{seconds:.2f}", ratios[0], f"{cpu:.2f}", ratios[1])
            for arm, seconds in found.get("without_cpu_seconds", {}).items():
                shown.add_row(part, kind, f"podsrl, {arm}", "", "", f"{seconds:.2f}", "")
    return shown
