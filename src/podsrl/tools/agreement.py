"""Compare a reward's verdicts with the labels of stored completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podsrl.score.base import Values
from podsrl.tools.completions import Stored

NUM_SHOWN = 5
"""Disagreements that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A completion on which reward and label differ."""

    where: str
    label: bool
    value: float | None
    answer: str
    completion_end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A reward's verdict (value at least 1) against the labels; an invalid row counts as judged wrong."""

    num_labels: int
    accuracy: float
    precision: float | None
    """Of what the reward calls right, the share that is; None where it calls nothing right."""
    recall: float | None
    """Of what is right, the share that the reward calls so; None where nothing is right."""
    num_disagreements: int
    disagreements: tuple[Disagreement, ...]


def agreement_of(stored: Sequence[Stored], values: Values) -> Agreement | None:
    """Compare values with labels.

    Args:
        stored: completions, some with a label.
        values: of a reward, one per completion.

    Returns:
        None where nothing has a label.

    Example:
        >>> from podsrl.types import Task
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> stored = [Stored(where="", task=task, text=text, label=text == "3") for text in ("3", "4", "5", "6")]
        >>> agreement_of(stored, Values(values=[1.0, 1.0, 0.0, 0.0], faults={})).accuracy
        0.75
    """
    labelled = [(row, one.label) for row, one in enumerate(stored) if one.label is not None]
    if not labelled:
        return None
    said = {row: row not in values.faults and values.values[row] >= 1 for row, _ in labelled}
    both = sum(label and said[row] for row, label in labelled)
    num_right, num_said = sum(label for _, label in labelled), sum(said.values())
    different = [row for row, label in labelled if label != said[row]]
    return Agreement(
        num_labels=len(labelled),
        accuracy=1 - len(different) / len(labelled),
        precision=both / num_said if num_said else None,
        recall=both / num_right if num_right else None,
        num_disagreements=len(different),
        disagreements=tuple(_disagreement(stored[row], values, row) for row in different[:NUM_SHOWN]),
    )


def _disagreement(one: Stored, values: Values, row: int) -> Disagreement:
    return Disagreement(
        where=one.where,
        label=bool(one.label),
        value=None if row in values.faults else values.values[row],
        answer=one.task.answer,
        completion_end=one.text[-80:],
    )
