"""Seconds of a step as a function of n, m and the micro-batch: sums of counts times measured seconds per count.

    generate = a · decode steps + b · tokens forwarded + c · tokens generated       (P prompts read: in a)
    score    = a + b · P n
    select   = a + b · P n + c · P m
    update   = a + b · trained rows + c · trained tokens                            (a, b, c for each micro-batch size)
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

from podsrl.plan.least_squares import Array, fit_nonnegative, power_law
from podsrl.plan.measured import GenerationProbe, Measurements, UpdateProbe
from podsrl.plan.value import MIDDLE, Teaching

TINY_SECONDS = 1e-7
"""Stands for stages that took no measurable time: relative errors want values above 0."""


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
    """Predicts seconds and memory from what was measured: at least one generation and one update."""

    def __init__(self, measured: Measurements) -> None:
        self._probes, self._update_probes = measured.generation, measured.updates
        self._num_prompts = measured.config.rollouts.num_prompts
        self._generate = fit_nonnegative(
            [[p.decode_steps, p.forwarded, p.generated] for p in self._probes],
            [p.generate_seconds for p in self._probes],
        )
        self._score = self._line("score_seconds")
        self._rest = self._line("rest_seconds")
        self._select = fit_nonnegative(
            [[1, p.num_rollouts, p.num_kept] for p in measured.updates],
            [max(p.select_seconds, TINY_SECONDS) for p in measured.updates],
        )
        self._updates = _fit_updates(measured.updates)
        self._memory = _fit_memory(measured.updates)

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """Sizes that were measured, ascending; others are not predicted."""
        return tuple(sorted(self._updates))

    @property
    def spread(self) -> float | None:
        """How far repeats differ: half the width of the middle 90 % of measured over fitted seconds, of generation or
        updates, whichever vary more; None where there were no more measurements than the fit has terms."""
        generation = [p.generate_seconds / self._fitted_generation(p) for p in self._probes]
        updates = [p.update_seconds / self._fitted_update(p) for p in self._update_probes]
        by_step = _spread(generation, int(np.count_nonzero(self._generate)))
        by_update = _spread(updates, int(np.count_nonzero([*self._updates.values()])))
        return None if by_step is None or by_update is None else max(by_step, by_update)

    def _fitted_generation(self, probe: GenerationProbe) -> float:
        return float(self._generate @ [probe.decode_steps, probe.forwarded, probe.generated])

    def _fitted_update(self, probe: UpdateProbe) -> float:
        counts = [1, probe.trained_rows, probe.trained_tokens]
        return max(float(self._updates[probe.micro_batch_tokens] @ counts), TINY_SECONDS)

    def seconds(self, num_rollouts: int, micro_batch_tokens: int, taught: Teaching, mean_length: float) -> StepSeconds:
        """Predict a step from `teaching(n, m)` per group; `micro_batch_tokens` is one of `micro_batches`."""
        rows, tokens = self._num_prompts * taught.trained_rows, self._num_prompts * taught.trained_tokens
        return StepSeconds(
            generate=float(self._generate @ self._counts(num_rollouts, mean_length)),
            score=float(self._score @ [1, num_rollouts]),
            select=float(self._select @ [1, num_rollouts, taught.num_kept]),
            update=float(self._updates[micro_batch_tokens] @ [1, rows, tokens]),
            rest=float(self._rest @ [1, num_rollouts]),
        )

    def kv_bytes(self, num_rollouts: int) -> float:
        """Key-value memory of generation; the least seen at each n, since a pool is kept from step to step."""
        sizes = sorted({p.num_rollouts for p in self._probes})
        least = [min(max(p.kv_bytes, 1) for p in self._probes if p.num_rollouts == size) for size in sizes]
        return power_law(sizes, least, num_rollouts)

    def update_bytes(self, micro_batch_tokens: int) -> float | None:
        """Memory at most during an update; None where it was not measured."""
        return None if self._memory is None else float(self._memory @ [1, micro_batch_tokens])

    def largest_micro_batch(self, limit_bytes: float) -> int | None:
        """Tokens of the largest micro-batch that stays under the limit; None where memory does not tell."""
        if self._memory is None or self._memory[1] <= 0:
            return None
        return max(0, int((limit_bytes - self._memory[0]) / self._memory[1]))

    def _counts(self, num_rollouts: int, mean_length: float) -> list[float]:
        steps = self._grow("decode_steps", num_rollouts)
        generated = self._num_prompts * num_rollouts * mean_length
        # Lengths differ between the probes' questions and the average: shared rows are a share of what is generated.
        share = self._grow("forwarded", num_rollouts) / self._grow("generated", num_rollouts)
        return [steps, generated * min(share, 1.0), generated]

    def _grow(self, name: str, num_rollouts: int) -> float:
        values = [max(getattr(p, name), 1e-9) for p in self._probes]
        sizes = [p.num_rollouts for p in self._probes]
        if name == "decode_steps" and len(set(sizes)) == 1:
            return float(np.median(values))
        return power_law(sizes, values, num_rollouts)

    def _line(self, name: str) -> Array:
        values = [max(getattr(p, name), TINY_SECONDS) for p in self._probes]
        return fit_nonnegative([[1, p.num_rollouts] for p in self._probes], values)


def _spread(ratios: Sequence[float], num_terms: int) -> float | None:
    """The residuals are widened by what the fit itself took away; None where it took all."""
    free = len(ratios) - num_terms
    return float(np.ptp(np.quantile(ratios, MIDDLE))) / 2 * (len(ratios) / free) ** 0.5 if free > 0 else None


def _fit_updates(probes: Sequence[UpdateProbe]) -> dict[int, Array]:
    return {
        size: fit_nonnegative(
            [[1, p.trained_rows, p.trained_tokens] for p in own], [max(p.update_seconds, TINY_SECONDS) for p in own]
        )
        for size in {p.micro_batch_tokens for p in probes}
        if (own := [p for p in probes if p.micro_batch_tokens == size])
    }


def _fit_memory(probes: Sequence[UpdateProbe]) -> Array | None:
    """Bytes = base + slope · tokens in one micro-batch, from the largest peak of each size that was filled."""
    peaks: dict[float, float] = {}
    for probe in probes:
        if probe.peak_bytes is not None:
            filled = min(probe.micro_batch_tokens, probe.trained_tokens)
            peaks[filled] = max(peaks.get(filled, 0.0), probe.peak_bytes)
    if not peaks:
        return None
    return fit_nonnegative([[1, size] for size in peaks], list(peaks.values()))
