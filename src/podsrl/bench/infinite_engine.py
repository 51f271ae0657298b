"""Schedules timed in the engine: groups of skewed lengths, all in one process, the same completions from each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import torch

from podsrl.bench.engine_models import MAX_NEW_TOKENS, STOP_TOKEN_IDS, shaped_model
from podsrl.generate import Engine, EngineStats, Request, Sampling

SCHEDULERS = ("full", "micro", "continuous", "continuous+ljf", "probed+ljf", "dynamic")
ROUNDS = 7
PROMPT = tuple(range(4, 20))


@dataclass(frozen=True, slots=True)
class Timed:
    """One group made by one scheduler."""

    seconds: float
    tokens: dict[int, tuple[int, ...]]
    """Rollout index -> token ids."""
    stats: EngineStats
    kv_bytes: int

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens.values()))


def measure_engine(quick: bool = False) -> dict[str, Any]:
    """Time each scheduler in turn on `ROUNDS` groups after one unmeasured group, on one thread.

    Returns:
        JSON-able: model, num_rollouts, num_slots, rounds, and `arms`: tokens per second (median) and its ratio to micro
        groups on the same group, mean steps, peak KV bytes to full-group decoding's (mean), whether all completions
        are the same.
    """
    model_name, num_rollouts, rounds = ("s128", 32, 1) if quick else ("s256", 128, ROUNDS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        timed = _measure(shaped_model(model_name), num_rollouts, rounds)
    finally:
        torch.set_num_threads(threads)
    return {
        "model": model_name,
        "num_rollouts": num_rollouts,
        "num_slots": num_rollouts // 4,
        "rounds": rounds,
        "arms": [_arm(name, runs, timed["micro"], timed["full"]) for name, runs in timed.items()],
    }


def _measure(model: Any, num_rollouts: int, rounds: int) -> dict[str, list[Timed]]:
    sampling = Sampling(max_new_tokens=MAX_NEW_TOKENS, stop_token_ids=STOP_TOKEN_IDS)
    token_bytes = Engine(model).forward.layout.token_bytes
    engines = {name: _engine(model, name, num_rollouts, token_bytes) for name in SCHEDULERS}
    timed: dict[str, list[Timed]] = {name: [] for name in SCHEDULERS}
    for number in range(rounds + 1):
        request = Request(f"group {number}", PROMPT, num_rollouts, sampling)
        turn = number % len(SCHEDULERS)
        for name in SCHEDULERS[turn:] + SCHEDULERS[:turn]:
            timed[name].append(_time(engines[name], request))
    return {name: runs[1:] for name, runs in timed.items()}  # the first of each warms up


def _engine(model: Any, name: str, num_rollouts: int, token_bytes: int) -> Engine:
    """Full groups have a slot a rollout, dynamic ones the memory of a quarter of the slots, the others a quarter."""
    num_slots = num_rollouts // 4
    if name == "dynamic":
        row_tokens = len(PROMPT) + MAX_NEW_TOKENS
        return Engine(model, scheduler=name, kv_cache_bytes=num_slots * row_tokens * token_bytes)
    return Engine(model, scheduler=name, num_slots=num_rollouts if name == "full" else num_slots)


def _time(engine: Engine, request: Request) -> Timed:
    engine.stats, engine.peak_kv_bytes = EngineStats(), 0
    start = time.perf_counter()
    completions = list(engine.generate([request]))
    seconds = time.perf_counter() - start
    return Timed(seconds, {c.index: c.token_ids for c in completions}, engine.stats, engine.peak_kv_bytes)


def _arm(name: str, runs: Sequence[Timed], micro: Sequence[Timed], full: Sequence[Timed]) -> dict[str, Any]:
    ratios = [theirs.seconds / ours.seconds for ours, theirs in zip(runs, micro, strict=True)]
    return {
        "schedule": name,
        "tokens_per_second": median(run.num_tokens / run.seconds for run in runs),
        "tokens_per_second_to_micro": {"median": median(ratios), "min": min(ratios), "max": max(ratios)},
        "steps": fmean(run.stats.steps for run in runs),
        "slots_used": max(run.stats.slots_used for run in runs),
        "reread_share": fmean(run.stats.recomputed_tokens / run.num_tokens for run in runs),
        "kv_bytes": max(run.kv_bytes for run in runs),
        "kv_bytes_to_full": fmean(run.kv_bytes / whole.kv_bytes for run, whole in zip(runs, full, strict=True)),
        "is_same_as_full": all(run.tokens == whole.tokens for run, whole in zip(runs, full, strict=True)),
    }
