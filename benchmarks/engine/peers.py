"""Tokens per second of the engine: the ratio to Hugging Face generate and to transformers' continuous batching.

    python -m benchmarks engine                   two models, then the recipe `pods`: about an hour on one core
    python -m benchmarks engine --quick           one small model and few prompts, about a minute
    python -m benchmarks engine --models s128     another model
    python -m benchmarks engine --json --save     all figures, also written below benchmarks/results/

All engines run in one process on one thread, with the same model object, the same sampling, and the same ragged prompts
with skewed lengths (`benchmarks/models.py`). The settings of each are tuned first on the whole workload; then all take
turns, in an order that rotates, and a ratio is taken within a round. Only tokens up to and including a completion's
stop token count. Beside that: the share of matrix products in our engine's time, and the cost of 64 instead of 16
rollouts in the recipe `pods`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

from benchmarks import command
from benchmarks.engine.arms import (
    Arm,
    Made,
    continuous_batching,
    has_vllm,
    hf_generate,
    new_vllm,
    podsrl_engine,
    vllm_engine,
)
from benchmarks.engine.demo import measure_demo
from benchmarks.models import SHAPES, Workload, shaped_model, skewed_workload
from benchmarks.operations import Operations
from benchmarks.timing import Say, ratios, spread, take_turns, titled

Setting = int | None
YARDSTICK = "HF generate, batch 256"
PEER = "transformers continuous batching"
OURS = "podsrl"
OWN_FORWARD = "podsrl, model's own forward"
VLLM = "vLLM"
YARDSTICK_BATCH = 256
CLEARLY = 1.05
"""Another batch size of Hugging Face generate becomes an arm where it was faster than the usual one by this factor."""
MAX_LENGTH_Z = 4.0
"""Mean lengths further apart than this many standard errors do not come from one distribution."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    models: tuple[str, ...] = ("s256", "s512")
    num_prompts: int = 64
    num_rollouts: int = 16
    rounds: int = 5
    hf_batches: tuple[int, ...] = (64, 256)  # 128, 512 and 1024 were no better, and take minutes
    batch_tokens: tuple[int, ...] = (16, 32, 64, 256)
    slots: tuple[Setting, ...] = (64, 128, 256, 512, None)
    demo_stages: tuple[int, ...] = (0, 20, 40)
    demo_repeats: int = 15


QUICK = Sizes(
    models=("s128",),
    num_prompts=4,
    rounds=3,
    hf_batches=(YARDSTICK_BATCH,),
    batch_tokens=(32,),
    slots=(64, None),
    demo_stages=(0,),
    demo_repeats=2,
)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("engine", __doc__)
    parser.add_argument("--quick", action="store_true", help="one small model and few prompts")
    parser.add_argument("--models", nargs="+", choices=SHAPES, help="shapes of random models")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure every model (`measure_model`), then the demo's stages (`measure_demo`)."""
    sizes = QUICK if options.quick else Sizes()
    if options.models:
        sizes = replace(sizes, models=tuple(options.models))
    return {
        "models": [measure_model(name, sizes, say) for name in sizes.models],
        "demo": measure_demo(sizes.demo_stages, sizes.demo_repeats, say),
    }


def measure_model(name: str, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Tune every engine on one model, then let them take turns."""
    model = shaped_model(name)
    work = skewed_workload(sizes.num_prompts, sizes.num_rollouts)
    tuned, arms = _tuned_arms(model, work, sizes, titled(say, name))
    made = take_turns(arms, sizes.rounds, titled(say, name))
    say(f"{name}: timing every operation")
    with Operations() as operations:
        arms[OURS](sizes.rounds)
    worst = max(length_z(_all_lengths(found), _all_lengths(made[YARDSTICK])) for found in made.values())
    return {
        "model": name,
        "parameters": model.num_parameters(),
        "num_completions": work.num_rows,
        "rounds": sizes.rounds,
        "tuning": tuned,
        "arms": [_arm_facts(arm, made, work) for arm in arms],
        "max_length_z": worst,
        "lengths_agree": worst < MAX_LENGTH_Z,
        "op_time": {"matmul": operations.share("products")},
    }


def _tuned_arms(model: Any, work: Workload, sizes: Sizes, say: Say) -> tuple[dict[str, Any], dict[str, Arm]]:
    """Each engine with its best setting -> (rates found by tuning, arms in the order of the table)."""
    hf_rates, hf_best = _tune(partial(hf_generate, model, work), sizes.hf_batches, 1, lambda t: say(f"HF batch {t}"))
    cb_rates, cb_best = _tune(
        partial(continuous_batching, model, work), sizes.batch_tokens, 2, lambda t: say(f"max_batch_tokens {t}")
    )
    our_rates, slots = _tune(partial(podsrl_engine, model, work), sizes.slots, 2, lambda t: say(f"num_slots {t}"))
    arms = {YARDSTICK: hf_generate(model, work, YARDSTICK_BATCH)}
    if hf_best is not None and hf_rates[str(hf_best)] > CLEARLY * hf_rates.get(str(YARDSTICK_BATCH), 0.0):
        arms[f"HF generate, batch {hf_best}"] = hf_generate(model, work, hf_best)
    arms[PEER] = continuous_batching(model, work, cb_best)
    arms[OURS] = podsrl_engine(model, work, slots)
    arms[OWN_FORWARD] = podsrl_engine(model, work, slots, "model")
    if has_vllm():
        arms[VLLM] = vllm_engine(
            new_vllm(model, work.num_rows, max(map(len, work.prompts)) + work.max_new_tokens), work
        )
    tuned = {
        "hf_batch": {"rates": hf_rates, "best": hf_best},
        "max_batch_tokens": {"rates": cb_rates, "best": cb_best},
        "num_slots": {"rates": our_rates, "best": slots},
    }
    return tuned, arms


def _tune(
    make: Callable[[Any], Arm], settings: Sequence[Setting], runs: int, say: Say
) -> tuple[dict[str, float], Setting]:
    """Tokens per CPU second of each setting, the best of `runs`, and the setting that was fastest."""
    rates: dict[Setting, float] = {}
    for setting in settings:
        say(str(setting))
        arm = make(setting)
        rates[setting] = max(arm(seed).tokens_per_cpu_second for seed in range(runs))
    return {str(key): rate for key, rate in rates.items()}, max(rates, key=lambda key: rates[key])


def _arm_facts(name: str, made: Mapping[str, list[Made]], work: Workload) -> dict[str, Any]:
    """Rates and ratios; those by CPU seconds do not count what other processes take from a busy machine."""
    rates = {arm: [one.tokens_per_second for one in found] for arm, found in made.items()}
    cpu_rates = {arm: [one.tokens_per_cpu_second for one in found] for arm, found in made.items()}
    lengths = _all_lengths(made[name])
    return {
        "arm": name,
        "tokens_per_second": spread(rates[name]),
        "tokens_per_cpu_second": spread(cpu_rates[name]),
        "ratio_to_hf": ratios(rates[name], rates[YARDSTICK]),
        "ratio_to_hf_by_cpu": ratios(cpu_rates[name], cpu_rates[YARDSTICK]),
        "ratio_to_continuous_batching": ratios(rates[name], rates[PEER]),
        "ratio_to_continuous_batching_by_cpu": ratios(cpu_rates[name], cpu_rates[PEER]),
        "mean_length": statistics.fmean(lengths),
        "share_at_limit": sum(length == work.max_new_tokens for length in lengths) / len(lengths),
    }


def _all_lengths(made: Sequence[Made]) -> list[int]:
    return [length for one in made for length in one.lengths]


def length_z(lengths: Sequence[int], others: Sequence[int]) -> float:
    """Distance of two mean lengths in standard errors; 0 for a sample and itself."""
    error = sqrt(statistics.variance(lengths) / len(lengths) + statistics.variance(others) / len(others))
    gap = abs(statistics.fmean(lengths) - statistics.fmean(others))
    return gap / error if error > 0 else float(gap > 0) * MAX_LENGTH_Z
