"""Tokens per second on a GPU: our engine, vLLM, both of transformers' ways to generate, and a lower bound.

    python -m benchmarks engine-gpu                     random models of Qwen2.5's shapes at 0.5B and 3B, bfloat16
    python -m benchmarks engine-gpu --shapes s128 --rollouts 4 8 --curve 2 4 --new-tokens 8       small, on any machine

All completions have the same length, so that a bound can be computed: a decode step must read all weights and the keys
and values of every rollout once, at the bandwidth that a large copy on the same device reaches. The curve is our engine
alone, from few to many rollouts. vLLM takes part where it is installed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch

from benchmarks import command
from benchmarks.engine.arms import Arm, continuous_batching, has_vllm, hf_generate, new_vllm, podsrl_engine, vllm_engine
from benchmarks.models import SHAPES, Workload, fixed_workload, shaped_model
from benchmarks.timing import Say, ratios, spread, take_turns, titled, wait_for

NUM_PROMPTS = 8
"""At most this many different prompts."""
CPU_BATCH_TOKENS = 32
COPY_BYTES = {"cuda": 4 << 30, "cpu": 256 << 20}


def main(arguments: Sequence[str]) -> None:
    parser = command.new_gpu_parser("engine-gpu", __doc__)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.5b", "3b"])
    parser.add_argument("--rollouts", nargs="+", type=int, default=[16, 64, 256, 512], help="for all engines")
    parser.add_argument("--curve", nargs="+", type=int, default=[8, 16, 32, 64, 128, 256, 512], help="for ours alone")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    dtype = "bfloat16" if parser.get_default("device") == "cuda" else "float32"
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default=dtype)
    command.measure(parser, arguments, run, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure every shape at every number of rollouts."""
    part = command.parts_of(options)
    bandwidth = part("bandwidth", lambda: {"bytes": copy_bandwidth(options.device)})["bytes"]
    shapes = {shape: measure(shape, options, bandwidth, part, say) for shape in options.shapes}
    return {"bandwidth_bytes_per_second": bandwidth, **shapes}


def measure(
    shape: str, options: argparse.Namespace, bandwidth: float, part: Callable[..., Any], say: Say
) -> dict[str, Any]:
    """One model: all engines at `options.rollouts`, ours alone at `options.curve`; each n is a part."""
    make_model = cache(lambda: shaped_model(shape, dtype=getattr(torch, options.dtype), device=options.device))
    make_vllm = cache(
        partial(new_vllm, most_rows=max(options.rollouts), most_tokens=options.prompt_tokens + options.new_tokens)
    )
    found: dict[str, Any] = {"rollouts": {}, "curve": {}}
    for n in sorted({*options.rollouts, *options.curve}):
        own = part(
            f"{shape}, n = {n}",
            lambda n=n: measure_at(n, make_model(), make_vllm, options, bandwidth, titled(say, shape)),
        )
        found["curve"][n] = own["tokens_per_second"]["podsrl"]["median"]
        if n in options.rollouts:
            found["rollouts"][n] = {name: each for name, each in own.items() if name != "key"}
    found["curve_ratio"] = found["curve"][max(options.curve)] / found["curve"][min(options.curve)]
    return found


def measure_at(
    n: int, model: Any, make_vllm: Callable[[Any], Any], options: argparse.Namespace, bandwidth: float, say: Say
) -> dict[str, Any]:
    """So many rollouts at once: by all engines where `options.rollouts` has the number, else by ours alone."""
    prompts = min(NUM_PROMPTS, n)
    work = fixed_workload(
        n // prompts, num_prompts=prompts, prompt_tokens=options.prompt_tokens, new_tokens=options.new_tokens
    )
    arms: dict[str, Arm] = {"podsrl": podsrl_engine(model, work, None)}
    if n in options.rollouts:
        tokens = CPU_BATCH_TOKENS if options.device == "cpu" else None
        if options.device == "cuda":
            arms["podsrl without graphs"] = podsrl_engine(model, work, None, "fast")
        arms["HF generate"] = hf_generate(model, work, work.num_rows)
        arms["transformers continuous batching"] = continuous_batching(model, work, tokens)
        if has_vllm():
            arms["vLLM"] = vllm_engine(make_vllm(model), work)
    made = take_turns(arms, options.repeats + 1, titled(say, f"n = {n}"))
    rates = {name: [each.tokens_per_second for each in each_run[1:]] for name, each_run in made.items()}
    return cell(rates, floor_rate(model, work, bandwidth))


def cell(rates: dict[str, list[float]], floor: float) -> dict[str, Any]:
    """Medians with spread, our ratio to each peer round by round, and every engine's share of the floor."""
    ours = rates["podsrl"]
    return {
        "floor": floor,
        "tokens_per_second": {name: spread(values) for name, values in rates.items()},
        "share_of_floor": {name: statistics.median(values) / floor for name, values in rates.items()},
        "ratio_of_podsrl_to": {name: ratios(ours, values) for name, values in rates.items() if name != "podsrl"},
    }


def floor_rate(model: Any, work: Workload, bandwidth: float) -> float:
    """The most tokens per second that the memory bandwidth allows: a step reads all weights, keys and values once."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    config = model.config
    if not config.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.nbytes  # a step reads only a few of its rows
    head = config.hidden_size // config.num_attention_heads
    token_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * head * model.dtype.itemsize
    mean_length = len(work.prompts[0]) + work.max_new_tokens / 2
    rate: float = work.num_rows * bandwidth / (weights + work.num_rows * mean_length * token_bytes)
    return rate


def copy_bandwidth(device: str, repeats: int = 7) -> float:
    """Bytes per second of a large copy, read and written bytes both counted; the best of `repeats`."""
    source = torch.empty(COPY_BYTES[device], dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    rates = []
    for _ in range(repeats):
        wait_for(device)
        start = time.perf_counter()
        target.copy_(source)
        wait_for(device)
        rates.append(2 * source.nbytes / (time.perf_counter() - start))
    return max(rates)
