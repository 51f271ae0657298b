"""Made-up measurements for the planner's tests: a machine whose costs are known exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from podsrl.config.load import load_config
from podsrl.plan.measured import GenerationProbe, Measurements, UpdateProbe
from podsrl.plan.rewards import RewardModel, Seen, Weighted

P, LENGTH = 8, 50.0


def from_pass_rate(pass_rate: float, concentration: float, *, length: float = 1.0) -> RewardModel:
    """Rewards 0 and 1 with pass rates Beta(c·p, c·(1 - p)) over questions."""
    right = np.array([False, True])
    rollouts = Seen(rewards=right.astype(np.float64), lengths=np.full(2, length), is_correct=right)
    mass = concentration * np.array([1 - pass_rate, pass_rate])
    unseen = Weighted(rollouts=Seen.of([]), mass=np.array([]))
    return RewardModel(base=Weighted(rollouts=rollouts, mass=mass), questions=(unseen,))


def generation(n: int, *, shared: float = 1.0, disturbed: float = 1.0, **changes: Any) -> GenerationProbe:
    """10 ms fixed in 100 decode steps of 0.1 ms, 2 µs a forwarded token, 1 µs a generated one."""
    generated = int(P * n * LENGTH)
    forwarded = int(generated * shared)
    values: dict[str, Any] = {
        "num_rollouts": n,
        "decode_steps": 100,
        "forwarded": forwarded,
        "generated": generated,
        "generate_seconds": disturbed * (100 * 1e-4 + 2e-6 * forwarded + 1e-6 * generated),
        "score_seconds": 0.001 + 1e-5 * n,
        "rest_seconds": 0.002,
        "kv_bytes": 1000 * n,
    }
    return GenerationProbe(**(values | changes))


def update(m: int, micro: int, rows: float, tokens: int, peak: int | None = None) -> UpdateProbe:
    slope = {1024: 2e-5, 4096: 1e-5}[micro]
    return UpdateProbe(
        num_rollouts=64,
        num_kept=m,
        micro_batch_tokens=micro,
        trained_rows=rows,
        trained_tokens=tokens,
        update_seconds=0.005 + 1e-4 * rows + slope * tokens,
        select_seconds=0.001 + 1e-5 * 64 + 2e-5 * m,
        peak_bytes=peak,
    )


def updates(peaks: bool = False) -> tuple[UpdateProbe, ...]:
    found = []
    for micro in (1024, 4096):
        for m, rows, tokens in ((2, 10, 900), (4, 30, 1300), (16, 100, 6000), (64, 400, 18_000)):
            filled = min(micro, tokens)
            found.append(update(m, micro, rows, tokens, 10**9 + 1000 * filled if peaks else None))
    return tuple(found)


def measurements(*probes: GenerationProbe, peaks: bool = False) -> Measurements:
    ones = np.ones(4)
    return Measurements(
        config=load_config("pods"),
        generation=probes,
        updates=updates(peaks),
        groups=(Seen(rewards=ones, lengths=ones, is_correct=ones > 0),),
        noise_ratio=None,
        memory_bytes=None,
    )
