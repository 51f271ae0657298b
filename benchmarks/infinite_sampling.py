"""Tokens per second where the memory does not hold a whole group, beside groups that run one after the other.

    python -m benchmarks infinite-sampling            128 rollouts of a small model, 7 rounds: some minutes on one core
    python -m benchmarks infinite-sampling --quick    32 rollouts, one round

The lengths are geometric. "full" runs all rollouts at once; "micro" runs a quarter of them and begins the next quarter
when the last one has ended; "continuous" and "dynamic" are the schedulers that ship, in the memory of a quarter. Every
schedule makes the same completions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from benchmarks import command
from benchmarks.models import MAX_NEW_TOKENS, STOP_TOKEN_IDS, shaped_model
from benchmarks.timing import Clock, Say, ratios, take_turns
from podsrl.generate import Engine, EngineStats, Request, Sampling
from podsrl.generate.schedule.continuous import Continuous
from podsrl.generate.schedule.job import Job, Limits

SCHEDULES = ("full", "micro", "continuous", "dynamic")
ROUNDS = 7
PROMPT = tuple(range(4, 20))


class Micro(Continuous):
    """Rounds of `num_slots` jobs; the next one begins when the last has ended."""

    def admit(self, running: Sequence[Job]) -> list[Job]:
        """A whole round, or nothing."""
        return [] if running else super().admit(running)


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


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("infinite-sampling", __doc__)
    parser.add_argument("--quick", action="store_true", help="32 rollouts of a smaller model, one round")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> dict[str, Any]:
    """Time each schedule in turn after one group that is not measured; ratios are to micro and to full."""
    model_name, num_rollouts, rounds = ("s128", 32, 1) if options.quick else ("s256", 128, ROUNDS)
    timed = _measure(shaped_model(model_name), num_rollouts, rounds, say)
    engine = {
        "model": model_name,
        "num_rollouts": num_rollouts,
        "num_slots": num_rollouts // 4,
        "rounds": rounds,
        "arms": [_arm(name, runs, timed["micro"], timed["full"]) for name, runs in timed.items()],
    }
    return {"engine": engine}


def _measure(model: Any, num_rollouts: int, rounds: int, say: Say) -> dict[str, list[Timed]]:
    sampling = Sampling(max_new_tokens=MAX_NEW_TOKENS, stop_token_ids=STOP_TOKEN_IDS)
    token_bytes = Engine(model).forward.layout.token_bytes

    def arm(name: str) -> Callable[[int], Timed]:
        engine = _engine(model, name, num_rollouts, token_bytes)
        return lambda number: _time(engine, Request(f"group {number}", PROMPT, num_rollouts, sampling))

    timed = take_turns({name: arm(name) for name in SCHEDULES}, rounds + 1, say)
    return {name: runs[1:] for name, runs in timed.items()}  # the first of each warms up


def _engine(model: Any, name: str, num_rollouts: int, token_bytes: int) -> Engine:
    """Full groups have one slot per rollout, the others a quarter of that; dynamic ones a quarter of the memory."""
    num_slots = num_rollouts // 4
    if name == "dynamic":
        row_tokens = len(PROMPT) + MAX_NEW_TOKENS
        return Engine(model, scheduler=name, kv_cache_bytes=num_slots * row_tokens * token_bytes)
    if name == "micro":
        return Engine(model, scheduler=Micro(Limits(num_slots=num_slots)), num_slots=num_slots)
    return Engine(model, num_slots=num_rollouts if name == "full" else num_slots)


def _time(engine: Engine, request: Request) -> Timed:
    engine.stats, engine.peak_kv_bytes = EngineStats(), 0
    clock = Clock()
    completions = list(engine.generate([request]))
    seconds = clock.read().seconds
    return Timed(seconds, {c.index: c.token_ids for c in completions}, engine.stats, engine.peak_kv_bytes)


def _arm(name: str, runs: Sequence[Timed], micro: Sequence[Timed], full: Sequence[Timed]) -> dict[str, Any]:
    return {
        "schedule": name,
        "tokens_per_second": median(run.num_tokens / run.seconds for run in runs),
        "tokens_per_second_to_micro": ratios([run.seconds for run in micro], [run.seconds for run in runs]),
        "steps": fmean(run.stats.steps for run in runs),
        "slots_used": max(run.stats.slots_used for run in runs),
        "reread_share": fmean(run.stats.recomputed_tokens / run.num_tokens for run in runs),
        "kv_bytes": max(run.kv_bytes for run in runs),
        "kv_bytes_to_full": fmean(run.kv_bytes / whole.kv_bytes for run, whole in zip(runs, full, strict=True)),
        "is_same_as_full": all(run.tokens == whole.tokens for run, whole in zip(runs, full, strict=True)),
    }
