r"""Finds `\boxed{…}` and `\fbox{…}`: in published solutions, and in completions.

A solution is trusted: its last box that holds anything is the answer, as far as it can be read. A completion is not:
`boxes` reads every command and escape in order, so that a box inside another, or behind an escape, is none of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMAND = r"\\(?:boxed|fbox)(?![A-Za-z])"
_BOX = re.compile(_COMMAND)
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)  # `\{` and `\}` are characters, not groups
_TOKEN = re.compile(rf"{_COMMAND}\s{{0,3}}\{{?|\\.|[{{}}]", re.DOTALL)
_FIRST_TOKEN = re.compile(r"\s{0,3}(-?[0-9][0-9,.]*[0-9]|-?[0-9]|\\?[A-Za-z]+|\S)")
_FORMULA = re.compile(r"\s*([^$\n]+)\$|\s*(\S+)")  # to the end of the formula, else one word


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
    r"""Give the outermost boxes of a text, in its order, in one pass.

    Args:
        text: of any length. `\boxed 7` counts as `\boxed{7}`; a box that is never closed reaches to the end.

    Example:
        >>> [box.content for box in boxes(r"$\boxed{\frac{3}{4}}$, no, \boxed{1 \boxed{2}} or \boxed{5")]
        ['\\frac{3}{4}', '1 \\boxed{2}', '5']
    """
    found: list[Box] = []
    place = 0
    while (token := _TOKEN.search(text, place)) is not None:
        place = token.end()
        if not token[0].startswith(("\\boxed", "\\fbox")):
            continue
        if not token[0].endswith("{"):
            if (bare := _FIRST_TOKEN.match(text, place)) is not None:
                found.append(Box(token.start(), bare.end(), bare[1], True))
            continue
        inside, end = place, _closing_brace(text, place)
        if end is None:
            found.append(Box(token.start(), len(text), text[inside:].strip(), False))
            return found + _closed_after(text, token.start())
        found.append(Box(token.start(), end, text[inside : end - 1].strip(), True))
        place = end
    return found


def _closed_after(text: str, start: int) -> list[Box]:
    """The closed boxes from the last command on: a box that lacks a brace must not hide a whole one after it."""
    last = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if last <= start:
        return []
    return [Box(last + box.start, last + box.end, box.content, True) for box in boxes(text[last:]) if box.is_closed]


def last_box(text: str) -> str | None:
    r"""Give what the last box of a completion holds; a box that is never closed is none.

    Example:
        >>> last_box(r"So $x = \boxed{1}$, no: $\boxed{\frac{3}{4}}$."), last_box("7")
        ('\\frac{3}{4}', None)
    """
    closed = [box for box in boxes(text) if box.is_closed]
    return closed[-1].content if closed else None


def boxed_answer(solution: str) -> str | None:
    r"""Give what the last box of a published solution in LaTeX holds, braces inside it included.

    `\boxed 5` without braces counts as well. Of a box that is never closed or that is empty, the one before it is
    taken.

    Example:
        >>> boxed_answer(r"so $x = \boxed{3}$ or $\boxed{\frac{1}{2}}$."), boxed_answer("no box")
        ('\\frac{1}{2}', None)
    """
    for box in reversed(list(_BOX.finditer(solution))):
        rest = solution[box.end() :]
        inside = _braced(rest.lstrip()) if rest.lstrip().startswith("{") else _bare(rest)
        if inside is not None and inside.strip():
            return inside.strip()
    return None


def _braced(text: str) -> str | None:
    """The inside of the group that `text` opens with; None where it is never closed."""
    end = _closing_brace(text, 1)
    return None if end is None else text[1 : end - 1]


def _bare(text: str) -> str | None:
    found = _FORMULA.match(text)
    return (found[1] or found[2]).strip().rstrip(".,;:") if found else None


def _closing_brace(text: str, place: int) -> int | None:
    """Behind the brace that closes the group which `place` is in; None where there is none."""
    depth = 1
    for brace in _BRACES.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.end()
    return None
