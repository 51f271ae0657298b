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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from podsrl.config.schema import CostsConfig
from podsrl.plan.least_squares import Array, fit_nonnegative
from podsrl.plan.measured import Measurements, own_kept
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
    """The constants of `[costs]`, with their spread; None where no line can be told, since all updates trained on as
    many rows, as on none where no group had a signal.

    The spread is that of the least certain cost: half the width of its middle 90 %, as a share of it, over measurements
    that are drawn anew about the lines. It is 1 for a cost that did not show, or a line of as many points as it has
    terms.
    """
    config, num_prompts = measured.config, measured.config.rollouts.num_prompts
    updates = [p for p in measured.updates if p.micro_batch_tokens == config.optim.micro_batch_tokens]
    sizes, rows = [p.num_rollouts for p in measured.generation], [p.trained_rows for p in updates]
    if min(len({*sizes}), len({*rows})) < 2:
        return None
    counts = [np.array([[1, num_prompts * size] for size in sizes]), np.array([[1, each] for each in rows])]
    before = np.array([p.generate_seconds + p.score_seconds + p.rest_seconds for p in measured.generation])
    seconds = [before, np.array([p.update_seconds + p.select_seconds for p in updates])]
    found, spread = _costs(counts, seconds, num_prompts), 1.0
    if min(len(sizes), len(rows)) > 2 and found.min() > LEAST_MS:
        random = np.random.default_rng(0)
        pairs = list(zip(counts, seconds, strict=True))
        again = [
            _costs(counts, [_drawn_anew(*pair, random) for pair in pairs], num_prompts) for _ in range(NUM_RESAMPLES)
        ]
        low, high = np.quantile(again, MIDDLE, axis=0)
        spread = float(((high - low) / 2 / found).max())
    group, rollout, row = (float(f"{cost:.4g}") for cost in found)
    spread = float(f"{spread:.2g}")
    return CostsConfig(group_ms=group, rollout_ms=rollout, row_ms=row, spread=spread, model=config.model.path)


def _costs(counts: Sequence[Array], seconds: Sequence[Array], num_prompts: int) -> Array:
    """[3] milliseconds of a group, a rollout and a row, by the lines of generation and of the update."""
    (fixed, rollout), (of_update, row) = map(fit_nonnegative, counts, seconds)
    found = [(fixed + of_update) / num_prompts, rollout, row]
    return np.array([max(LEAST_MS, 1000 * seconds) for seconds in found])


def _drawn_anew(counts: Array, seconds: Array, random: np.random.Generator) -> Array:
    """[N] seconds as they might have been measured: the line's, each times the distance of one of them from it.

    The distances are widened by what the fit itself took away. So points without repeats tell their scatter too.
    """
    line = np.maximum(counts @ fit_nonnegative(counts, seconds), LEAST_MS / 1000)
    distances = np.log(seconds / line) * (len(seconds) / (len(seconds) - counts.shape[1])) ** 0.5
    found: Array = line * np.exp(random.choice(distances, len(seconds)))
    return found
