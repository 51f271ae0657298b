r"""Compares what is no plain number: expressions, lists, intervals, relations, words, choices.

Algebra drops what stands twice in a list, takes `[3, 1]` for the point `(3, 1)`, solves an inequality itself and works
out what was to be worked out; all of this is looked at here, before it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from podsrl.score.rewards import reading
from podsrl.score.rewards.canonical import MAX_CHARACTERS, Number, canonical, empty_reference, plain
from podsrl.score.rewards.copied import is_copied
from podsrl.score.rewards.reading import EQUALS, MAX_WORDS, NAME, Value, read_value

MIN_DECIMALS = 6
"""Decimals that a rounded answer needs, where no decimal writes the reference exactly."""
_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{0,15})\.([0-9]{1,15})(?![0-9.])")
_WORDS_BEFORE = re.compile(r"(?:[A-Za-z]{2,}\s)+(?=[0-9])")
_COMMAND = re.compile(r"\\[A-Za-z]+|\\\\")
_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|ln|log|exp)")
_PLAIN_COMMAND = re.compile(
    r"\\(?:frac|sqrt|pi|cdot|times|circ|infty|cup|cap|in|pm|mp|leq?|geq?|lt|gt|begin|end|\\|mathbb|theta|alpha|beta|mid|overline|triangle|angle|emptyset)"
)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{\w+\}")
_SETS = re.compile(r"[,;\[(<>]|\\(?:cup|in|pm|mp|infty|le|ge|leq|geq|lt|gt|emptyset|begin)(?![A-Za-z])")
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+")
_NAMED = re.compile(r"[A-Za-z]\s*(?:=|\\in(?![A-Za-z]))")
_NAMES_OF_A_TUPLE = re.compile(r"([a-z])(?=\s*(?:,\s*[a-z]\s*){0,9}\)?\s*=)")
_BASE = re.compile(r"\(?(-?[0-9][0-9A-Z.]*)\)?_\{?([0-9]{1,2})\}?")
_ROUNDED = re.compile(r"([^=]*[^=\s])\s*\\approx\s*(-?[0-9]{1,15}(?:\.([0-9]{1,15}))?)((?:\s[A-Za-z]+)*)")
_CHOICE = re.compile(
    r"((?:option|choice|answer)\s+)?(?:\(([A-Z])\)|([A-Z])(?![A-Za-z]))([).:]*)(?:\s+(\S.*))?", re.IGNORECASE
)
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z])[A-Z](?![A-Za-z])|\b(?:or|and)\b|[;|]")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|leq|ge|geq|lt|gt)(?![A-Za-z])")
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])|\\(?:theta|alpha|beta)(?![A-Za-z])")
_NAME = re.compile(r"^[^=]*=(?!.*=)|^[A-Za-z]\s*\\in(?![A-Za-z])")
_END, _LESS, _MORE = r"(-?[0-9A-Za-z\\{}/.]{1,30})", r"(<|\\leq?(?![A-Za-z]))", r"(>|\\geq?(?![A-Za-z]))"
_INTERVAL = re.compile(rf"(?:{_END}\s*{_LESS}\s*)?[a-z]\s*{_LESS}\s*{_END}|[a-z]\s*{_MORE}\s*{_END}")
_KEEPS_ALL = re.compile(
    rf"[{{}}\[\]]|:.*,.*..|,.*:..|[\d\\].*(?::\s*$|\band\b)|(?:{reading.STATES.pattern}).*\b(?:and|also|or|then)\b",
    re.I,
)
"""What stands before a statement that is not all of it: a list, or another statement."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference answer."""

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
def reference_of(answer: str) -> Reference:
    """Look at a reference answer. ValueError: it is empty."""
    text = plain(answer) if len(answer) <= MAX_CHARACTERS else answer.strip()
    if not text:
        raise empty_reference(answer)
    value = read_value(answer) if len(answer) <= MAX_CHARACTERS else None
    has_words_before = re.match(r"[^\W\d_]{2,}", text) is not None
    number = value.number if value is not None and not value.claims and not has_words_before else None
    expression = reading.without_units(text) or text
    formula = _ENVIRONMENT.sub("", expression)
    is_words = bool(re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", formula) or re.search(r":[0-9]{2} [ap]m$", text)) or (
        text.isalpha() and (len(text) > 2 or "A" <= text <= "Z" or "\\text" in answer or "\\mbox" in answer)
    )
    return Reference(text, number, is_words, expression, bool(_SETS.search(text)))


def is_same_expression(piece: str, reference: Reference, question: str, before: str = "") -> bool:
    """Whether a piece of text states the reference: letter by letter, as a choice, or by algebra."""
    text, own = _without_rounding(plain(piece), reference), reading.own_words(question)
    statement, wanted = _stated(text, own), canonical(reference.text)
    if reading.num_words(text) > MAX_WORDS or reading.doubt(text.removesuffix(statement), own):
        return False
    written = {canonical(statement), canonical(text)}
    if wanted in written or (reference.is_words and wanted.lower() in {one.lower() for one in written}):
        return True
    if reading.doubt(text, own):
        return False
    if re.fullmatch(r"[A-Z]", wanted) and wanted in (_choice_of(statement), _choice_of(text)):
        return True
    return not reference.is_words and _is_same_by_algebra(piece, statement, reference, question)


def _stated(text: str, own: frozenset[str]) -> str:
    statement = reading.last_statement(text)
    if statement == text and (words := _WORDS_BEFORE.match(text)):
        statement = text[words.end() :]
    before = text[: len(text) - len(statement)]
    return text if not statement or _KEEPS_ALL.search(before) or reading.changes(before, own) else statement


def _is_same_by_algebra(piece: str, text: str, reference: Reference, question: str) -> bool:
    if reference.is_set:
        text = re.sub(r"\s*,?\s*\b(?:and|or)\b\s*", ", ", _as_union(text) if "\\cup" in reference.text else text)
    names = _NAMES_OF_A_TUPLE.findall(text) if reference.text.startswith("(") else []
    is_turned = names != sorted(names) and ",".join(names) not in question.replace(" ", "")
    if is_turned or not (_is_alike(text, reference.text) if reference.is_set else not reading.SEVERAL.search(text)):
        return False
    own = reading.own_words(question)
    *left, right = (part.strip() for part in EQUALS.split(_bare(text, reference, own)))
    is_relation = "=" in reference.text
    if left and not is_relation and (not reference.is_set or "pmatrix" in reference.text):
        left = [part for part in left if not NAME.fullmatch(part)]
        text = " = ".join((*left, right))
    if base := _BASE.fullmatch(canonical(reference.text)):  # letter by letter, because algebra drops the base
        found = _BASE.fullmatch(canonical(right))
        is_same = found.groups() == base.groups() if found else canonical(right) == base[1] and "base" in question
        return not left and is_same
    stated = text if is_relation else _NAMED.sub("", text) if reference.is_set else right
    is_copy = is_copied(stated, reference.expression, question)
    return not is_copy and _equals(piece, text, left, right, reference, question)


def _equals(piece: str, text: str, left: list[str], right: str, reference: Reference, question: str) -> bool:
    from podsrl.score.rewards.algebra import equals_by_algebra, number_of

    own = reading.own_words(question)
    if not _knows(text, reference, own) or ("'" in text and "'" not in reference.text):
        return False
    exact, value = number_of(reference.expression), read_value(piece, question)
    if exact is not None and value is not None:
        return is_close(value.number, *exact) and are_true(value, reference.expression)
    if "." not in reference.text:  # algebra would round a decimal, and a fraction it would not
        text, right = (
            _DECIMAL.sub(lambda one: rf"\frac{{{one[1]}{one[2]}}}{{1{'0' * len(one[2])}}}", side)
            for side in (text, right)
        )
    if "=" not in reference.text and not reference.is_set:
        return all(equals_by_algebra(side, reference.expression) for side in (right, *left))
    return equals_by_algebra(_bare(text, reference, own), reference.expression, allows_relations=reference.is_set)


def _bare(text: str, reference: Reference, own: frozenset[str]) -> str:
    unit = text[len(bare := reading.without_units(text)) :]  # letters that the reference has too are no unit
    return text if set(re.findall(r"[A-Za-z]", unit)) <= set(reference.text) or reading.changed(unit, own) else bare


def _knows(text: str, reference: Reference, own: frozenset[str]) -> bool:
    commands = set(_COMMAND.findall(text)) - set(_COMMAND.findall(reference.text))
    functions = {command for command in commands if _FUNCTION.fullmatch(command)}
    if not all(map(_PLAIN_COMMAND.fullmatch, commands - functions)) or ("=" in reference.text and functions):
        return False  # algebra may solve equations of functions for ever
    words = _WORDS.findall(_ENVIRONMENT.sub("", _bare(text, reference, own)))
    if reference.is_set or not _WORDS.search(reference.expression):  # beside letters, none is a unit
        words = [word for word in words if len(word) > 1]
    return all(set(word) <= set(reference.text) for word in words)


def _without_rounding(text: str, reference: Reference) -> str:
    from podsrl.score.rewards.algebra import number_of

    found = _ROUNDED.fullmatch(text)
    exact = number_of(reference.expression) if found and not reference.is_words else None
    if found is None or exact is None or exact[1]:
        return text
    scale = 10 ** len(found[3] or "")
    return found[1] if Fraction(found[2]) * scale in (round(exact[0] * scale), int(exact[0] * scale)) else text


def _choice_of(text: str) -> str | None:
    found = _CHOICE.fullmatch(text)
    if found is None or (found[5] and (_OTHER_CHOICE.search(found[5]) or not (found[2] or found[4]))):
        return None
    return (found[2] or found[3]).upper()


def is_close(number: Number, exact: Fraction, is_exact: bool = True) -> bool:
    """Equal; or a decimal, rounded or cut at its sixth place or later, of a number that no decimal writes exactly."""
    if number.value == exact:
        return True
    is_decimal = is_exact and 10**400 % exact.denominator == 0
    if number.num_decimals < MIN_DECIMALS or is_decimal or number.value * exact < 0:
        return False
    places = abs(exact) * 10**number.num_decimals
    return abs(number.value) * 10**number.num_decimals in (round(places), int(places))


def are_true(value: Value, exact: str | None = None) -> bool:
    """Whether algebra calls all calculations what they should be; for those of the value itself, `exact` or it."""
    for claim, number in value.claims:
        from podsrl.score.rewards.algebra import equals_by_algebra

        wanted = number or value.number  # 1/4 = 0.25 = 25%
        readings = [wanted.value, wanted.value / 100] if wanted.is_percent else [wanted.value]
        if not any(equals_by_algebra(claim, one) for one in ([exact] if exact and not number else map(str, readings))):
            return False
    return True


def _is_alike(text: str, reference: str) -> bool:
    """Whether a list has as many elements as the reference, and no other brackets; whether an inequality is solved."""
    if _INEQUALITY.search(text + reference) and not _INEQUALITY.search(reference):
        own = [one for one in _LETTER.findall(text) if one not in _LETTER.findall(_NAME.sub("", reference))]
        return len(own) == 1 and own[0] in map(str.strip, _INEQUALITY.split(text))
    (ours, count), (theirs, wanted) = _shape(text), _shape(reference)
    return _INEQUALITY.search(reference) is not None or (count == wanted and ("" in (ours, theirs) or ours == theirs))


def _shape(text: str) -> tuple[str, int]:
    text = re.sub(r"\\(?=[{}])", "", _NAME.sub("", text)).replace(" ", "")
    depths = list(accumulate((sign in "([{") - (sign in ")]}") for sign in text))
    is_within = text[:1] in ("(", "[", "{") and 0 not in depths[:-1]
    commas = sum(sign == "," and depth == is_within for sign, depth in zip(text, depths, strict=True))
    return text[0] + text[-1] if is_within else "", 1 + commas + text.count("\\pm")


def _as_union(text: str) -> str:
    found = [_INTERVAL.fullmatch(part.strip()) for part in re.split(r"\bor\b", text)]
    return r"\cup".join(_interval(one) for one in found if one) if len(found) > 1 and all(found) else text


def _interval(found: re.Match[str]) -> str:
    low, left, right, high, above, least = found.groups()
    low, high = (least, r"\infty") if least else (low or r"-\infty", high)
    opening, closing = ("[" if "\\" in (left or above or "") else "("), ("]" if "\\" in (right or "") else ")")
    return f"{opening}{low},{high}{closing}"
