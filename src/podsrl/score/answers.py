r"""The rule for answers: what the answer of a completion is, and when it is right. docs/answers.md says it in words.

`find_answer` takes one piece of the text by a fixed order, `read_value` reads it as one number, and `math_correct`
compares. A policy under training is an attacker, so what can be read in two ways, or not at all, is wrong.

Algebra (`podsrl.score.math`) loads sympy and is asked only for what is no plain number; only worker processes do so.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from podsrl.score.boxes import boxes
from podsrl.score.canonical import MAX_CHARACTERS, NUMBERS, Number, canonical, has_invisible, plain, read_number
from podsrl.score.lines import last_sentence
from podsrl.score.relations import as_union, choice_of, without_rounding
from podsrl.score.tags import Piece, answer_pieces, without_thoughts
from podsrl.score.words import (
    bare_calculation,
    changes,
    doubt,
    is_doubtful_box,
    last_statement,
    names_several,
    num_words,
    only_words,
    states_once,
    states_only_last,
    without_units,
)
from podsrl.types import Task

MAX_WORDS_BEFORE, MAX_WORDS_AFTER = 25, 10
"""Of plain words around a value."""
MAX_ANSWERS = 5
"""Answers in tags of their own that are looked into; no honest text has so many."""
MIN_DECIMALS = 6
"""Of a rounded answer, where no decimal writes the reference exactly."""
_END_OF_TURN = re.compile(r"<\|[a-z_]{2,20}\|>|</?s>|\[/INST\]")
"""A chat's own marks, written as text: what follows is no part of the answer."""
_BETWEEN_BOXES = re.compile(r"[\s$,;.*\\()\[\]]{0,12}(?:and|or)?[\s$,;.*\\()\[\]]{0,12}")
_EQUALS = re.compile(r"(?<![<>!=\\:])=(?![=>])")
_TERM = r"[A-Za-z](?:_\w|\^2)?"
_NAME = re.compile(
    rf"{_TERM}(?:\s?[-+]\s?{_TERM})+|[A-Z]{{2}}\^2|\\frac\{{[A-Za-z]{{1,2}}\}}\{{[A-Za-z]{{1,2}}\}}|(?:m\s?)?\\angle\s?[A-Z]{{1,3}}"
    r"|\\overline\{[A-Z]{2}\}|(?:\\angle\s?)?\|?[A-Za-z]{1,3}(?:_\w|_\{\w+\})?\|?(?:\([^()=]{0,20}\))?|\\[a-z]+|[^0-9=\\^+*/<>]*"
)
_SCIENTIFIC = re.compile(
    r"(?<![\w.^])(-?[1-9](?:\.[0-9]{1,30})?)(?:\s*(?:\\times|\\cdot|\*)\s*10\^\{?(-?[0-9]{1,2})\}?|[eE]([-+]?[0-9]{1,2}))(?![0-9])"
)
_REPEATING = re.compile(r"(?<![\w.])([0-9]*)\.([0-9]{0,20})\\(?:overline|bar)\{?([0-9]{1,20})\}?")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"(?<![\w.,])([0-9][0-9,]*(?:\.[0-9]+)?)\s+({'|'.join(_SCALES)})(?![A-Za-z])", re.IGNORECASE)
_NEGATIVE = re.compile(r"^(?:negative|minus)\s+(?=[0-9])|(?<=\bis )(?:negative|minus)\s+(?=[0-9])", re.IGNORECASE)
_ASKS_PERCENT = re.compile(r"(?<![0-9])(?<![0-9][\s\\])(?<![0-9]\s\\)(?:percent|%)", re.IGNORECASE)
_DOZEN = re.compile(r"[0-9]\s*dozen", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{0,15})\.([0-9]{1,15})(?![0-9.])")
_COMMAND = re.compile(r"\\[A-Za-z]+|\\\\")
_PLAIN_COMMANDS = frozenset(
    re.findall(
        r"\S+",
        r"\frac \sqrt \pi \cdot \times \sin \cos \tan \cot \sec \csc \ln \log \circ \infty \cup \cap \in \pm \mp \le"
        r" \leq \ge \geq \lt \gt \begin \end \\ \mathbb \theta \alpha \beta \mid \overline \triangle \angle \emptyset",
    )
)
_FUNCTIONS = frozenset(rf"\{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log"))
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{\w+\}")
_SETS = re.compile(r"[,;\[(<>]|\\(?:cup|in|pm|mp|infty|le|ge|leq|geq|lt|gt|emptyset|begin)(?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class Value:
    """What a piece of text says, where it is one number."""

    number: Number
    claims: tuple[str, ...] = ()
    """Calculations that the text calls equal to the number, `9 * 2` in `9 * 2 = 18`; none is checked yet."""


def math_correct(task: Task, completion: str) -> float:
    r"""Say whether the one answer of a text is the reference answer.

    Returns:
        1.0 or 0.0.

    Raises:
        ValueError: the reference answer is empty.

    Example:
        >>> task = Task(id="a", prompt="9 * 2 =", answer="18")
        >>> math_correct(task, "<think>17?</think> <answer>$18</answer>"), math_correct(task, "<answer>17 or 18")
        (1.0, 0.0)
    """
    reference = _reference(task.answer)
    piece = find_answer(completion)
    return 1.0 if piece is not None and _is_right(piece, reference, _question(task)) else 0.0


def voted_answer(completion: str) -> str | None:
    r"""Give the answer of a text for a vote.

    Returns:
        Written so that most equal answers are equal strings, units left out; None where there is no answer.

    Example:
        >>> voted_answer("<answer>18 dollars</answer>"), voted_answer(r"\boxed{\frac{2}{4}}"), voted_answer("")
        ('18', '1/2', None)
    """
    piece = find_answer(completion)
    if piece is None or len(piece) > MAX_CHARACTERS:
        return piece
    value = read_value(piece)
    if value is not None and not value.claims:
        return f"{value.number.value}{'%' if value.number.is_percent else ''}"
    return canonical(piece) or None


def find_answer(completion: str) -> str | None:
    r"""Give the one piece of a text that counts as its answer.

    In this order: what stands in the answer tags, however broken, outside of a thought rather than in it, closed rather
    than not (different ones are a list); the last box outside of a thought; the last sentence outside of a thought. Of
    tags that hold a box, the box.

    Returns:
        The piece; None where the text is blank outside of its thoughts.

    Example:
        >>> find_answer(r"<think>\boxed{17}</think> <answer>18</answer> 16"), find_answer(r"So \boxed{8}, my friend.")
        ('18', '8')
    """
    completion = _END_OF_TURN.split(completion, maxsplit=1)[0]
    pieces = list(answer_pieces(completion))
    if not pieces:
        text = without_thoughts(completion)
        return _boxed(text, is_tagged=False) or last_sentence(text)
    best = max((not piece.is_thought, piece.is_closed) for piece in pieces)
    found = [_in_tags(piece) or "" for piece in pieces if (not piece.is_thought, piece.is_closed) == best]
    return " , ".join(dict.fromkeys(found) if len(found) <= MAX_ANSWERS else found[:2])


def _in_tags(piece: Piece) -> str | None:
    text = piece.text
    return _boxed(text, is_tagged=True) or (text if piece.has_start else last_sentence(text))


def _boxed(text: str, *, is_tagged: bool) -> str | None:
    """What the last box holds, with a doubt that stands beside it; boxes side by side are one list."""
    found = [box for box in boxes(text) if box.content]
    found = [box for box in found if box.is_closed] or found
    if not found:
        return None
    first, content = found[-1], found[-1].content
    for box in reversed(found[:-1]):
        gap = text[box.end : first.start][:40]
        if gap.strip() and not (is_tagged and _BETWEEN_BOXES.fullmatch(gap)):
            break
        content = content if box.content == first.content else f"{box.content} , {content}"
        first = box
    before, after = text[max(0, first.start - 40) : first.start], text[found[-1].end : found[-1].end + 40]
    return f"not {content}" if is_doubtful_box(before, after, is_tagged=is_tagged) else content


def read_value(piece: str) -> Value | None:
    r"""Read a piece of text that says one number.

    Args:
        piece: at most `MAX_CHARACTERS` long.

    Returns:
        The number, with units and a few plain words left out. Of a sentence with several numbers the last, if a verb
        or `=` leads to it. None for what names several values, negates, bounds or doubts one, or is not computed.

    Example:
        >>> read_value("196 has 9 positive divisors").number.value, read_value("16 or 18"), read_value("9 * 2")
        (Fraction(9, 1), None, None)
    """
    text = _NEGATIVE.sub(
        "-", _SCALED.sub(_scaled, _REPEATING.sub(_repeating, _SCIENTIFIC.sub(_scientific, plain(piece))))
    )
    if not text or has_invisible(piece) or doubt(text) or names_several(text):
        return None
    *left, right = (part.strip() for part in _EQUALS.split(text))
    number = _only_number(right)
    if number is None or num_words(" ".join(left)) > MAX_WORDS_BEFORE:
        return None
    claims = (re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", bare_calculation(last_statement(part))) for part in left)
    return Value(number, tuple(claim for claim in claims if not _NAME.fullmatch(claim)))


def _only_number(text: str) -> Number | None:
    """The one number among plain words; the last one of a sentence."""
    found = list(NUMBERS.finditer(text))
    if not found or (len(found) > 1 and not states_only_last(text[found[-2].end() : found[-1].start()])):
        return None
    start, end = found[-1].span()
    before, after = text[:start], text[end:]
    statement = last_statement(before)
    if before[-1:].isalpha() or num_words(before) > MAX_WORDS_BEFORE or num_words(after) > MAX_WORDS_AFTER:
        return None
    if found[-1][0].startswith(("- ", "+ ")) and statement.strip(" ("):  # "Answer - 18" is no negative number
        return None
    if changes(f"{statement} {found[-1][0]}{after}") or not only_words(statement, after):
        return None
    return read_number(found[-1][0].strip())


def _scientific(match: re.Match[str]) -> str:
    return format(Decimal(match[1]).scaleb(int(match[2] or match[3])), "f")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    nines = 10 ** (len(fixed) + len(period)) - 10 ** len(fixed)
    return f"{int(whole) * nines + int(fixed + period) - int(fixed or '0')}/{nines}"


def _scaled(match: re.Match[str]) -> str:
    return format(Decimal(match[1].replace(",", "")).scaleb(_SCALES[match[2].lower()]), "f")


@dataclass(frozen=True, slots=True)
class _Reference:
    answer: str
    text: str
    """As `plain` writes it."""
    number: Number | None
    is_words: bool
    """Compared as a string, because algebra takes letters for factors ("seat" = "east")."""
    expression: str
    """Without its units, for algebra."""
    is_set: bool
    """A list, tuple, interval, matrix or relation, of which the answer may have the signs."""


@functools.lru_cache(maxsize=8192)
def _reference(answer: str) -> _Reference:
    text = plain(answer) if len(answer) <= MAX_CHARACTERS else answer.strip()
    if not text:
        raise ValueError(
            f"the reference answer {answer!r} cannot be parsed: it is empty; wanted a number, LaTeX or text"
        )
    if len(answer) > MAX_CHARACTERS:
        return _Reference(answer, text, None, True, text, False)
    value = read_value(answer)
    has_words_before = re.match(r"[^\W\d_]{2,}", text) is not None
    number = value.number if value is not None and not value.claims and not has_words_before else None
    expression = without_units(text) or text
    formula = _ENVIRONMENT.sub("", expression)
    is_words = bool(re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", formula)) or (
        text.isalpha() and (len(text) > 2 or "A" <= text <= "Z" or "\\text" in answer or "\\mbox" in answer)
    )
    return _Reference(answer, text, number, is_words, expression, bool(_SETS.search(text)))


def _question(task: Task) -> str:
    prompt = task.prompt if isinstance(task.prompt, str) else " ".join(str(part.get("content")) for part in task.prompt)
    return prompt


def _is_right(piece: str, reference: _Reference, question: str) -> bool:
    if len(piece) > MAX_CHARACTERS or len(reference.answer) > MAX_CHARACTERS:
        return piece.strip() == reference.text
    if has_invisible(piece):
        return False
    text = plain(piece)
    if text == reference.text:
        return True
    if reference.number is not None:
        value = read_value(piece) if "dozen" in question or not _DOZEN.search(text) else None
        return value is not None and _agree(value, reference.number, question)
    text = _without_rounding(text, reference)
    if doubt(text) or num_words(text) > MAX_WORDS_BEFORE:
        return False
    statement, wanted = _stated(text), canonical(reference.text)
    if re.fullmatch(r"[A-Z]", wanted) and wanted in (choice_of(statement), choice_of(text)):
        return True
    if canonical(statement) == wanted or (reference.is_words and canonical(statement).lower() == wanted.lower()):
        return True
    return not reference.is_words and _is_same_expression(piece, statement, reference)


def _without_rounding(text: str, reference: _Reference) -> str:
    if "\\approx" not in text or reference.is_words:
        return text
    from podsrl.score.math import number_of

    exact = number_of(reference.expression)
    return text if exact is None or exact[1] else without_rounding(text, exact[0])


def _stated(text: str) -> str:
    """What follows "the answer is" or the like: all of the text where the words before it are none."""
    statement = last_statement(text)
    before = text[: len(text) - len(statement)]
    is_list = re.search(r"[{}\[\]]", before) is not None or (":" in before[:-2] and "," in before)
    says_more = re.search(r"[\d\\]", before) is not None and (
        before.rstrip()[-1:] == ":" or re.search(r"\band\b", before)
    )
    return text if is_list or says_more or not statement or not states_once(before) else statement


def _agree(value: Value, reference: Number, question: str) -> bool:
    """The same number, computed, with a percent sign only where one belongs."""
    number = value.number
    if number.is_percent and not reference.is_percent and not _ASKS_PERCENT.search(question):
        return False
    if number.is_fraction and number.value.denominator == 1 and not reference.is_fraction:
        return False
    if not _is_close(number, reference.value):
        return False
    shares = [str(number.value), *([str(number.value / 100)] if number.is_percent else [])]  # 1/4 = 0.25 = 25%
    return all(any(_are_true((claim,), share) for share in shares) for claim in value.claims)


def _is_close(number: Number, exact: Fraction, is_exact: bool = True) -> bool:
    """Equal; or a decimal, rounded or cut at its sixth place or later, of a number that no decimal writes exactly."""
    if number.value == exact:
        return True
    if number.num_decimals < MIN_DECIMALS or (is_exact and _is_decimal(exact)) or number.value * exact < 0:
        return False
    places = abs(exact) * 10**number.num_decimals
    return abs(number.value) * 10**number.num_decimals in (round(places), int(places))


def _is_decimal(exact: Fraction) -> bool:
    """Whether a decimal writes the number exactly: its denominator has no factors but 2 and 5."""
    denominator = exact.denominator
    for factor in (2, 5):
        while denominator % factor == 0:
            denominator //= factor
    return denominator == 1


def _are_true(claims: tuple[str, ...], value: str) -> bool:
    if not claims:
        return True
    from podsrl.score.math import equals_by_algebra

    return all(equals_by_algebra(claim, value) for claim in claims)


def _is_same_expression(piece: str, statement: str, reference: _Reference) -> bool:
    """By algebra, for what is no plain number."""
    from podsrl.score.math import equals_by_algebra, number_of

    text = statement
    if reference.is_set:
        text = re.sub(r"\s*,?\s*\b(?:and|or)\b\s*", ", ", as_union(text) if "\\cup" in reference.text else text)
    elif changes(text) or names_several(text):
        return False
    *left, right = (part.strip() for part in _EQUALS.split(_bare(text, reference)))
    if left and "=" not in reference.text and (not reference.is_set or "pmatrix" in reference.text):
        left = [part for part in left if not _NAME.fullmatch(part)]
        text = " = ".join((*left, right))
    if not _knows(text, reference) or ("'" in text and "'" not in reference.text):
        return False
    exact, value = number_of(reference.expression), read_value(piece)
    if exact is not None and value is not None:
        return _is_close(value.number, *exact) and _are_true(value.claims, reference.expression)
    if "." not in reference.text:  # algebra would round a decimal, and a fraction it would not
        text, right = _DECIMAL.sub(_fraction, text), _DECIMAL.sub(_fraction, right)
    if "=" not in reference.text and not reference.is_set:
        return equals_by_algebra(right, reference.expression) and _are_true(tuple(left), reference.expression)
    return equals_by_algebra(_bare(text, reference), reference.expression, allows_relations=reference.is_set)


def _bare(text: str, reference: _Reference) -> str:
    """Without the unit behind it; letters of the reference's own are none."""
    bare = without_units(text)
    unit = set(re.findall(r"[A-Za-z]", text[len(bare) :]))
    return text if unit <= set(reference.text) else bare


def _fraction(match: re.Match[str]) -> str:
    return f"\\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}}"


def _knows(text: str, reference: _Reference) -> bool:
    """Whether a text has no command that would compute, and no word."""
    own = set(_COMMAND.findall(text)) - set(_COMMAND.findall(reference.text))
    if own - _PLAIN_COMMANDS or (
        "=" in reference.text and own & _FUNCTIONS
    ):  # algebra may solve such equations for ever
        return False
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", _ENVIRONMENT.sub("", _bare(text, reference)))
    return all(set(word) <= set(reference.text) for word in words)
