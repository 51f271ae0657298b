"""Quantiles of Student's t distribution, with numpy alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache
def student_t(degrees: int, share: float = 0.975) -> float:
    """The value below which Student's t falls with probability `share` (0.5 .. 1; 0.975: a two-sided 95 % interval).

    With t = √degrees · tan θ the density is proportional to cos(θ) ** (degrees - 1), which is summed up to the share.

    Example:
        >>> round(student_t(1), 3), round(student_t(4), 3), round(student_t(9, 0.95), 3)
        (12.706, 2.776, 1.833)
    """
    angles = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos(angles) ** (degrees - 1)
    mass = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    angle = np.interp(2 * share - 1, mass / mass[-1], angles)
    return float(np.sqrt(degrees) * np.tan(angle))
