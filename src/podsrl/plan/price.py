"""The price of a generated token on this machine, in trained tokens: what `pods compare` takes as one of `prices`.

It is an average over whole stages at the config's own n, m and micro-batch, their fixed parts included. Scoring,
selecting and the rest do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podsrl.plan.measured import Measurements, own_kept
from podsrl.plan.value import MIDDLE


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
