"""Tokens per second on a GPU: our engine, Hugging Face generate, transformers' continuous batching, and the floor.

    python benchmarks/engine_gpu.py                     random models of Qwen2.5's shapes at 0.5B and 3B, bfloat16
    python benchmarks/engine_gpu.py --shapes s128 --rollouts 4 8 --curve 2 4 --new-tokens 8         a toy, anywhere

All completions have the same length, so that a floor can be stated: a decode step must read all weights and the keys
and values of every rollout once, at the bandwidth that a large copy on the same device reaches. The curve is our engine
alone, from few to many rollouts. Writes benchmarks/results/engine_gpu.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine.arms import Arm, continuous_batching, hf_generate, podsrl_engine
from benchmarks.models import SHAPES, Workload, fixed_workload, shaped_model
from podsrl.lib.machine import hardware_line

RESULT = Path(__file__).parents[1] / "results" / "engine_gpu.json"
NUM_PROMPTS = 8
"""Rollouts are shared out over at most so many prompts."""
CPU_BATCH_TOKENS = 32
COPY_BYTES = {"cuda": 4 << 30, "cpu": 256 << 20}


def main(options: argparse.Namespace) -> dict[str, Any]:
    """Measure every shape at every number of rollouts."""
    bandwidth = copy_bandwidth(options.device)
    cells = [measure(shape, options, bandwidth) for shape in options.shapes]
    return {"hardware": hardware_line(), "bandwidth_bytes_per_second": bandwidth, "options": vars(options)} | dict(
        zip(options.shapes, cells, strict=True)
    )


def measure(shape: str, options: argparse.Namespace, bandwidth: float) -> dict[str, Any]:
    """One model: all engines at `options.rollouts`, ours alone at `options.curve`."""
    model = shaped_model(shape, dtype=getattr(torch, options.dtype), device=options.device)
    found: dict[str, Any] = {"rollouts": {}, "curve": {}}
    for n in sorted({*options.rollouts, *options.curve}):
        prompts = min(NUM_PROMPTS, n)
        work = fixed_workload(
            n // prompts, num_prompts=prompts, prompt_tokens=options.prompt_tokens, new_tokens=options.new_tokens
        )
        arms: dict[str, Arm] = {"podsrl": podsrl_engine(model, work, None)}
        if n in options.rollouts:
            tokens = CPU_BATCH_TOKENS if options.device == "cpu" else None
            arms["HF generate"] = hf_generate(model, work, work.num_rows)
            arms["transformers continuous batching"] = continuous_batching(model, work, tokens)
        rates = take_turns(arms, options.repeats)
        floor = floor_rate(model, work, bandwidth)
        found["curve"][n] = statistics.median(rates["podsrl"])
        if n in options.rollouts:
            found["rollouts"][n] = cell(rates, floor)
        print(shape, n, {name: round(statistics.median(values)) for name, values in rates.items()}, round(floor))
    found["curve_ratio"] = found["curve"][max(options.curve)] / found["curve"][min(options.curve)]
    return found


def take_turns(arms: dict[str, Arm], repeats: int) -> dict[str, list[float]]:
    """Tokens per second, after one unmeasured round."""
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for repeat in range(repeats + 1):
        for name, arm in arms.items():
            gc.collect()
            rates[name].append(arm(repeat).tokens_per_second)
    return {name: values[1:] for name, values in rates.items()}


def cell(rates: dict[str, list[float]], floor: float) -> dict[str, Any]:
    """Medians with spread, our ratio to each peer round by round, and every engine's share of the floor."""
    ours = rates["podsrl"]
    return {
        "floor": floor,
        "tokens_per_second": {name: _spread(values) for name, values in rates.items()},
        "share_of_floor": {name: statistics.median(values) / floor for name, values in rates.items()},
        "ratio_of_podsrl_to": {
            name: _spread([a / b for a, b in zip(ours, values, strict=True)])
            for name, values in rates.items()
            if name != "podsrl"
        },
    }


def floor_rate(model: Any, work: Workload, bandwidth: float) -> float:
    """Most tokens per second that the memory's bandwidth allows: weights and all keys and values, read once a step."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    config = model.config
    if not config.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.nbytes  # a step reads a few of its rows
    head = config.hidden_size // config.num_attention_heads
    a_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head * model.dtype.itemsize
    mean_length = len(work.prompts[0]) + work.max_new_tokens / 2
    rate: float = work.num_rows * bandwidth / (weights + work.num_rows * mean_length * a_token)
    return rate


def copy_bandwidth(device: str, repeats: int = 7) -> float:
    """Bytes per second of a large copy, read and written bytes both counted; the best of `repeats`."""
    source = torch.empty(COPY_BYTES[device], dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    rates = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        target.copy_(source)
        _wait(device)
        rates.append(2 * source.nbytes / (time.perf_counter() - start))
    return max(rates)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Options; the defaults are the full measurement."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.5b", "3b"])
    parser.add_argument("--rollouts", nargs="+", type=int, default=[16, 64, 256, 512])
    parser.add_argument("--curve", nargs="+", type=int, default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", choices=["cuda", "cpu"], default=device)
    parser.add_argument(
        "--dtype", choices=["bfloat16", "float32"], default="bfloat16" if device == "cuda" else "float32"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    result = main(parse())
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
