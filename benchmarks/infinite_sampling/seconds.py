"""Schedules timed in the engine on groups of skewed lengths; every schedule makes the same completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from benchmarks.infinite_sampling.paper import Probe, make_schedule
from benchmarks.infinite_sampling.predict import LengthRegression
from benchmarks.models import MAX_NEW_TOKENS, STOP_TOKEN_IDS, shaped_model
from benchmarks.timing import Clock, Say, ratios, take_turns
from podsrl.generate import Engine, EngineStats, Request, Sampling, Watch
from podsrl.generate.schedule.job import Limits

SCHEDULERS = ("full", "micro", "continuous", "continuous+ljf", "probed+ljf", "dynamic")
ROUNDS = 7
PROMPT = tuple(range(4, 20))
PROBE_AT = 16
"""Tokens after which "probed" predicts."""


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


def measure_engine(quick: bool = False, say: Say = lambda text: None) -> dict[str, Any]:
    """Time each scheduler in turn on `ROUNDS` groups after one unmeasured group; ratios are to micro and to full."""
    model_name, num_rollouts, rounds = ("s128", 32, 1) if quick else ("s256", 128, ROUNDS)
    timed = _measure(shaped_model(model_name), num_rollouts, rounds, say)
    return {
        "model": model_name,
        "num_rollouts": num_rollouts,
        "num_slots": num_rollouts // 4,
        "rounds": rounds,
        "arms": [_arm(name, runs, timed["micro"], timed["full"]) for name, runs in timed.items()],
    }


def _measure(model: Any, num_rollouts: int, rounds: int, say: Say) -> dict[str, list[Timed]]:
    sampling = Sampling(max_new_tokens=MAX_NEW_TOKENS, stop_token_ids=STOP_TOKEN_IDS)
    token_bytes = Engine(model).forward.layout.token_bytes

    def arm(name: str) -> Callable[[int], Timed]:
        engine, watch = _engine(model, name, num_rollouts, token_bytes)
        return lambda number: _time(engine, Request(f"group {number}", PROMPT, num_rollouts, sampling), watch)

    timed = take_turns({name: arm(name) for name in SCHEDULERS}, rounds + 1, say)
    return {name: runs[1:] for name, runs in timed.items()}  # the first of each warms up


def _engine(model: Any, name: str, num_rollouts: int, token_bytes: int) -> tuple[Engine, Watch | None]:
    """Full groups have one slot per rollout, the others a quarter of that; dynamic ones a quarter of the memory."""
    num_slots = num_rollouts // 4
    if name == "dynamic":
        row_tokens = len(PROMPT) + MAX_NEW_TOKENS
        return Engine(model, scheduler=name, kv_cache_bytes=num_slots * row_tokens * token_bytes), None
    num_slots = num_rollouts if name == "full" else num_slots
    if name == "continuous":
        return Engine(model, scheduler=name, num_slots=num_slots), None
    is_probed = name.startswith("probed")
    schedule = make_schedule(name, Limits(num_slots=num_slots), LengthRegression(PROBE_AT if is_probed else None))
    return Engine(model, scheduler=schedule, num_slots=num_slots), Probe(schedule) if is_probed else None


def _time(engine: Engine, request: Request, watch: Watch | None) -> Timed:
    engine.stats, engine.peak_kv_bytes = EngineStats(), 0
    clock = Clock()
    completions = list(engine.generate([request], watch=watch))
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
