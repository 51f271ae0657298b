"""Made-up measurements for the planner's tests: a machine whose costs are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from podsrl.config.load import load_config
from podsrl.plan.measured import Measurements, StepProbe, UpdateProbe
from podsrl.plan.rewards import RewardModel, Seen, Weighted
from podsrl.plan.value import GradientProbe

P, LENGTH = 8, 50.0


def from_pass_rate(pass_rate: float, concentration: float, *, length: float = 1.0) -> RewardModel:
    """Rewards 0 and 1 with pass rates Beta(c·p, c·(1 - p)) over questions."""
    right = np.array([False, True])
    rollouts = Seen(rewards=right.astype(np.float64), lengths=np.full(2, length), is_correct=right)
    mass = concentration * np.array([1 - pass_rate, pass_rate])
    unseen = Weighted(rollouts=Seen.of([]), mass=np.array([]))
    return RewardModel(base=Weighted(rollouts=rollouts, mass=mass), questions=(unseen,))


def seen_groups(pass_rate: float = 0.2, num_groups: int = 40) -> tuple[Seen, ...]:
    """Groups of 64 rollouts of 50 tokens."""
    drawn = from_pass_rate(pass_rate, 5.0, length=LENGTH).draw(64, num_groups)
    rows = zip(drawn.rewards, drawn.lengths, drawn.is_correct, strict=True)
    return tuple(Seen(rewards=r, lengths=length, is_correct=c) for r, length, c in rows)


def update(m: int, rows: float, tokens: int, n: int = 64, noise: float | None = None, **changes: Any) -> UpdateProbe:
    """5 ms fixed, 0.1 ms a trained row, 10 µs a trained token; a squared norm of signal² + κ · noise."""
    signal, spread = 1 + m / 100, 1 / m
    values: dict[str, Any] = {
        "num_kept": m,
        "trained_rows": rows,
        "trained_tokens": tokens,
        "update_seconds": 0.005 + 1e-4 * rows + 1e-5 * tokens,
        "select_seconds": 0.001 + 1e-5 * n + 2e-5 * m,
        "gradient": GradientProbe(
            num_kept=m,
            squared_norm=0.0 if noise is None else signal + noise * spread,
            squared_signal=signal,
            noise=spread,
        ),
    }
    return UpdateProbe(**(values | changes))


def updates(n: int = 64, noise: float | None = None) -> tuple[UpdateProbe, ...]:
    sizes = ((2, 10, 900), (4, 30, 1300), (16, 100, 6000), (64, 400, 18_000))
    return tuple(update(m, rows, tokens, n, noise) for m, rows, tokens in sizes)


def step(
    n: int, *, shared: float = 1.0, disturbed: float = 1.0, noise: float | None = None, **changes: Any
) -> StepProbe:
    """10 ms fixed in 100 decode steps of 0.1 ms, 2 µs a forwarded token, 1 µs a generated one."""
    generated = int(P * n * LENGTH)
    forwarded = int(generated * shared)
    ones = np.ones(4)
    values: dict[str, Any] = {
        "num_rollouts": n,
        "decode_steps": 100,
        "forwarded": forwarded,
        "generated": generated,
        "generate_seconds": disturbed * (100 * 1e-4 + 2e-6 * forwarded + 1e-6 * generated),
        "score_seconds": 0.001 + 1e-5 * n,
        "rest_seconds": 0.002,
        "updates": updates(n, noise),
        "groups": (Seen(rewards=ones, lengths=ones, is_correct=ones > 0),),
    }
    return StepProbe(**(values | changes))


def measurements(*steps: StepProbe, overrides: Sequence[str] = ()) -> Measurements:
    return Measurements(config=load_config("pods", overrides), steps=steps)


def scattered(scatter: float, seed: int = 0, rounds: int = 6) -> Measurements:
    """Six rounds of the made-up machine, each second off by a factor that is uniform in 1 ± scatter."""
    random = np.random.default_rng(seed)

    def factor() -> float:
        return float(random.uniform(1 - scatter, 1 + scatter))

    steps = []
    for n in (16, 64, 128) * rounds:
        own = tuple(replace(each, update_seconds=each.update_seconds * factor()) for each in updates(n))
        steps.append(step(n, shared=4 / n**0.5, disturbed=factor(), updates=own))
    return measurements(*steps)
