r"""The last sentence of a text without tags and boxes, and whether one like it stands before it.

Goes in: a text without its thoughts. Comes out: the sentence, or a list where a second one offers another answer.
"""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\\$*(#])")
_MARK = re.compile(r"^[*\s]*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?[:*\s]*", re.IGNORECASE)
_LABEL = re.compile(r"^[*\s]*(?:####|(?:final\s+)?answer[*\s]*:)", re.IGNORECASE)
_FAREWELL = re.compile(
    r"(?:i hope (?:it|this|that)|(?:please )?let me know|(?:please )?feel free|if you (?:have|need|want)|thank)\b"
    r"[^0-9\\$]*",
    re.IGNORECASE,
)
"""Words to the reader, which say nothing about the answer."""
_ITEM = re.compile(r"^\s*[0-9]{1,2}[.)]\s+(?=\S)")
_MAX_CHARACTERS = 80
"""Of a sentence that can be a guess of the same shape."""
_MAX_LABELS = 5
_WORD = re.compile(r"[A-Za-z]{2,}[.,:;]?")
_MAX_NAME_WORDS = 2


def last_sentence(text: str) -> str | None:
    """Give the last sentence of the last line that has a letter or digit; of `#### 18` what follows the mark.

    Returns:
        A list of two where the sentence before it has the same shape, or a line before it the same label; None where
        there is no sentence.

    Example:
        >>> last_sentence("It is 16. It is 18."), last_sentence("9 eggs\\nAnswer: 18"), last_sentence("17\\n18")
        ('It is 16. , It is 18.', 'Answer: 18', '17 , 18')
    """
    lines = [line for line in text.split("\n") if any(map(str.isalnum, line))]
    sentences = [sentence for line in lines[-3:] for sentence in _sentences(line)]
    while len(sentences) > 1 and _FAREWELL.fullmatch(sentences[-1]):
        del sentences[-1]
    if not sentences:
        return None
    *before, last = sentences
    if before and _shape(before[-1]) == _shape(last) and before[-1] != last:
        return f"{before[-1]} , {last}"
    return _other_label(lines, last) or last


def _sentences(line: str) -> list[str]:
    found = _SENTENCE.split(_ITEM.sub("", line.rpartition("####")[2]))
    return [sentence.strip() for sentence in found if any(map(str.isalnum, sentence))]


def _other_label(lines: list[str], last: str) -> str | None:
    """The list of what stands behind labels such as `Answer:`, where the last line has one, and they differ."""
    if not _LABEL.match(lines[-1]):
        return None
    found = dict.fromkeys(_LABEL.sub("", line).strip(" .*$") for line in lines if _LABEL.match(line))
    return " , ".join([*list(found)[-_MAX_LABELS:]]) if len(found) > 1 else None


def _shape(sentence: str) -> str:
    """A short sentence without its formulas; a calculation or a long one has no shape, so it is as it stands."""
    bare = _MARK.sub("", sentence).strip("$*. ")
    if "=" in bare or len(bare) > _MAX_CHARACTERS:
        return sentence
    tokens = bare.split()
    if len(tokens) <= _MAX_NAME_WORDS and all(map(_WORD.fullmatch, tokens)):
        return "#"
    return re.sub(r"#(?: #)+", "#", " ".join(token if _WORD.fullmatch(token) else "#" for token in tokens))
