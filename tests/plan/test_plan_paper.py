"""The objective against what was really observed: the paper's sweeps, and this project's own map."""

from __future__ import annotations

import numpy as np
import pytest
from plan_records import from_pass_rate

from loops import each
from podsrl.plan.value import BETWEEN, DEFAULT_NOISE, teaching
from podsrl.select import max_variance

PAPER_N = {16: 7.53, 32: 7.89, 64: 10.08, 128: 13.57, 256: 21.23}
"""Setting (a) at m = 16: n -> seconds per step (arXiv 2504.13818)."""
SPREAD = 0.5
"""Pass rates Beta(c p, c (1 - p)) with c = 0.5: at p = 0.7 a third of the questions are solved nearly always."""


def progress(seconds: dict[int, float], pass_rate: float, concentration: float, noise: float) -> dict[int, float]:
    """n -> value per second at m = 16."""
    groups = from_pass_rate(pass_rate, concentration).draw(max(seconds), 1500)
    return {n: teaching(groups, n, 16, rule=max_variance).share(noise) ** BETWEEN / s for n, s in seconds.items()}


@each("pass_rate", [0.6, 0.7, 0.8])
@each("noise", [0.25, DEFAULT_NOISE, 4.0])
@pytest.mark.parametrize("concentration", [SPREAD, 1.0])
def test_in_the_paper_s_sweep_progress_has_one_peak_in_n_at_32_or_64(
    pass_rate: float, noise: float, concentration: float
) -> None:
    values = list(progress(PAPER_N, pass_rate, concentration, noise).values())
    peak = int(np.argmax(values))
    assert list(PAPER_N)[peak] in (32, 64)
    assert values[: peak + 1] == sorted(values[: peak + 1])
    assert values[peak:] == sorted(values[peak:], reverse=True)


MAP = {
    # on an AMD Zen 4, by start accuracy: seconds per step for n = 16 (GRPO) … 128, speed-ups over GRPO to 90 %
    0.014: ({16: 0.060, 32: 0.077, 64: 0.099, 128: 0.138}, (1.27, 1.28, 0.89)),
    0.041: ({16: 0.076, 32: 0.112, 64: 0.115, 128: 0.167}, (0.81, 0.82, 0.68)),
    0.185: ({16: 0.132, 32: 0.242, 64: 0.331, 128: 0.488}, (0.71, 0.60, 0.49)),
    0.586: ({16: 0.145, 32: 0.205, 64: 0.324, 128: 0.594}, (0.93, 0.68, 0.47)),
}
MAP_NOISE = {0.014: 4.2, 0.045: 4.2, 0.185: 0.38, 0.586: 0.25}
"""Pass rate of a base model -> κ, from its gradient norms at m = 2 … 64 (docs/planner.md)."""


def noise_at(pass_rate: float) -> float:
    """Between the measured ones, straight in log κ over log-odds."""
    rates = np.array(list(MAP_NOISE))
    odds, at = np.log(rates / (1 - rates)), np.log(pass_rate / (1 - pass_rate))
    return float(np.exp(np.interp(at, odds, np.log(list(MAP_NOISE.values())))))


def path_speedups(start: float, target: float, seconds: dict[int, float]) -> list[float]:
    """Time from start to target accuracy, GRPO's over each: the log-odds move by value a step."""
    odds = np.linspace(np.log(start / (1 - start)), np.log(target / (1 - target)), 9)
    times = dict.fromkeys(seconds, 0.0)
    for rate in 1 / (1 + np.exp(-odds)):
        values = progress(seconds, float(rate), 30.0, noise_at(float(rate)))
        for n in seconds:
            times[n] += 1 / values[n]
    return [times[16] / times[n] for n in seconds if n != 16]


def test_our_own_map_is_ordered_rightly() -> None:
    predicted = {start: path_speedups(start, 0.88, MAP[start][0]) for start in MAP}
    assert all(values[2] == min(values) for values in predicted.values())  # n = 128 is never worth its seconds
    assert predicted[0.014][1] == max(values[1] for values in predicted.values())  # rare right answers gain most
    assert max(predicted[0.185]) < 0.8  # there GRPO is better by far
    flat = [np.concatenate([list(t[start]) for start in MAP]) for t in (predicted, {s: MAP[s][1] for s in MAP})]
    ranks = [values.argsort().argsort() for values in flat]
    assert np.corrcoef(*ranks)[0, 1] > 0.85
