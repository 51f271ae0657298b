"""How TRL computes fastest on this machine, measured before the seeds that count."""

from __future__ import annotations

import statistics
from contextlib import closing
from typing import Any

from benchmarks.timing import Say
from benchmarks.trl_accuracy.arms import Sizes, Way, new_arm
from podsrl.config.files import read_tree

TUNE_SEED = 100
"""Counts for nothing else."""
_BATCH_TOKENS = 256
"""Per step of transformers' continuous batching."""
Json = dict[str, Any]


def ways(num_rollouts: int) -> list[Way]:
    """How TRL may compute: in one micro-batch or in four, with `generate` or with continuous batching."""
    rows = read_tree("demo")["base"]["rollouts"]["num_prompts"] * num_rollouts
    return [Way(rows), Way(rows // 4), Way(rows, "continuous batching", _BATCH_TOKENS)]


def best_way(sizes: Sizes, say: Say, *, is_first: bool = False) -> tuple[Way | None, Json]:
    """The way with the least processor time of a step, and the seconds of each; None for podsrl's own trainer.

    With `is_first`, the first way, and nothing is tried.
    """
    if sizes.trainer == "podsrl":
        return None, {}
    if is_first:
        return ways(sizes.num_rollouts)[0], {}
    tried: dict[Way, float] = {}
    for way in ways(sizes.num_rollouts):
        say(f"{way.generation}, {way.rows_at_once} rows at once")
        with closing(new_arm(sizes, way, seed=TUNE_SEED, budget=1.0)) as arm:
            arm.step()  # warm
            tried[way] = statistics.median(arm.step().cpu_seconds for _ in range(2))
    texts = {f"{way.generation}, {way.rows_at_once} rows": round(seconds, 3) for way, seconds in tried.items()}
    return min(tried, key=lambda way: tried[way]), texts
