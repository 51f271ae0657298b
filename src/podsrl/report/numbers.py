"""How a number is written for a person: in few characters, with its unit, a dash where it is missing."""

from __future__ import annotations

import math

MISSING = "–"
_UNITS = ((3600.0, "h", 10800.0), (60.0, "min", 300.0), (1.0, "s", 0.0))


def compact(value: float) -> str:
    """Write a number in few characters.

    Example:
        >>> compact(0.01234), compact(-3.14159), compact(9999), compact(12345), compact(2_500_000), compact(1e-6)
        ('0.012', '-3.14', '9999', '12.3k', '2.5M', '1e-06')
    """
    for size, unit, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= size:
            return f"{value / unit:.3g}{suffix}"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3g}"


def duration(seconds: float, *, longest: float | None = None) -> str:
    """Write a duration in seconds, minutes or hours; `longest` sets the unit, so that several durations share one.

    Example:
        >>> duration(12.34), duration(116), duration(600), duration(7200), duration(5400, longest=10800)
        ('12.3 s', '116 s', '10 min', '120 min', '1.5 h')
    """
    reference = seconds if longest is None else longest
    size, unit = next(((size, unit) for size, unit, least in _UNITS if reference >= least), _UNITS[-1][:2])
    value = seconds / size
    return f"{value:.0f} {unit}" if value >= 99.5 else f"{value:.3g} {unit}"


def number(value: float | None) -> str:
    """Write a number in few characters, a dash for a missing one."""
    return MISSING if value is None or not math.isfinite(value) else compact(value)


def signed(value: float | None) -> str:
    """Write an advantage with its sign and two decimals, a dash for a missing one."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:+.2f}"


def kept(num_kept: float) -> str:
    """Write `select.num_kept`: a number of rollouts, or a share of each group.

    Example:
        >>> kept(16), kept(0.25), kept(0.125)
        ('16', '25 %', '12.5 %')
    """
    return f"{100 * num_kept:.3g} %" if isinstance(num_kept, float) and 0 < num_kept < 1 else str(num_kept)


def percent(value: float | None) -> str:
    """Write a share as percent with one decimal, a dash for a missing one."""
    return MISSING if value is None or not math.isfinite(value) else f"{value * 100:.1f} %"


def seconds(value: float | None) -> str:
    """Write a duration in its unit, a dash for a missing one."""
    return MISSING if value is None or not math.isfinite(value) else duration(value)


def thousands(value: int) -> str:
    """Write a count with narrow spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")
