"""What a machine's tokens and rows cost.

`machine_price` is the price of a generated token in trained tokens, which `pods compare` takes as one of `prices`: an
average over whole stages at the config's own n, m and micro-batch, their fixed parts included. Scoring, selecting and
the rest do not count.

`machine_costs` are the three constants of `[costs]`, by which `max_signal` and `worth` decide: what one more group, one
more rollout and one more row take, everything included. They are the coefficients of two lines,

    generate + score + rest = a + b · P n            select + update = c + d · trained rows

with group = (a + c) / P, rollout = b and row = d.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from podsrl.config.schema import CostsConfig
from podsrl.plan.least_squares import Array, fit_nonnegative
from podsrl.plan.measured import GenerationProbe, Measurements, UpdateProbe, own_kept
from podsrl.plan.value import MIDDLE, NUM_RESAMPLES

LEAST_MS = 1e-4
"""Stands for a cost that did not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What tokens cost in the steps at the config's own sizes."""

    generated_token_seconds: float
    """Median over these steps of generation over all generated tokens."""
    trained_token_seconds: float
    """Median over these steps of the update over the tokens that it processed, once per epoch, without prompts."""
    point: float
    """The first over the second."""
    spread: tuple[float, float] | None
    """Middle 90 % of every step's first over every step's second; None where there was one of either."""


def machine_price(measured: Measurements) -> Price | None:
    """The price at the config's own sizes; None where none of these steps trained on a token."""
    config = measured.config
    sizes = config.rollouts.num_rollouts, own_kept(config), config.optim.micro_batch_tokens
    generated = [
        p.generate_seconds / p.generated for p in measured.generation if p.num_rollouts == sizes[0] and p.generated
    ]
    trained = [
        p.update_seconds / (p.trained_tokens * config.optim.num_epochs)
        for p in measured.updates
        if (p.num_rollouts, p.num_kept, p.micro_batch_tokens) == sizes and p.trained_tokens
    ]
    if not generated or not trained:
        return None
    by_generated, by_trained = float(np.median(generated)), float(np.median(trained))
    low, high = np.quantile(np.divide.outer(generated, trained), MIDDLE).tolist()
    return Price(
        generated_token_seconds=by_generated,
        trained_token_seconds=by_trained,
        point=by_generated / by_trained,
        spread=(low, high) if min(len(generated), len(trained)) > 1 else None,
    )


def machine_costs(measured: Measurements) -> CostsConfig | None:
    """The constants of `[costs]`, with their spread; None where one size of either stage was measured, so that no line
    can be told.

    The spread is that of the least certain cost: half the width of its middle 90 % over resampled measurements, as a
    share of it. It is 1 for a cost that did not show at all.
    """
    config, num_prompts = measured.config, measured.config.rollouts.num_prompts
    updates = [p for p in measured.updates if p.micro_batch_tokens == config.optim.micro_batch_tokens]
    by_size, by_rows = {p.num_rollouts for p in measured.generation}, {p.trained_rows for p in updates}
    if min(len(by_size), len(by_rows)) < 2:
        return None
    found = _costs(measured.generation, updates, num_prompts)
    random = np.random.default_rng(0)
    again = np.array(
        [
            _costs(_resampled(measured.generation, random), _resampled(updates, random), num_prompts)
            for _ in range(NUM_RESAMPLES)
        ]
    )
    low, high = np.quantile(again, MIDDLE, axis=0)
    spreads = np.where(found > LEAST_MS, (high - low) / 2 / found, 1.0)
    group, rollout, row = (float(f"{cost:.4g}") for cost in found)
    spread = float(f"{spreads.max():.2g}")
    return CostsConfig(group_ms=group, rollout_ms=rollout, row_ms=row, spread=spread, model=config.model.path)


def _costs(generation: Sequence[GenerationProbe], updates: Sequence[UpdateProbe], num_prompts: int) -> Array:
    """[3] milliseconds of a group, a rollout and a row."""
    fixed, rollout = fit_nonnegative(
        [[1, num_prompts * p.num_rollouts] for p in generation],
        [p.generate_seconds + p.score_seconds + p.rest_seconds for p in generation],
    )
    of_update, row = fit_nonnegative(
        [[1, p.trained_rows] for p in updates], [p.update_seconds + p.select_seconds for p in updates]
    )
    found = [(fixed + of_update) / num_prompts, rollout, row]
    return np.array([max(LEAST_MS, 1000 * seconds) for seconds in found])


ProbeT = TypeVar("ProbeT", GenerationProbe, UpdateProbe)


def _resampled(probes: Sequence[ProbeT], random: np.random.Generator) -> list[ProbeT]:
    """As many of them, drawn with replacement among those of the same size, so that every size stays."""
    sizes: dict[tuple[int, ...], list[ProbeT]] = defaultdict(list)
    for probe in probes:
        sizes[(probe.num_rollouts, getattr(probe, "num_kept", 0))].append(probe)
    return [of_size[i] for of_size in sizes.values() for i in random.integers(len(of_size), size=len(of_size))]
