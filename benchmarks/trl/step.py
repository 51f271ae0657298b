"""One step beside TRL's GRPOTrainer: the same losses, and how many of its seconds an update and a whole step take.

One process, one thread, float32, a small Qwen2 model, n rollouts a prompt of which all are trained on. TRL runs with
its own training loop, scaled dot-product attention, its fused head and fused AdamW, without logging, saving,
recomputation or a reference model; micro-batches and ways to generate are chosen for the least time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Group
from rich.table import Table

HELP = "One step beside TRL's GRPOTrainer: losses on the same batch, seconds of an update and of a whole step."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    shape: str = "s256"
    num_prompts: int = 8
    num_rollouts: int = 16
    prompt_tokens: tuple[int, int] = (100, 200)
    mean_tokens: float = 150.0
    """Of completions whose length is geometric, cut at the limit."""
    max_new_tokens: int = 200
    rows: tuple[int, ...] = (8, 32)
    tokens: tuple[int, ...] = (8192, 32_768)
    batch_tokens: tuple[int, ...] = (64, 256)
    rounds: int = 5


QUICK = Plan(
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


def run(
    quick: bool = False, plan: Plan | None = None, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Compare losses, then measure.

    Args:
        quick: a smaller size.
        plan: another size.
        say: told what is being measured.

    Raises:
        UsageError: TRL is not installed.
    """
    from benchmarks.trl.setup import check_trl

    version = check_trl()
    from benchmarks.trl.losses import compare_losses
    from benchmarks.trl.seconds import Sizes, measure_step, measure_update
    from benchmarks.trl.setup import make_scene
    from podsrl.lib.machine import hardware_line

    plan = plan or (QUICK if quick else Plan())
    torch.set_num_threads(1)
    sizes = Sizes(rows=plan.rows, tokens=plan.tokens, batch_tokens=plan.batch_tokens, rounds=plan.rounds)
    result: dict[str, Any] = {"update": {}, "step": {}}
    for kind, mean in {"ragged": plan.mean_tokens, "equal": None}.items():
        scene = make_scene(
            plan.shape,
            num_prompts=plan.num_prompts,
            num_rollouts=plan.num_rollouts,
            prompt_tokens=plan.prompt_tokens,
            mean_tokens=mean,
            max_new_tokens=plan.max_new_tokens,
        )
        update = measure_update(scene, sizes, lambda text: say(f"update, {text}"))
        result["update"][kind] = update
        result["step"][kind] = measure_step(scene, update, sizes, lambda text: say(f"step, {text}"))
        sizes = replace(sizes, rows=(update["trl_rows"],), tokens=(update["micro_batch_tokens"],))
    return {
        "name": "trl",
        "hardware": hardware_line(),
        "trl": version,
        "shape": plan.shape,
        "attention": scene.model.config._attn_implementation,
        "parameters": scene.model.num_parameters(),
        "num_prompts": plan.num_prompts,
        "num_rollouts": plan.num_rollouts,
        "losses": compare_losses(),
        **result,
    }


def table(result: dict[str, Any]) -> Group:
    """Losses, and seconds."""
    return Group(_losses_table(result), _seconds_table(result))


def _losses_table(result: dict[str, Any]) -> Table:
    shown = Table(
        title=f"Loss on the same off-policy batch, beside TRL {result['trl']}",
        caption="gradient: largest difference of an element, relative to the largest gradient",
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
        caption=f"medians of turns, ratio (lowest–highest) within a turn; {result['hardware']}",
    )
    for name in ("part", "completions", "arm"):
        shown.add_column(name)
    for name in ("seconds", "ratio", "CPU seconds", "CPU ratio"):
        shown.add_column(name, justify="right")
    for part in ("update", "step"):
        for kind, found in result[part].items():
            for arm, seconds in found["median_seconds"].items():
                cpu, name = found["median_cpu_seconds"][arm], "whole step" if part == "step" else part
                ratios = [_spread(found[key]) if arm == "podsrl" else "" for key in ("ratio", "cpu_ratio")]
                shown.add_row(name, kind, arm, f"{seconds:.2f}", ratios[0], f"{cpu:.2f}", ratios[1])
            for arm, seconds in found.get("without_cpu_seconds", {}).items():
                shown.add_row(part, kind, f"podsrl, {arm}", "", "", f"{seconds:.2f}", "")
    return shown


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f})"
