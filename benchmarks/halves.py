"""The two halves of a step on a GPU: seconds to generate n rollouts per prompt, seconds and memory to train on m.

    python -m benchmarks halves                     Qwen2.5's shapes, 0.5B with all weights and 3B with LoRA, bfloat16
    python -m benchmarks halves --shapes s128 --rollouts 2 4 --kept 2 --new-tokens 8       small, on any machine

The weights are random and every completion runs to the limit, so lengths are known and no slot idles: generation is at
its best, and what a rollout costs beside a trained row is a lower bound. An update is forward, backward and the
optimizer's step, in micro-batches of each of `--micro-batches` tokens in turn; the fastest counts. From both halves
come the seconds of a step of GRPO with n = m, and of PODS, which trains on a quarter of n.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from benchmarks import command
from benchmarks.engine.arms import podsrl_engine
from benchmarks.models import SHAPES, Workload, batch_of, fixed_workload, shaped_model, uniform_completion
from benchmarks.timing import Clock, Say, Spread, spread, take_turns, titled, wait_for
from podsrl.config.schema import LoraConfig, OptimConfig
from podsrl.errors import PodsError
from podsrl.lib.machine import peak_bytes, start_peak
from podsrl.policy.lora import add_adapters
from podsrl.update import ALGORITHMS, Updater

Json = dict[str, Any]
NUM_PROMPTS = 8
LORA_FROM = 1_000_000_000
"""Parameters from which on adapters are trained instead of all weights."""
SHARE = 4
"""PODS trains on n / 4 rollouts."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_gpu_parser("halves", __doc__)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.5b", "3b"])
    parser.add_argument("--rollouts", nargs="+", type=int, default=[4, 8, 16, 32, 64, 128], help="n per prompt")
    parser.add_argument("--kept", nargs="+", type=int, default=[4, 8, 16, 32, 64, 128], help="m per prompt")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--micro-batches", nargs="+", type=int, default=[8192, 32_768], help="tokens")
    parser.add_argument("--repeats", type=int, default=3)
    command.measure(parser, arguments, run, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> Json:
    """Measure both halves of every shape."""
    part = command.parts_of(options)
    return {"shapes": {shape: measure(shape, options, part, titled(say, shape)) for shape in options.shapes}}


def measure(shape: str, options: argparse.Namespace, part: Callable[..., Any], say: Say) -> Json:
    """One model: generation first, with the model as it is; then updates, of adapters where it is large.

    All generation is a part, since its arms take turns, and the update on each m.
    """
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    make_model = cache(lambda: shaped_model(shape, dtype=dtype, device=options.device))
    make_trained = cache(lambda: _with_adapters(make_model(), shape))
    found = part(f"{shape}, generation", lambda: _generated(make_model(), options, say))
    generated = {int(n): seconds for n, seconds in found["seconds"].items()}
    updates = {
        m: part(f"{shape}, m = {m}", lambda m=m: _updates(make_trained(), m, options, titled(say, f"m = {m}")))
        for m in sorted(options.kept)
    }
    return {
        "num_parameters": found["num_parameters"],
        "adapters": found["num_parameters"] >= LORA_FROM,
        "num_prompts": NUM_PROMPTS,
        "generation_seconds": generated,
        "updates": {m: {name: each for name, each in own.items() if name != "key"} for m, own in updates.items()},
        "steps": steps(
            {n: each["median"] for n, each in generated.items()},
            {m: each["seconds"]["median"] for m, each in updates.items()},
        ),
    }


def _generated(model: Any, options: argparse.Namespace, say: Say) -> Json:
    """Seconds of each n, in turns."""
    arms = {str(n): _generation(model, _work(n, options)) for n in sorted(options.rollouts)}
    made = take_turns(arms, options.repeats + 1, lambda text: say(f"n: {text}"))
    return {
        "num_parameters": model.num_parameters(),
        "seconds": {n: spread(seconds[1:]) for n, seconds in made.items()},
    }


def _with_adapters(model: Any, shape: str) -> Any:
    """The model with adapters, where it is large."""
    if model.num_parameters() < LORA_FROM:
        return model
    return add_adapters(model, LoraConfig(rank=64), base=shape, revision=None, seed=0)


def _work(num_rollouts: int, options: argparse.Namespace) -> Workload:
    sizes = {"prompt_tokens": options.prompt_tokens, "new_tokens": options.new_tokens, "num_prompts": NUM_PROMPTS}
    return fixed_workload(num_rollouts, **sizes)


def steps(generation: dict[int, float], update: dict[int, float]) -> dict[int, Json]:
    """n -> the seconds of GRPO and PODS steps with it, and what a rollout costs beside a trained row.

    Args:
        generation: n -> seconds of all prompts' rollouts.
        update: m -> seconds of the update.
    """
    found = {}
    for n in generation.keys() & update.keys():
        facts: Json = {"grpo": generation[n] + update[n], "price": generation[n] / update[n]}
        if n // SHARE in update:
            facts["pods"] = generation[n] + update[n // SHARE]
            facts["ratio"] = facts["grpo"] / facts["pods"]
        found[n] = facts
    return dict(sorted(found.items()))


def _generation(model: Any, work: Workload) -> Callable[[int], float]:
    arm = podsrl_engine(model, work, None)
    return lambda seed: arm(seed).taken.seconds


def _updates(model: Any, num_kept: int, options: argparse.Namespace, say: Say) -> Json:
    """Seconds, micro-batch and peak memory of the fastest micro-batch."""
    work = _work(num_kept, options)
    prompts = [prompt for prompt in work.prompts for _ in range(work.num_rollouts)]
    answer = [4 + i % 50 for i in range(work.max_new_tokens)]
    completions = [uniform_completion(i, answer) for i in range(work.num_rows)]
    batch = batch_of(prompts, completions, [(-1.0) ** i for i in range(work.num_rows)])
    found: dict[int, tuple[Spread, int]] = {}
    layout = ""
    for tokens in options.micro_batches:
        updater = Updater(model, OptimConfig(lr=1e-6, micro_batch_tokens=tokens), loss=ALGORITHMS["grpo"].loss)
        layout = updater.layout
        device = next(model.parameters()).device
        seconds, peak = [], 0
        start_peak(device)
        try:
            for number in range(options.repeats + 1):
                say(f"micro-batches of {tokens} tokens, round {number}")
                wait_for(options.device)
                clock = Clock()
                updater.forward_backward(batch)
                updater.optim_step()
                wait_for(options.device)
                seconds.append(clock.read().seconds)
                peak = max(peak, peak_bytes(device) or 0)  # on a GPU an update starts it anew
        except torch.cuda.OutOfMemoryError:
            model.zero_grad(set_to_none=True)
            continue
        finally:
            del updater
        found[tokens] = spread(seconds[1:]), peak
    if not found:
        raise PodsError(f"{work.num_rows} rows: no micro-batch of {options.micro_batches} tokens fits the memory")
    best = min(found, key=lambda tokens: found[tokens][0]["median"])
    return {
        "seconds": found[best][0],
        "micro_batch_tokens": best,
        "peak_bytes": found[best][1],
        "layout": layout,
        "all_seconds": {tokens: each["median"] for tokens, (each, _) in found.items()},
    }
