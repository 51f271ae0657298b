"""What a prompt that is forwarded once a group saves, and that the update's memory does not grow with n.

Groups of m = 16 rows at prompt:answer lengths 4:1, 1:1 and 1:4, forward and backward of a random Qwen2 of 14 million
weights in float32. Three arms take turns in one process: rows with their own prompt, all of one length, so that nothing
is padding (once with torch's matrix products, once with the faster library), and rows behind a shared prompt. A ratio
is taken within a round. Beside it stand the ratio of tokens, (Lp + m Ls) / (m (Lp + Ls)), below which no forward that
runs each token once can come but for attention, and the largest difference between both gradients. Processor seconds
are what counts on a machine that others use too.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from rich.console import Group
from rich.table import Table
from torch import Tensor

from podsrl.bench.engine_models import shaped_model
from podsrl.bench.hardware import hardware_line
from podsrl.config.schema import OptimConfig
from podsrl.lib.matmul.linears import fast_linears
from podsrl.types import Completion, Sample
from podsrl.update import ALGORITHMS, Batch, Updater, make_batch

HELP = "Forward and backward with shared prompts against rows with their own; the update's peak memory against n."

NUM_KEPT = 16
LENGTHS = ((192, 48), (120, 120), (48, 192))
"""Tokens of the prompt and of each answer."""
QUICK_LENGTHS = ((16, 4), (10, 10), (4, 16))
NUM_ROLLOUTS = (16, 64, 256)
PLAIN = "own prompts"
PLAIN_FAST = "own prompts, same matmul"
SHARED = "shared prompts"

Timed = tuple[float, float]


def run(quick: bool = False) -> dict[str, Any]:
    """Measure the ratios, then peak memory in processes of their own.

    Args:
        quick: tiny sizes, some seconds.

    Returns:
        JSON-able: name, hardware, model, one entry a pair of lengths (`measure`), one a number of rollouts (`peak`).
    """
    from podsrl.cli.progress import bar

    shape, rounds = ("s128", 2) if quick else ("s384", 5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with bar("update") as show:
            model = shaped_model(shape)
            return {
                "name": "update",
                "hardware": hardware_line(),
                "model": f"Qwen2, {model.num_parameters():,} weights",
                "num_kept": NUM_KEPT,
                "rounds": rounds,
                "lengths": [
                    measure(model, *lengths, rounds, partial(_say, show))
                    for lengths in (QUICK_LENGTHS if quick else LENGTHS)
                ],
                "memory": [peak(n, quick, partial(_say, show)) for n in NUM_ROLLOUTS],
            }
    finally:
        torch.set_num_threads(threads)


def _say(show: Callable[[int, Any, str], None], text: str) -> None:
    show(0, None, text)


def measure(model: Any, prompt: int, answer: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """All arms at one pair of lengths, in turn; ratios are shared prompts to the others."""
    batch = group_of(NUM_KEPT, prompt, answer)
    plain = Updater(model, OptimConfig(lr=1e-3, packing="off"), loss=ALGORITHMS["grpo"].loss)
    shared = Updater(model, OptimConfig(lr=1e-3, packing="on", prefix_sharing="on"), loss=ALGORITHMS["grpo"].loss)
    arms: dict[str, Callable[[], Timed]] = {
        PLAIN: lambda: _seconds(plain, batch, nullcontext()),
        PLAIN_FAST: lambda: _seconds(plain, batch, fast_linears(model)),
        SHARED: lambda: _seconds(shared, batch, nullcontext()),
    }
    times: dict[str, list[Timed]] = {name: [] for name in arms}
    names, gradients = list(arms), {}
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            say(f"{prompt}:{answer}, {name}, round {number} of {rounds}")
            times[name].append(arms[name]())
            gradients[name] = {key: weight.grad for key, weight in model.named_parameters()}
            model.zero_grad(set_to_none=True)
    times = {name: found[1:] for name, found in times.items()}  # the first is a warm-up
    return {
        "prompt": prompt,
        "answer": answer,
        "floor": (prompt + NUM_KEPT * answer) / (NUM_KEPT * (prompt + answer)),
        "seconds": {name: statistics.median(wall for wall, _ in found) for name, found in times.items()},
        "ratio": {name: _ratios(times, name, 0) for name in (PLAIN, PLAIN_FAST)},
        "ratio_by_cpu": {name: _ratios(times, name, 1) for name in (PLAIN, PLAIN_FAST)},
        "gradient_difference": _difference(gradients[SHARED], gradients[PLAIN]),
    }


def group_of(num_rows: int, prompt: int, answer: int) -> Batch:
    """Random rows behind one prompt, with advantages of both signs."""
    draw = random.Random(0)
    words = range(4, 64)
    rows = [tuple(draw.choices(words, k=answer)) for _ in range(num_rows)]
    question = tuple(draw.choices(words, k=prompt))
    logprobs = (-4.0,) * answer
    completions = [
        Completion(request_id="bench", index=i, token_ids=row, logprobs=logprobs, finish_reason="length", version=0)
        for i, row in enumerate(rows)
    ]
    samples = [
        Sample(group_id="bench", prompt_ids=question, completion=done, advantage=(-1.0) ** i)
        for i, done in enumerate(completions)
    ]
    return make_batch(samples, pad_token_id=0)


def _seconds(updater: Updater, batch: Batch, context: AbstractContextManager[None]) -> Timed:
    """Wall and processor seconds of one forward and backward."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    with context:
        updater.forward_backward(batch)
    return time.perf_counter() - wall, time.process_time() - cpu


def _ratios(times: dict[str, list[Timed]], name: str, clock: int) -> dict[str, float]:
    """Shared prompts to another arm, round by round."""
    found = [a[clock] / b[clock] for a, b in zip(times[SHARED], times[name], strict=True)]
    return {"min": min(found), "median": statistics.median(found), "max": max(found)}


def _difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Largest difference by a tensor's largest gradient, or by 1 % of all tensors' where its own nearly cancels."""
    floor = 0.01 * max(float(gradient.abs().max()) for gradient in theirs.values())
    return max(
        float((ours[name] - theirs[name]).abs().max()) / max(float(theirs[name].abs().max()), floor) for name in theirs
    )


def peak(num_rollouts: int, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Peak memory of an update on 16 rollouts chosen from each of some groups of n, in a process of its own."""
    say(f"peak memory, n = {num_rollouts}")
    arguments = [sys.executable, "-m", "podsrl.bench.update_memory", str(num_rollouts), str(int(quick))]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def table(result: dict[str, Any]) -> Group:
    """Ratios, then memory; figures are median (lowest … highest) of the rounds, by processor seconds."""
    return Group(_ratio_table(result), _memory_table(result["memory"]), result["hardware"])


def _ratio_table(result: dict[str, Any]) -> Table:
    shown = Table(
        title=f"{result['model']}, m = {result['num_kept']}: shared prompts to rows with their own",
        caption=f"{result['rounds']} rounds, by processor seconds",
    )
    titles = ("prompt:answer", "ratio", "with one matrix library", "tokens", "seconds", "gradients differ by")
    for title in titles:
        shown.add_column(title, justify="right")
    for facts in result["lengths"]:
        shown.add_row(
            f"{facts['prompt']}:{facts['answer']}",
            _shown(facts["ratio_by_cpu"][PLAIN]),
            _shown(facts["ratio_by_cpu"][PLAIN_FAST]),
            f"{facts['floor']:.2f}",
            f"{facts['seconds'][SHARED]:.2f} / {facts['seconds'][PLAIN]:.2f}",
            f"{facts['gradient_difference']:.0e}",
        )
    return shown


def _memory_table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title=f"Peak memory of an update that keeps {NUM_KEPT} of n rollouts a question")
    for title in ("n", "MiB over what the process held before", "to the first"):
        shown.add_column(title, justify="right")
    for facts in rows:
        ratio = facts["update_bytes"] / rows[0]["update_bytes"]
        shown.add_row(str(facts["num_rollouts"]), f"{facts['update_bytes'] / 2**20:.1f}", f"{ratio:.3f}")
    return shown


def _shown(spread: dict[str, float]) -> str:
    return f"{spread['median']:.2f} ({spread['min']:.2f} … {spread['max']:.2f})"
