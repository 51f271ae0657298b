"""Cost saved by forwarding each group's prompt once, and the update's peak memory against n.

    python -m benchmarks update            a model of 14 million weights, about ten minutes on one core
    python -m benchmarks update --quick    a tiny model, about half a minute

Groups of m = 16 rows at prompt:answer lengths 4:1, 1:1 and 1:4, forward and backward of a random Qwen2 in float32.
Three arms take turns in one process: rows with their own prompt, all of one length, so that nothing is padding (once
with torch's matrix products, once with the faster library), and rows behind a shared prompt. A ratio is taken within a
round. The table also gives the ratio of tokens, (Lp + m Ls) / (m (Lp + Ls)), which is a lower bound except for
attention when every token is forwarded once, and the largest difference between both gradients. Processor seconds are
the ones to read on a machine that others use too.

The second part measures the peak memory of an update on 16 rollouts chosen from n, each in a process of its own
(`update_memory.py`).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from benchmarks import command
from benchmarks.models import batch_of, shaped_model, uniform_completion
from benchmarks.timing import Clock, Say, Taken, ratios, take_turns, titled
from podsrl.config.schema import OptimConfig
from podsrl.lib.matmul import fast_linears
from podsrl.update import ALGORITHMS, Batch, Updater

NUM_KEPT = 16
LENGTHS = ((192, 48), (120, 120), (48, 192))
"""Tokens of the prompt and of each answer."""
QUICK_LENGTHS = ((16, 4), (10, 10), (4, 16))
NUM_ROLLOUTS = (16, 64, 256)
PLAIN = "own prompts"
PLAIN_FAST = "own prompts, same matmul"
SHARED = "shared prompts"


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("update", __doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny model and short rows")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure the ratios, then peak memory in processes of their own."""
    shape, rounds = ("s128", 2) if options.quick else ("s384", 5)
    model = shaped_model(shape)
    return {
        "model": f"Qwen2, {model.num_parameters():,} weights",
        "num_kept": NUM_KEPT,
        "rounds": rounds,
        "lengths": [measure(model, *each, rounds, say) for each in (QUICK_LENGTHS if options.quick else LENGTHS)],
        "memory": [peak(n, options.quick, say) for n in NUM_ROLLOUTS],
    }


def measure(model: Any, prompt: int, answer: int, rounds: int, say: Say) -> dict[str, Any]:
    """All arms at one pair of lengths, in turn; ratios are shared prompts to the others."""
    batch = group_of(NUM_KEPT, prompt, answer)
    plain = Updater(model, OptimConfig(lr=1e-3, packing="off"), loss=ALGORITHMS["grpo"].loss)
    shared = Updater(model, OptimConfig(lr=1e-3, packing="on", prefix_sharing="on"), loss=ALGORITHMS["grpo"].loss)
    gradients: dict[str, dict[str, Tensor]] = {}

    def arm(name: str, updater: Updater, context: Callable[[], AbstractContextManager[None]]) -> Callable[[int], Taken]:
        def one_pass(number: int) -> Taken:
            clock = Clock()
            with context():
                updater.forward_backward(batch)
            taken = clock.read()
            gradients[name] = {key: weight.grad for key, weight in model.named_parameters()}
            model.zero_grad(set_to_none=True)
            return taken

        return one_pass

    arms = {
        PLAIN: arm(PLAIN, plain, nullcontext),
        PLAIN_FAST: arm(PLAIN_FAST, plain, lambda: fast_linears(model)),
        SHARED: arm(SHARED, shared, nullcontext),
    }
    taken = take_turns(arms, rounds + 1, titled(say, f"{prompt}:{answer}"))
    seconds = {name: [each.seconds for each in found[1:]] for name, found in taken.items()}  # the first warms up
    cpu_seconds = {name: [each.cpu_seconds for each in found[1:]] for name, found in taken.items()}
    return {
        "prompt": prompt,
        "answer": answer,
        "floor": (prompt + NUM_KEPT * answer) / (NUM_KEPT * (prompt + answer)),
        "seconds": {name: statistics.median(found) for name, found in seconds.items()},
        "ratio": {name: ratios(seconds[SHARED], seconds[name]) for name in (PLAIN, PLAIN_FAST)},
        "ratio_by_cpu": {name: ratios(cpu_seconds[SHARED], cpu_seconds[name]) for name in (PLAIN, PLAIN_FAST)},
        "gradient_difference": difference(gradients[SHARED], gradients[PLAIN]),
    }


def group_of(num_rows: int, prompt: int, answer: int) -> Batch:
    """Random rows behind one prompt, with advantages of both signs."""
    draw = random.Random(0)
    words = range(4, 64)
    rows = [tuple(draw.choices(words, k=answer)) for _ in range(num_rows)]
    prompts = [tuple(draw.choices(words, k=prompt))] * num_rows
    completions = [uniform_completion(i, row) for i, row in enumerate(rows)]
    advantages = [(-1.0) ** i for i in range(num_rows)]
    return batch_of(prompts, completions, advantages)


def difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Largest difference relative to the tensor's largest gradient, or to 1 % of the largest of all if more."""
    floor = 0.01 * max(float(gradient.abs().max()) for gradient in theirs.values())
    return max(
        float((ours[name] - theirs[name]).abs().max()) / max(float(theirs[name].abs().max()), floor) for name in theirs
    )


def peak(num_rollouts: int, quick: bool, say: Say) -> dict[str, Any]:
    """Peak memory of an update on 16 rollouts chosen from each of some groups of n, in a process of its own."""
    say(f"peak memory, n = {num_rollouts}")
    arguments = [sys.executable, "-m", "benchmarks.update_memory", str(num_rollouts), str(int(quick))]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=command.ROOT)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts
