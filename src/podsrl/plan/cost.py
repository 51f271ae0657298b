"""Seconds of a step as a function of n and m: sums of counts times measured seconds per count.

    generate = a · decode steps + b · tokens forwarded + c · tokens generated       (P prompts read: in a)
    score    = a + b · P n
    select   = a + b · P n + c · P m
    update   = a + b · trained rows + c · trained tokens
    rest     = a + b · P n

With a > 0 a generated token gets cheaper as rows are added and then no more: the fall and saturation of the paper's
figure 1. All coefficients are at least 0 (`least_squares.py`). Prompts in the update are in b where every row carries
its own, in a where a group shares one; the optimizer's step is in a. How the counts grow with n is measured: forwarded
tokens grow more slowly than n, since rollouts with the same tokens so far are one row, and are interpolated in log-log
scale; decode steps grow where not all rollouts run at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from podsrl.config.schema import CostsConfig
from podsrl.plan.least_squares import Array, fit_nonnegative, power_law
from podsrl.plan.measured import Measurements, StepProbe, UpdateProbe
from podsrl.plan.value import MIDDLE, Teaching

TINY_SECONDS = 1e-7
"""Stands for what took no measurable time: relative errors want values above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """Of one step, by stage."""

    generate: float
    score: float
    select: float
    update: float
    rest: float

    @property
    def total(self) -> float:
        return self.generate + self.score + self.select + self.update + self.rest


PREDICTED_STAGES = tuple(field.name for field in fields(StepSeconds) if field.name != "rest")
"""Stages that are predicted one by one; "rest" is all others together."""


class CostModel:
    """Predicts seconds from what was measured: at least one step."""

    def __init__(self, measured: Measurements) -> None:
        self._config, self._steps = measured.config, measured.steps
        self._num_prompts = measured.config.rollouts.num_prompts
        self._updates = [update for step in measured.steps for update in step.updates]
        self._generate = fit_nonnegative(
            [_generated(step) for step in self._steps], [step.generate_seconds for step in self._steps]
        )
        self._score = self._line([step.score_seconds for step in self._steps])
        self._rest = self._line([step.rest_seconds for step in self._steps])
        self._select = fit_nonnegative(
            [[1, step.num_rollouts, update.num_kept] for step in self._steps for update in step.updates],
            [max(update.select_seconds, TINY_SECONDS) for update in self._updates],
        )
        self._update = fit_nonnegative(
            [_trained(update) for update in self._updates],
            [max(update.update_seconds, TINY_SECONDS) for update in self._updates],
        )

    def seconds(self, num_rollouts: int, taught: Teaching, mean_length: float) -> StepSeconds:
        """Predict a step from `teaching(n, m)` per group."""
        rows, tokens = self._num_prompts * taught.trained_rows, self._num_prompts * taught.trained_tokens
        return StepSeconds(
            generate=float(self._generate @ self._counts(num_rollouts, mean_length)),
            score=float(self._score @ [1, num_rollouts]),
            select=float(self._select @ [1, num_rollouts, taught.num_kept]),
            update=float(self._update @ [1, rows, tokens]),
            rest=float(self._rest @ [1, num_rollouts]),
        )

    @property
    def spread(self) -> float | None:
        """How far repeats differ: half the width of the middle 90 % of measured over fitted seconds, of generation or
        updates, whichever vary more; None where there were no more measurements than the fit has terms."""
        generation = [step.generate_seconds / float(self._generate @ _generated(step)) for step in self._steps]
        updates = [
            update.update_seconds / max(float(self._update @ _trained(update)), TINY_SECONDS)
            for update in self._updates
        ]
        by_step, by_update = _spread(generation, self._generate), _spread(updates, self._update)
        return None if by_step is None or by_update is None else max(by_step, by_update)

    def constants(self) -> CostsConfig | None:
        """`[costs]`, by which `max_signal` and `worth` decide: what one more group, rollout and row of the update take.

        They are the coefficients of two lines, in which everything is included,

            generate + score + rest = a + b · P n            select + update = c + d · trained rows

        with group = (a + c) / P, rollout = b and row = d. Their spread is that of the model, and 1 where it is not
        known or a cost did not show. None where no line can be told, since all updates trained on as many rows, as on
        none where no group had a signal.
        """
        if min(len({step.num_rollouts for step in self._steps}), len({u.trained_rows for u in self._updates})) < 2:
            return None
        fixed, rollout = self._line([s.generate_seconds + s.score_seconds + s.rest_seconds for s in self._steps])
        of_update, row = fit_nonnegative(
            [[1, update.trained_rows] for update in self._updates],
            [max(update.update_seconds + update.select_seconds, TINY_SECONDS) for update in self._updates],
        )
        costs = [(fixed + of_update) / self._num_prompts, rollout / self._num_prompts, row]
        spread = 1.0 if self.spread is None or min(costs) < TINY_SECONDS else self.spread
        group_ms, rollout_ms, row_ms = (float(f"{1000 * max(cost, TINY_SECONDS):.4g}") for cost in costs)
        return CostsConfig(
            group_ms=group_ms,
            rollout_ms=rollout_ms,
            row_ms=row_ms,
            spread=float(f"{spread:.2g}"),
            model=self._config.model.path,
        )

    def _counts(self, num_rollouts: int, mean_length: float) -> list[float]:
        steps = self._grow("decode_steps", num_rollouts)
        generated = self._num_prompts * num_rollouts * mean_length
        # Lengths differ between the probes' questions and the average: shared rows are a share of what is generated.
        share = self._grow("forwarded", num_rollouts) / self._grow("generated", num_rollouts)
        return [steps, generated * min(share, 1.0), generated]

    def _grow(self, name: str, num_rollouts: int) -> float:
        values = [max(getattr(step, name), 1e-9) for step in self._steps]
        sizes = [step.num_rollouts for step in self._steps]
        if name == "decode_steps" and len(set(sizes)) == 1:
            return float(np.median(values))
        return power_law(sizes, values, num_rollouts)

    def _line(self, seconds: Sequence[float]) -> Array:
        """Of the steps' seconds over n."""
        return fit_nonnegative(
            [[1, step.num_rollouts] for step in self._steps], [max(each, TINY_SECONDS) for each in seconds]
        )


def _generated(step: StepProbe) -> list[float]:
    return [step.decode_steps, step.forwarded, step.generated]


def _trained(update: UpdateProbe) -> list[float]:
    return [1, update.trained_rows, update.trained_tokens]


def _spread(ratios: Sequence[float], coefficients: Array) -> float | None:
    """The residuals are widened by what the fit itself took away; None where it took all."""
    free = len(ratios) - int(np.count_nonzero(coefficients))
    return float(np.ptp(np.quantile(ratios, MIDDLE))) / 2 * (len(ratios) / free) ** 0.5 if free > 0 else None
