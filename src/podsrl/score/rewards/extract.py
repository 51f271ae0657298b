r"""Finds the answer of a completion: in answer tags, a box, behind `####`, or in the last sentence (docs/rewards.md).

Every search is linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from podsrl.lib.boxed import boxes
from podsrl.score.rewards.canonical import canonical
from podsrl.score.rewards.reading import DENIALS, HEDGES, sentences

MAX_ANSWERS = 5
"""Different answers of one text that are read; no honest text has more."""
_THOUGHT_MARKS = {"<|begin_of_thought|>": "<think>", "<|end_of_thought|>": "</think>", "<|begin_of_solution|>": "\n"}
"""How OpenThinker and Sky-T1 write a thought and begin an answer -> what is read instead."""
_START_OF_TURN = re.compile(
    r"\A(?:\s*(?:<s>|\[/INST\]|<\|(?!\w*(?:end|eo[mst]|user|system|tool))[a-z_]{2,20}\|>)(?!\s*(?:user|system|tool)\b)"
    r"(?:assistant(?:<\|end_(?:header_id|of_role)\|>|\s))?)+"
)
"""A chat template's marks, written as text, before all else: they open the model's own turn and end nothing."""
_END_OF_TURN = re.compile(r"<\|[a-z_]{2,20}\|>|</?s>|\[/INST\]|(?:<an(?:s(?:w(?:er?)?)?)?|(?<=[\n>])<a?)\s*\Z")
"""Any other such mark, or an opening tag that the limit cut: the answer ends before it."""
_TAG = re.compile(
    r"(?P<think_end></think>)|(?P<think><think>)"
    r"|(?P<end></\s{0,3}answer\b\s{0,3}>?|(?<!<)/answer>|</(?:a(?:n(?:s(?:w(?:er?)?)?)?)?)?\s*\Z)"
    r"|(?P<start><\s{0,3}answer\b\s{0,3}>?|(?<![\w</])answer>)",
    re.IGNORECASE,
)
"""A tag, perhaps without one of its brackets: `answer>`, `</answer`."""
_BETWEEN_BOXES = re.compile(r"[\s$,;.*\\()\[\]]{0,12}(?:and|or)?[\s$,;.*\\()\[\]]{0,12}")
_BEFORE_BOX = re.compile(rf"(?:{DENIALS}|\\(?:ne|neq|not)|≠|\b(?:than|minus|negative|twice|half))$", re.IGNORECASE)
_BEFORE_TAGGED_BOX = re.compile(
    rf"(?:{HEDGES}|[<>≤≥≈~]|\\[lg]eq?|\b(?:or|about|around|almost|up\s+to))$", re.IGNORECASE
)
"""In a long text "at least" and "can be" before a box are often part of the statement that it ends."""
_AFTER_BOX = re.compile(
    r"(?i)[.,!$*\s]{0,8}(?:or\b|\?|is\s+(?:not\s+(?:the\s+)?(?:right|correct|answer)|wrong|incorrect|false)\b|at\s+(?:least|most)\b)"
)
_LABEL_OF_A_QUESTION = r"\b(?:question|problem|exercise|example|q|user|human|instruction)\b[\d\s*]{0,6}:"
_ASKS = re.compile(rf"\?|{_LABEL_OF_A_QUESTION}", re.IGNORECASE)
_HASHES = re.compile(
    rf"(?i)####\s*+(?=[^\w\n]{{0,3}}(?:[0-9]|\\[a-z]))(?![0-9]+(?:st|nd|rd|th)|[0-9][.)]\s)((?:(?!{_LABEL_OF_A_QUESTION}|####)[^\n])+)"
)
"""GSM8K's mark for the answer at a solution's end; a heading of Markdown begins with a word or an ordinal."""
_MARK = re.compile(r"^[*\s]*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?[:*\s]*", re.IGNORECASE)
_LABEL = re.compile(r"^[*\s]*(?:####|(?:final\s+)?answer[*\s]*:)", re.IGNORECASE)
_FAREWELL = re.compile(
    r"(?i)(?:(?:this|that)\sis\s(?:the|my)\s(?:final\s)?answer|i\shope\s(?:it|this|that)|(?:please\s)?let\sme\sknow|(?:please\s)?feel\sfree|if\syou\s(?:have|need|want)|thank)\b[^0-9\\$]*"
)
"""Words to the reader that say nothing about the answer."""
_MAX_GUESS, _MAX_NAME_WORDS = 80, 2  # characters of a sentence that can be a guess; words of a name
_PLAIN_WORD = re.compile(r"[A-Za-z]{2,}[.,:;]?")


class Piece(NamedTuple):
    """What stands between two tags, next to each other in the text, one of which is an answer's."""

    text: str
    is_closed: bool
    """An opening tag stands before it and a closing one after it."""
    is_thought: bool
    """It stands between `<think>` and `</think>`."""
    has_start: bool
    """An opening tag stands before it; else only a closing one after it."""


def find_answer(completion: str) -> str | None:
    r"""Give the one piece of a text that counts as its answer; None where the text is blank outside of its thoughts.

    In this order: what stands in the answer tags, however broken, outside of a thought rather than in it, closed rather
    than not; the last box outside of a thought; what follows `####`; the last sentence. Of tags that hold a box, the
    box. Different answers of one place are a list. A text ends behind `####` where it goes on with another question.

    Example:
        >>> find_answer(r"<think>\boxed{17}</think> <answer>18</answer> 16"), find_answer(r"So \boxed{8}, my friend.")
        ('18', '8')
    """
    for mark, tag in _THOUGHT_MARKS.items():
        completion = completion.replace(mark, tag)
    completion = _END_OF_TURN.split(_START_OF_TURN.sub("", completion), maxsplit=1)[0]
    pieces = list(answer_pieces(completion))
    if not pieces:
        text = without_thoughts(completion)
        if not any(map(str.isalnum, text)):
            return _boxed(completion)
        text, marked = _first_solution(text)
        return _boxed(text) or marked or last_sentence(text)
    best = max((not piece.is_thought, piece.is_closed) for piece in pieces)
    return _listed(_in_tags(piece) or "" for piece in pieces if (not piece.is_thought, piece.is_closed) == best)


def _listed(found: Iterable[str]) -> str:
    return " , ".join([*dict.fromkeys(found)][: MAX_ANSWERS + 1])


def _in_tags(piece: Piece) -> str | None:
    return _boxed(piece.text, is_tagged=True) or (piece.text if piece.has_start else last_sentence(piece.text))


def _first_solution(text: str) -> tuple[str, str]:
    """The text up to the first mark that another question follows, and what stands behind its marks."""
    marks = list(_HASHES.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    asks = (number for number, mark in enumerate(marks) if _ASKS.search(text, mark.end(), ends[number]))
    if (last := next(asks, None)) is not None:
        text, marks = text[: marks[last].end()], marks[: last + 1]
    return text, _listed(sentences(mark[0])[0] for mark in marks)


def _boxed(text: str, *, is_tagged: bool = False) -> str | None:
    """What the last box holds, with a doubt that stands beside it; boxes side by side are one list."""
    found = [box for box in boxes(text) if box.content]
    found = [box for box in found if box.is_closed] or found
    if not found:
        return None
    first, content = found[-1], found[-1].content
    for box in reversed(found[:-1]):
        if not _BETWEEN_BOXES.fullmatch(text[box.end : first.start][:40]):
            break
        if box.content != first.content and canonical(box.content) != canonical(first.content):
            content = f"{box.content} , {content}"
        first = box
    before = text[max(0, first.start - 40) : first.start].rstrip(" \t\n$*\\([:")
    is_doubted = _BEFORE_BOX.search(before) or (is_tagged and _BEFORE_TAGGED_BOX.search(before))
    return f"not {content}" if is_doubted or _AFTER_BOX.match(text, found[-1].end) else content


def answer_pieces(text: str) -> Iterator[Piece]:
    """Give what stands next to an answer tag, however broken, in the text's order; no blank pieces."""
    tags = [(tag.lastgroup, tag.start(), tag.end()) for tag in _TAG.finditer(text)]
    last_thought_end = max((start for kind, start, _ in tags if kind == "think_end"), default=-1)
    is_thought = False
    for (before, _, start), (after, stop, _) in pairwise([(None, 0, 0), *tags, (None, len(text), 0)]):
        is_thought = before == "think" or (is_thought and before != "think_end")
        if (piece := text[start:stop].strip()) and (before == "start" or after == "end"):
            is_closed, is_within = (before, after) == ("start", "end"), is_thought and start < last_thought_end
            yield Piece(piece, is_closed, is_within, before == "start")


def without_thoughts(text: str) -> str:
    """Leave out what stands up to `</think>` from `<think>`, or from the text's start, and the tags that are left."""
    *closed, rest = re.split("</think>", text, flags=re.IGNORECASE)
    parts = [part.partition("<think>") for part in closed]
    return _TAG.sub("", "".join([before for i, (before, tag, _) in enumerate(parts) if tag or i] + [rest]))


def last_sentence(text: str) -> str | None:
    """Give the last sentence of the last line that has a letter or digit; None where there is none.

    It is a list of two where the sentence before it has the same shape, or a line before it the same label.
    """
    lines = [line for line in text.split("\n") if any(map(str.isalnum, line))]
    found = [sentence for line in lines[-3:] for sentence in sentences(line)]
    while len(found) > 1 and _FAREWELL.fullmatch(found[-1]):
        del found[-1]
    if len(found) > 1 and _shape(found[-2]) == _shape(found[-1]):
        return _listed(found[-2:])
    labelled = [*dict.fromkeys(_LABEL.sub("", line).strip(" .*$") for line in lines if _LABEL.match(line))]
    has_others = len(labelled) > 1 and _LABEL.match(lines[-1])
    return _listed(labelled[-MAX_ANSWERS:]) if has_others else found[-1] if found else None


def _shape(sentence: str) -> str:
    """A short sentence without its formulas, a name as "A"; a calculation or a long one stays as it is."""
    bare = _MARK.sub("", sentence).strip("$*. ")
    if "=" in bare or len(bare) > _MAX_GUESS:
        return sentence
    tokens = bare.split()
    if len(tokens) <= _MAX_NAME_WORDS and all(map(_PLAIN_WORD.fullmatch, tokens)):
        return "A"
    return re.sub(r"#(?: #)+", "#", " ".join(token if _PLAIN_WORD.fullmatch(token) else "#" for token in tokens))
