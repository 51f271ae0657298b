"""The form `<think> … </think> <answer> … </answer>`: how well a text has it, and what stands between broken tags.

Every search is linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from podsrl.types import Task

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_TAG = re.compile(
    r"(?P<think_end></think>)|(?P<think><think>)"
    r"|(?P<end></\s{0,3}answer\b\s{0,3}>?|(?<!<)/answer>|</(?:a(?:n(?:s(?:w(?:er?)?)?)?)?)?\s*\Z)|(?P<start><\s{0,3}answer\b\s{0,3}>?|(?<![\w</])answer>)",
    re.IGNORECASE,
)
"""A tag, perhaps without one of its brackets: `answer>`, `</answer`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What stands between two tags, next to each other in the text, one of which is an answer's."""

    text: str
    is_closed: bool
    """An opening tag stands before it and a closing one after it."""
    is_thought: bool
    """It stands between `<think>` and `</think>`."""
    has_start: bool
    """An opening tag stands before it; else only a closing one after it."""


def answer_format(task: Task, completion: str) -> float:
    """Say how nearly the text is one `<think>…</think>` and one `<answer>…</answer>`, each with something in it.

    Returns:
        A quarter for each: the text has one answer, closed, that holds a letter or digit; it has one such thought; it
        has both, in this order; nothing but white space stands around them.

    A half counts only where both of its tags occur exactly once, so an empty form earns nothing.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> answer_format(task, "<think>1+2</think> <answer>3</answer>"), answer_format(task, "<answer>3</answer>")
        (1.0, 0.25)
        >>> answer_format(task, "<think></think><answer></answer>")
        0.0
    """
    thought, answer = (_span(completion, *tags) for tags in (TAGS[:2], TAGS[2:]))
    if thought is None or answer is None:
        return 0.25 * ((thought is not None) + (answer is not None))
    if thought[1] > answer[0]:
        return 0.5
    outside = completion[: thought[0]] + completion[thought[1] : answer[0]] + completion[answer[1] :]
    return 0.75 if outside.strip() else 1.0


def _span(text: str, start: str, end: str) -> tuple[int, int] | None:
    """From where to where the one pair of tags reaches; None where there is no such pair with something in it."""
    if text.count(start) != 1 or text.count(end) != 1:
        return None
    first, last = text.index(start), text.index(end)
    inside = text[first + len(start) : last]
    return (first, last + len(end)) if any(map(str.isalnum, inside)) else None


def answer_pieces(text: str) -> Iterator[Piece]:
    """Give what stands next to an answer tag, however broken the tags, in the text's order; blank pieces are left out.

    Example:
        >>> [piece.text for piece in answer_pieces("<answer>8 <answer>9</answer></answer>")]
        ['8', '9']
    """
    tags = list(_TAG.finditer(text))
    last_thought_end = max((tag.start() for tag in tags if tag.lastgroup == "think_end"), default=-1)
    is_thought = False
    for tag, following in pairwise((None, *tags, None)):
        before, after = (None if tag is None else tag.lastgroup), (None if following is None else following.lastgroup)
        start, stop = (0 if tag is None else tag.end()), (len(text) if following is None else following.start())
        is_thought = before == "think" or (is_thought and before != "think_end")
        piece = text[start:stop].strip()
        if piece and (before == "start" or after == "end"):
            yield Piece(
                piece, (before, after) == ("start", "end"), is_thought and start < last_thought_end, before == "start"
            )


def without_thoughts(text: str) -> str:
    """Leave out what stands between `<think>` and `</think>`, and the tags that are left.

    A `</think>` before any `<think>` ends a thought that began with the text; a `<think>` that is never closed begins
    none.

    Example:
        >>> without_thoughts("7 or 8?</think> 8 <think>or 9</think>.")
        ' 8 .'
    """
    *closed, rest = re.split("</think>", text, flags=re.IGNORECASE)
    kept = []
    for i, part in enumerate(closed):
        before, tag, _ = part.partition("<think>")
        if tag or i:
            kept.append(before)
    return _TAG.sub("", "".join((*kept, rest)))
