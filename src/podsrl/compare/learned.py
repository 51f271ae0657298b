"""Whether an arm has learned at all: no speed-up is measured over one that has not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from podsrl.lib.time_left import pace_text
from podsrl.run.health import NEWEST_STEPS, logged_answers, reason_of

Line = Mapping[str, Any]
CLEAR = 2.0
"""Standard errors of the held-out accuracy by which an arm ends above its start."""


def has_learned(logs: Sequence[Sequence[Line]], metric: str = "accuracy") -> bool:
    """Whether an arm ended clearly above its start, on the mean over its runs.

    The seeds do not narrow the error, since all of them are judged on the same questions. An arm whose log has lost the
    evaluation before training counts as one that has learned.

    Args:
        logs: the lines of each run.
        metric: which accuracy, `eval/METRIC`.

    Example:
        >>> line = {"eval/accuracy": 0.004, "eval/accuracy_sem": 0.004, "seconds/train_elapsed": 0.0}
        >>> has_learned([[line, {**line, "eval/accuracy": 0.02}]])
        True
        >>> has_learned([[line, {**line, "eval/accuracy": 0.015}]])
        False
        >>> line |= {"eval/accuracy_and_format": 0.5, "eval/num_questions": 256}
        >>> has_learned([[line, {**line, "eval/accuracy_and_format": 0.54}]], "accuracy_and_format")
        False
    """
    evaluations = [[line for line in log if "eval/accuracy" in line] for log in logs]
    ends = [(own[0], own[-1]) for own in evaluations]
    if any(first["seconds/train_elapsed"] > 0 for first, _ in ends):
        return True
    gain = np.mean([last[f"eval/{metric}"] - first[f"eval/{metric}"] for first, last in ends])
    errors = [_standard_error(line, metric) for pair in ends for line in pair]
    return bool(gain > CLEAR * math.sqrt(2 * np.mean(np.square(errors))))


def _standard_error(line: Line, metric: str) -> float:
    """Of an evaluation's accuracy; 0 where the log does not say. Of another metric than accuracy none is logged, and it
    is taken as if all answers to a question were alike, which is exact for one answer and the most for several."""
    if metric == "accuracy":
        return line.get("eval/accuracy_sem") or 0.0
    share, num_questions = line[f"eval/{metric}"], line.get("eval/num_questions") or math.inf
    return math.sqrt(share * (1 - share) / max(num_questions - 1, 1))


def not_learned_text(
    learned: Mapping[str, bool], accuracy: Mapping[str, float], baseline: str, seconds: float, step_seconds: float
) -> str | None:
    """Why a comparison has no speed-up, in a sentence without its end; None where the baseline has learned.

    Args:
        accuracy: of each arm, at its end.
        seconds: training time per arm.
        step_seconds: of the baseline.

    Example:
        >>> not_learned_text({"a": False, "b": False}, {"a": 0.1, "b": 0.1}, "a", 60, 1.2)
        'no arm has learned within 60 s: a step of a took 1.2 s'
    """
    if learned[baseline]:
        return None
    if not any(learned.values()):
        return f"no arm has learned within {seconds:g} s: a step of {baseline} took {pace_text(step_seconds)}"
    best = max((arm for arm in learned if learned[arm]), key=lambda arm: accuracy[arm])
    return (
        f"{baseline} has not learned within {seconds:g} s, so nothing is faster or slower than it; {best} ended at "
        f"{accuracy[best]:.0%}"
    )


def why_not(logs: Sequence[Sequence[Line]]) -> str | None:
    """What an arm's newest groups without signal come from, and what to do; None where most had one.

    Args:
        logs: the lines of the steps of each run.
    """
    newest = [line for log in logs for line in log[-NEWEST_STEPS:]]
    silent, groups = (sum(line.get(f"groups/{name}") or 0 for line in newest) for name in ("zero_signal", "all"))
    if not newest or 2 * silent <= groups:
        return None
    reason = reason_of(logged_answers(newest))
    return f"{reason.text}; {reason.cure}"
