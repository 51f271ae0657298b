"""Recorded groups as the rows of a table: every rollout with its reward and advantage, and why it was dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podsrl.errors import printable
from podsrl.run.group_log import parse_group

COLUMNS = ("step", "group", "prompt", "completion", "reward", "advantage", "kept", "why", "correct", "tokens")
Row = tuple[int, str, str, str, float | None, float | None, bool, str, bool, int]


def rows_of(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row of `COLUMNS` per rollout of lines of groups.jsonl, best rewards first in each group.

    `advantage` is the mean over tokens where each token has its own, None where the rollout was dropped; `why` says why
    it was dropped, or why it has no reward.
    """
    rows: list[Row] = []
    for group in map(parse_group, lines):
        for one in group.by_reward():
            asked = (group.step, group.group, printable(group.prompt), printable(one.text))
            why = printable(": ".join(reason for reason in (one.drop_reason, one.invalid_reason) if reason))
            rows.append((*asked, one.reward, one.mean_advantage, one.is_kept, why, one.is_correct, one.num_tokens))
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, in which texts of models stay text.

    Example:
        >>> row = (1, "s1/q0", "2+2?", "a|b\\n<b>", 1.0, None, False, "not_selected", True, 3)
        >>> print(markdown([row]).split("\\n")[2])
        | 1 | s1/q0 | 2&#43;2&#63; | a&#124;b<br>&#60;b&#62; | 1 |  | no | not&#95;selected | yes | 3 |
    """
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: str | float | bool | None) -> str:
    if isinstance(value, str):
        return "<br>".join("".join(map(_sign, line)) for line in value.splitlines())
    return "" if value is None else ("no", "yes")[value] if isinstance(value, bool) else f"{value:g}"


def _sign(character: str) -> str:
    """A character that Markdown or HTML might read as a sign of its own, as a number."""
    return character if character.isalnum() or character in " /" else f"&#{ord(character)};"
