"""Prompts, completions and their tables as text for people: in logs, reports and notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence


def prompt_text(prompt: str | Sequence[Mapping[str, str]]) -> str:
    """A prompt as one text: chat messages as "role: content", one per line.

    Example:
        >>> prompt_text([{"role": "user", "content": "1+2="}, {"role": "assistant", "content": "3"}])
        'user: 1+2=\\nassistant: 3'
    """
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def html_table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook, in which all is text; it scrolls where it is long.

    Example:
        >>> html_table("sums", ("x", "y"), [("1", "<2")]).count("&lt;2")
        1
    """
    lines = [_row("th", names), *(_row("td", row) for row in rows)]
    return (
        f'<div style="max-height: 26em; overflow: auto"><p style="white-space: pre-wrap">{html.escape(title)}</p>'
        f"<table>{''.join(lines)}</table></div>"
    )


def _row(kind: str, cells: Sequence[str]) -> str:
    style = ' style="text-align: left; white-space: pre-wrap"'
    return f"<tr>{''.join(f'<{kind}{style}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>"
