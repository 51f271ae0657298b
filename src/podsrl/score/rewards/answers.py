r"""The rule for answers: when the answer of a completion is right (docs/answers.md).

`find_answer` (extract.py) takes one piece of the text by a fixed order, `read_value` (reading.py) reads it as one
number, and `math_correct` compares. A policy under training looks for gaps in the rule, so what can be read in two
ways, or not at all, is wrong.

Algebra (algebra.py) loads sympy and is used only for what is no plain number; only worker processes call it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

from podsrl.score.rewards.canonical import (
    MAX_CHARACTERS,
    NUMBERS,
    Number,
    canonical,
    empty_reference,
    has_invisible,
    plain,
    read_number,
)
from podsrl.score.rewards.copied import is_copied, without_words
from podsrl.score.rewards.extract import find_answer
from podsrl.score.rewards.reading import (
    EQUALS, MAX_WORDS, NAME, Value, changes, doubt, last_statement, changed, names_several, num_words, own_words, read_value, states_once,
    without_units,
)
from podsrl.score.rewards.sets import as_union, is_alike
from podsrl.types import Task

MIN_DECIMALS = 6
"""Decimals that a rounded answer needs, where no decimal writes the reference exactly."""
_ASKS_PERCENT = re.compile(r"(?<![0-9])(?<![0-9][\s\\])(?<![0-9]\s\\)(?:percent|%)", re.IGNORECASE)
_DOZEN = re.compile(r"[0-9]\s*dozen", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{0,15})\.([0-9]{1,15})(?![0-9.])")
_WORDS_BEFORE = re.compile(r"(?:[A-Za-z]{2,}\s)+(?=[0-9])")
_COMMAND = re.compile(r"\\[A-Za-z]+|\\\\")
_PLAIN_COMMANDS = frozenset(
    re.findall(
        r"\S+",
        r"\exp \frac \sqrt \pi \cdot \times \sin \cos \tan \cot \sec \csc \ln \log \circ \infty \cup \cap \in \pm \mp"
        r" \le \leq \ge \geq \lt \gt \begin \end \\ \mathbb \theta \alpha \beta \mid \overline \triangle \angle"
        r" \emptyset",
    )
)
_FUNCTIONS = frozenset(rf"\{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "exp"))
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{\w+\}")
_SETS = re.compile(r"[,;\[(<>]|\\(?:cup|in|pm|mp|infty|le|ge|leq|geq|lt|gt|emptyset|begin)(?![A-Za-z])")
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+")
_NAMED = re.compile(r"[A-Za-z]\s*(?:=|\\in(?![A-Za-z]))")
_BASE = re.compile(r"\(?(-?[0-9][0-9A-Z.]*)\)?_\{?([0-9]{1,2})\}?")
_ROUNDED = re.compile(r"([^=]*[^=\s])\s*\\approx\s*(-?[0-9]{1,15}(?:\.([0-9]{1,15}))?)((?:\s[A-Za-z]+)*)")
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(([A-Z])\)|([A-Z])(?![A-Za-z]))[).:]*(?:\s+(\S.*))?", re.IGNORECASE
)
_MARKED_CHOICE = re.compile(r"(?:(?:option|choice|answer)\s+)?(?:\([A-Z]\)|[A-Z][).:])", re.IGNORECASE)
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z])[A-Z](?![A-Za-z])|\b(?:or|and)\b|[;|]")


def math_correct(task: Task, completion: str) -> float:
    r"""Whether the one answer of a text is the reference answer: 1.0 or 0.0. ValueError: the reference is empty.

    Example:
        >>> task = Task(id="a", prompt="9 * 2 =", answer="18")
        >>> math_correct(task, "<think>17?</think> <answer>$18</answer>"), math_correct(task, "<answer>17 or 18")
        (1.0, 0.0)
    """
    reference = _reference(task.answer)
    piece = find_answer(completion)
    return 1.0 if piece is not None and _is_right(piece, reference, _question(task), completion[: max(completion.find(piece), 0)]) else 0.0


def is_correct(completion: str, answer: str, question: str = "") -> bool:
    r"""Whether a text's answer is right by the default rule, `math_correct`; the question's words may stand beside it.

    Example:
        >>> is_correct(r"So it is \boxed{\frac{1}{2}}.", "0.5"), is_correct("It is 17 or 18.", "18")
        (True, False)
    """
    return math_correct(Task(id="", prompt=question, answer=answer), completion) == 1.0


def voted_answer(completion: str) -> str | None:
    r"""Give the answer of a text for a majority vote, without units, so that most equal answers are equal strings.

    Example:
        >>> voted_answer("<answer>18 dollars</answer>"), voted_answer(r"\boxed{\frac{2}{4}}"), voted_answer("")
        ('18', '1/2', None)
    """
    piece = find_answer(completion)
    if piece is None or len(piece) > MAX_CHARACTERS:
        return piece
    value = read_value(piece, piece)
    if value is not None and not value.claims:
        return f"{value.number.value}{'%' if value.number.is_percent else ''}"
    return canonical(piece) or None


@dataclass(frozen=True, slots=True)
class _Reference:
    answer: str
    text: str
    """As `plain` writes it."""
    number: Number | None
    is_words: bool
    """Whether it is compared as a string, because algebra takes letters for factors ("seat" = "east")."""
    expression: str
    """Without its units, for algebra."""
    is_set: bool
    """Whether it is a list, tuple, interval, matrix or relation; only then an answer may have such signs."""


@functools.lru_cache(maxsize=8192)
def _reference(answer: str) -> _Reference:
    text = plain(answer) if len(answer) <= MAX_CHARACTERS else answer.strip()
    if not text:
        raise empty_reference(answer)
    if len(answer) > MAX_CHARACTERS:
        return _Reference(answer, text, None, True, text, False)
    value = read_value(answer)
    has_words_before = re.match(r"[^\W\d_]{2,}", text) is not None
    number = value.number if value is not None and not value.claims and not has_words_before else None
    expression = without_units(text) or text
    formula = _ENVIRONMENT.sub("", expression)
    is_words = bool(re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", formula) or re.search(r":[0-9]{2} [ap]m$", text)) or (
        text.isalpha() and (len(text) > 2 or "A" <= text <= "Z" or "\\text" in answer or "\\mbox" in answer)
    )
    return _Reference(answer, text, number, is_words, expression, bool(_SETS.search(text)))


def _question(task: Task) -> str:
    if isinstance(task.prompt, str):
        return task.prompt
    return " ".join(str(message.get("content")) for message in task.prompt)


def _is_right(piece: str, reference: _Reference, question: str, before: str) -> bool:
    if len(piece) > MAX_CHARACTERS or len(reference.answer) > MAX_CHARACTERS:
        return piece.strip() == reference.text
    if has_invisible(piece):
        return False
    text = plain(piece)
    if text == reference.text:
        return True
    if reference.number is not None:
        value = read_value(piece, question, before) if "dozen" in question or not _DOZEN.search(text) else None
        if value is None or not _agree(value, reference.number, question):
            return False
        wanted = without_words(reference.text)
        return not any(is_copied(one, wanted, question) for one in _as_written(text, reference.number.value))
    text = _without_rounding(text, reference)
    own = own_words(question)
    statement, wanted = _stated(text, own), canonical(reference.text)
    if num_words(text) > MAX_WORDS or doubt(text.removesuffix(statement), own):
        return False
    written = {canonical(statement), canonical(text)}
    if wanted in written or (reference.is_words and wanted.lower() in {one.lower() for one in written}):
        return True
    if doubt(text, own):
        return False
    if re.fullmatch(r"[A-Z]", wanted) and wanted in (choice_of(statement), choice_of(text)):
        return True
    return not reference.is_words and _is_same_expression(piece, statement, reference, question)


def _as_written(text: str, value: Fraction) -> list[str]:
    """The numbers of a statement that have the value; all of it where none does, as in `6.02 \\cdot 10^3`."""
    right = EQUALS.split(text)[-1]
    numbers = [(one, read_number(one.strip())) for one in NUMBERS.findall(right)]
    same = [one for one, number in numbers if number is not None and number.value == value]
    return same or [without_words(last_statement(right))]


def _without_rounding(text: str, reference: _Reference) -> str:
    if "\\approx" not in text or reference.is_words:
        return text
    from podsrl.score.rewards.algebra import number_of

    exact = number_of(reference.expression)
    return text if exact is None or exact[1] else without_rounding(text, exact[0])


def _stated(text: str, own: frozenset[str]) -> str:
    """What follows "the answer is" or the like; all of the text where no such words lead to it."""
    statement = last_statement(text)
    if statement == text and (words := _WORDS_BEFORE.match(text)):
        statement = text[words.end() :]
    before = text[: len(text) - len(statement)]
    is_list = re.search(r"[{}\[\]]", before) is not None or (":" in before[:-2] and "," in before)
    says_more = re.search(r"[\d\\]", before) is not None and (
        before.rstrip()[-1:] == ":" or re.search(r"\band\b", before)
    )
    return (
        text
        if is_list or says_more or not statement or not states_once(before) or changes(before, own)
        else statement
    )


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
    is_true = all(any(_are_true((claim,), share) for share in shares) for claim in value.claims)
    return is_true and _follows(value)


def _follows(value: Value) -> bool:
    """Whether the equations before a value are true."""
    return all(_are_true(step.claims, str(step.number.value)) for step in value.steps)


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
    from podsrl.score.rewards.algebra import equals_by_algebra

    return all(equals_by_algebra(claim, value) for claim in claims)


def _is_same_expression(piece: str, statement: str, reference: _Reference, question: str) -> bool:
    """By algebra, for what is no plain number; what stands in the question is not worked out."""
    text = statement
    if reference.is_set:
        text = re.sub(r"\s*,?\s*\b(?:and|or)\b\s*", ", ", as_union(text) if "\\cup" in reference.text else text)
    elif names_several(text):
        return False
    if reference.is_set and not is_alike(text, reference.text):
        return False
    own = own_words(question)
    *left, right = (part.strip() for part in EQUALS.split(_bare(text, reference, own)))
    is_relation = "=" in reference.text
    if left and not is_relation and (not reference.is_set or "pmatrix" in reference.text):
        left = [part for part in left if not NAME.fullmatch(part)]
        text = " = ".join((*left, right))
    if base := _BASE.fullmatch(canonical(reference.text)):
        return not left and _is_in_base(canonical(right), base[1], base[2], question)
    stated = text if is_relation else _NAMED.sub("", text) if reference.is_set else right
    return _equals(piece, text, left, right, reference, question) and not is_copied(
        stated, reference.expression, question
    )


def _is_in_base(text: str, digits: str, base: str, question: str) -> bool:
    """Letter by letter, because algebra drops the base; a question that names it allows an answer to leave it out."""
    found = _BASE.fullmatch(text)
    return found.groups() == (digits, base) if found else text == digits and "base" in question


def _equals(piece: str, text: str, left: list[str], right: str, reference: _Reference, question: str) -> bool:
    from podsrl.score.rewards.algebra import equals_by_algebra, number_of

    own = own_words(question)
    if not _knows(text, reference, own) or ("'" in text and "'" not in reference.text):
        return False
    exact, value = number_of(reference.expression), read_value(piece, question)
    if exact is not None and value is not None:
        return _is_close(value.number, *exact) and _are_true(value.claims, reference.expression) and _follows(value)
    if "." not in reference.text:  # algebra would round a decimal, and a fraction it would not
        text, right = _DECIMAL.sub(_fraction, text), _DECIMAL.sub(_fraction, right)
    if "=" not in reference.text and not reference.is_set:
        return equals_by_algebra(right, reference.expression) and _are_true(tuple(left), reference.expression)
    return equals_by_algebra(_bare(text, reference, own), reference.expression, allows_relations=reference.is_set)


def _bare(text: str, reference: _Reference, own: frozenset[str]) -> str:
    """Without the unit behind it; letters that the reference has too are no unit."""
    bare = without_units(text)
    unit = set(re.findall(r"[A-Za-z]", text[len(bare) :]))
    return text if unit <= set(reference.text) or changed(text[len(bare) :], own) else bare


def _fraction(match: re.Match[str]) -> str:
    return f"\\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}}"


def _knows(text: str, reference: _Reference, own: frozenset[str]) -> bool:
    """Whether a text has no command that would compute, and no word."""
    commands = set(_COMMAND.findall(text)) - set(_COMMAND.findall(reference.text))
    if commands - _PLAIN_COMMANDS or (
        "=" in reference.text and commands & _FUNCTIONS
    ):  # algebra may solve such equations for ever
        return False
    words = _WORDS.findall(_ENVIRONMENT.sub("", _bare(text, reference, own)))
    if reference.is_set or not _WORDS.search(reference.expression):  # beside letters, none is a unit
        words = [word for word in words if len(word) > 1]
    return all(set(word) <= set(reference.text) for word in words)


def without_rounding(text: str, exact: Fraction) -> str:
    r"""Leave out a decimal behind an approximation sign, where it is the reference's value, rounded or cut.

    Example:
        >>> exact = Fraction("7.0710678118654752")
        >>> without_rounding(r"5\sqrt{2} \approx 7.07 cm", exact), without_rounding(r"5\sqrt{2} \approx 8", exact)
        ('5\\sqrt{2}', '5\\sqrt{2} \\approx 8')
    """
    found = _ROUNDED.fullmatch(text)
    if found is None:
        return text
    scale = 10 ** len(found[3] or "")
    return found[1] if Fraction(found[2]) * scale in (round(exact * scale), int(exact * scale)) else text


def choice_of(text: str) -> str | None:
    """Give the letter of a choice, its own text left out; None where the text is no choice, or names two.

    Example:
        >>> choice_of("(C) 12"), choice_of("Option b"), choice_of("A) 5 B) 6"), choice_of("A or C"), choice_of("Cat")
        ('C', 'B', None, None, None)
    """
    found = _CHOICE.fullmatch(text)
    if found is None or (found[3] and _OTHER_CHOICE.search(found[3])):
        return None
    if found[3] and not _MARKED_CHOICE.match(text):
        return None
    return (found[1] or found[2]).upper()
