r"""Finds `\boxed{…}` and `\fbox{…}`, with their braces balanced, in one pass over the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,3}\{?|\\.|[{}]", re.DOTALL)
_FIRST_TOKEN = re.compile(r"\s{0,3}(-?[0-9][0-9,.]*[0-9]|-?[0-9]|\\?[A-Za-z]+|\S)")


@dataclass(frozen=True, slots=True)
class Box:
    """One box that stands in no other."""

    start: int
    """Where its command begins."""
    end: int
    """Behind its brace."""
    content: str
    is_closed: bool


def boxes(text: str) -> list[Box]:
    r"""Give the outermost boxes of a text, in its order.

    Args:
        text: of any length. `\boxed 7` counts as `\boxed{7}`; one that is never closed reaches to the end.

    Example:
        >>> [box.content for box in boxes(r"$\boxed{\frac{3}{4}}$, no, \boxed{1 \boxed{2}} or \boxed{5")]
        ['\\frac{3}{4}', '1 \\boxed{2}', '5']
    """
    found: list[Box] = []
    start = inside = depth = 0
    for token in _TOKEN.finditer(text):
        is_box = token[0].startswith(("\\boxed", "\\fbox"))
        if depth:
            depth += token[0].endswith("{") and len(token[0]) != 2
            depth -= token[0] == "}"
            if not depth:
                found.append(Box(start, token.end(), text[inside : token.start()].strip(), True))
        elif is_box and token[0].endswith("{"):
            start, inside, depth = token.start(), token.end(), 1
        elif is_box and (bare := _FIRST_TOKEN.match(text, token.end())) is not None:
            found.append(Box(token.start(), bare.end(), bare[1], True))
    if depth:
        found.append(Box(start, len(text), text[inside:].strip(), False))
        last = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
        if last > start:  # a box that lacks a brace must not hide a whole one after it
            found += [
                Box(last + box.start, last + box.end, box.content, True) for box in boxes(text[last:]) if box.is_closed
            ]
    return found


def last_box(text: str) -> str | None:
    r"""Give what the last box holds; a box that is never closed is none.

    Example:
        >>> last_box(r"So $x = \boxed{1}$, no: $\boxed{\frac{3}{4}}$."), last_box("7")
        ('\\frac{3}{4}', None)
    """
    closed = [box for box in boxes(text) if box.is_closed]
    return closed[-1].content if closed else None
