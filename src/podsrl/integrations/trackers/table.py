"""Recorded groups as the rows of a table: every rollout with its reward and advantage, and why it was dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podsrl.errors import printable
from podsrl.run.group_log import parse_group

COLUMNS = ("step", "group", "prompt", "completion", "reward", "advantage", "kept", "why", "correct", "tokens")
Row = tuple[int, str, str, str, float | None, float | None, bool, str, bool, int]


def rows_of(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row per rollout, best rewards first in each group.

    Args:
        lines: of groups.jsonl.

    Returns:
        Rows of `COLUMNS`. `advantage` is the mean over tokens where each token has its own, None where the rollout was
        dropped; `why` says why it was dropped, or why it has no reward.
    """
    rows: list[Row] = []
    for group in map(parse_group, lines):
        for rollout in group.by_reward():
            why = ": ".join(reason for reason in (rollout.drop_reason, rollout.invalid_reason) if reason)
            rows.append(
                (
                    group.step,
                    group.group,
                    printable(group.prompt),
                    printable(rollout.text),
                    rollout.reward,
                    rollout.mean_advantage,
                    rollout.is_kept,
                    printable(why),
                    rollout.is_correct,
                    rollout.num_tokens,
                )
            )
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, in which texts of models stay text.

    Example:
        >>> row = (1, "s1/q0", "2+2?", "a|b\\n<b>", 1.0, None, False, "not_selected", True, 3)
        >>> print(markdown([row]).split("\\n")[2])
        | 1 | s1/q0 | 2&#43;2&#63; | a&#124;b<br>&#60;b&#62; | 1 |  | no | not&#95;selected | yes | 3 |
    """
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(value: str | float | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return "<br>".join(map(_escape, value.splitlines()))
    return f"{value:g}"


def _escape(text: str) -> str:
    """Every character that Markdown or HTML might read as a sign of its own, as a number."""
    return "".join(c if c.isalnum() or c in " /" else f"&#{ord(c)};" for c in text)
