"""Figure 1 of PODS (arXiv 2504.13818) measured again: why generation scales with n and the update does not.

    python -m benchmarks figure1                  a random model of Qwen2.5-3B's shape on a GPU, bfloat16
    python -m benchmarks figure1 --shape s128 --rollouts 2 4 8 --prompt-tokens 5 --new-tokens 4      on any machine

For each number of rollouts of one prompt: seconds per token of generation, then seconds and peak memory of the update
on all of them in one forward and backward (no gradient accumulation, the whole model trained, AdamW with its moments),
up to the first number that does not fit in memory. `--save` also draws figure1.png beside the result.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import command
from benchmarks.files import path_of
from benchmarks.models import SHAPES, batch_of, fixed_workload, shaped_model
from benchmarks.timing import Clock, Say, wait_for
from podsrl.config.schema import OptimConfig
from podsrl.generate import Engine, Request, Sampling
from podsrl.report.figures.theme import INK, MUTED, SERIES, new_figure, number_axis, style
from podsrl.types import Completion
from podsrl.update import ALGORITHMS, Updater

WEIGHT_BYTES = {"bfloat16": 14, "float32": 12}
"""Weight, float32 master (bfloat16 only), two float32 moments; gradients come on top while they exist."""


def main(arguments: Sequence[str]) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = command.new_parser("figure1", __doc__)
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument("--rollouts", nargs="+", type=int, default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cuda", "cpu"], default=device)
    parser.add_argument(
        "--dtype", choices=["bfloat16", "float32"], default="bfloat16" if device == "cuda" else "float32"
    )
    picture = path_of("figure1").with_suffix(".png")
    command.measure(parser, arguments, run, publish=lambda result: draw(result, picture), keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure both curves."""
    model = shaped_model(options.shape, dtype=getattr(torch, options.dtype), device=options.device)
    prompt = fixed_workload(1, prompt_tokens=options.prompt_tokens, new_tokens=options.new_tokens).prompts[0]
    completions: dict[int, list[Completion]] = {}
    generation: dict[int, dict[str, float]] = {}
    for n in options.rollouts:
        say(f"generation, n = {n}")
        seconds = []
        for _ in range(options.repeats + 1):  # the first warms up
            taken, completions[n] = generate(model, prompt, n, options)
            seconds.append(taken)
        generation[n] = {"seconds": statistics.median(seconds[1:]), "tokens": n * options.new_tokens}
    return {
        "options": vars(options),
        "num_weights": model.num_parameters(),
        "generation": generation,
        "update": measure_updates(model, prompt, completions, options, say),
    }


def generate(
    model: Any, prompt: tuple[int, ...], n: int, options: argparse.Namespace
) -> tuple[float, list[Completion]]:
    """Seconds of n rollouts of one prompt, and the rollouts."""
    engine = Engine(model)
    sampling = Sampling(max_new_tokens=options.new_tokens)
    wait_for(options.device)
    clock = Clock()
    found = list(engine.generate([Request("figure", prompt, n, sampling)]))
    wait_for(options.device)
    return clock.read().seconds, found


def measure_updates(
    model: Any, prompt: tuple[int, ...], completions: dict[int, list[Completion]], options: argparse.Namespace, say: Say
) -> dict[int, dict[str, Any]]:
    """Seconds and peak bytes of a whole optimizer step at each number of rollouts, until one does not fit."""
    updates: dict[int, dict[str, Any]] = {}
    one_piece = 2 * max(options.rollouts) * (options.prompt_tokens + options.new_tokens)
    updater = Updater(model, OptimConfig(lr=1e-6, micro_batch_tokens=one_piece), loss=ALGORITHMS["grpo"].loss)
    for n in options.rollouts:
        advantages = torch.linspace(-1, 1, n).tolist() if n > 1 else [1.0]
        batch = batch_of([prompt] * n, completions[n], advantages)
        say(f"update, n = {n}")
        gc.collect()
        try:
            seconds = [one_update(updater, batch, options.device) for _ in range(options.repeats + 1)][1:]
        except torch.OutOfMemoryError:
            updates[n] = {"out_of_memory": True}
            break
        updates[n] = {"seconds": statistics.median(seconds), "peak_bytes": updater.peak_bytes()}
    return updates


def one_update(updater: Updater, batch: Any, device: str) -> float:
    """Seconds of forward, backward and the optimizer's step."""
    wait_for(device)
    clock = Clock()
    updater.forward_backward(batch)
    updater.optim_step()
    wait_for(device)
    return clock.read().seconds


def draw(result: dict[str, Any], path: Path) -> None:
    """Both curves, against the number of rollouts."""
    figure = new_figure(10, 3.6)
    left, right = figure.subplots(1, 2)
    generation = {int(n): cell["seconds"] / cell["tokens"] for n, cell in result["generation"].items()}
    left.plot(list(generation), list(generation.values()), color=SERIES[0], marker="o")
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    style(left, "Generation: seconds per token", x_label="rollouts at once", subtitle=result["hardware"])
    fits = {int(n): cell for n, cell in result["update"].items() if "seconds" in cell}
    right.plot(list(fits), [cell["seconds"] for cell in fits.values()], color=SERIES[1], marker="o")
    style(right, "Update: seconds, all rollouts in one piece", x_label="rollouts", subtitle=_memory_note(result, fits))
    number_axis(right, from_zero=True)
    for n in (int(n) for n, cell in result["update"].items() if "out_of_memory" in cell):
        right.axvline(n, color=MUTED, linestyle=":")
        right.annotate(" out of memory", (n, 0), color=INK, fontsize=9, ha="right")
    figure.savefig(path, dpi=150)


def _memory_note(result: dict[str, Any], fits: dict[int, dict[str, Any]]) -> str:
    known = {n: cell["peak_bytes"] for n, cell in fits.items() if cell["peak_bytes"]}
    floor = result["num_weights"] * WEIGHT_BYTES[result["options"]["dtype"]]
    if not known:
        return f"weights, masters and moments alone: {floor / 2**30:.1f} GiB"
    return (
        f"peak {min(known.values()) / 2**30:.1f} .. {max(known.values()) / 2**30:.1f} GiB (states {floor / 2**30:.1f})"
    )
