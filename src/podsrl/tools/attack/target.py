"""What a hack knows: a question, its right answer, what kind of answer that is, and wrong ones near it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from podsrl.types import Task

Kind = Literal[
    "number", "percent", "fraction", "choice", "text", "tuple", "set", "interval", "expression", "program", "empty"
]
"""A list without brackets is a set: its order may not count."""

_NUMBER = r"-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?"
_FRACTION = re.compile(r"(-?)(?:\\[dt]?frac\{(-?\d+)\}\{(\d+)\}|(\d+)\s*/\s*(\d+))")
_CHOICE = re.compile(r"(?:\\text\{)?\(?([A-J])\)?\}?")
_WORDS = re.compile(r"(?:\\text\{)?[^\W_][\w\s'’.-]*\}?")
_PROGRAM = re.compile(r"^(?:async +)?def +(\w+) *\(|^ *print *\(", re.MULTILINE)
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_OTHER_WORDS = ("nothing", "Monday", "green", "the other one")
_MAX_CHARACTERS = 300
"""Of a number that is looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One question under attack."""

    task: Task
    question: str
    """Its text; of a chat, the last message's."""
    kind: Kind
    wrong: tuple[str, str, str]
    """Near the right answer, in its own form, and different from it and each other."""

    @property
    def answer(self) -> str:
        """The right one."""
        return self.task.answer.strip()

    @property
    def value(self) -> Fraction | None:
        """The answer's, where it is one number."""
        return number_of(self.answer)

    @property
    def integer(self) -> int | None:
        """The answer's value, where it is written as a whole number."""
        is_whole = self.kind == "number" and self.value is not None and self.value.denominator == 1
        return int(self.value or 0) if is_whole and "." not in self.answer else None

    @property
    def function(self) -> str:
        """The first one that a program defines, which the tests probably call."""
        return function_of(self.answer)

    def is_answer(self, text: str) -> bool:
        """Whether a text is the right answer and nothing else, however it is written.

        Example:
            >>> target_of(Task(id="", prompt="9*2=", answer="18")).is_answer("18.0")
            True
        """
        if _letters(text) == _letters(self.answer) or _letters(text) == _letters(self.answer.rpartition("=")[2]):
            return True
        ours, theirs = _readings(self.answer.rpartition("=")[2]), _readings(text)
        return bool(ours & theirs)


def target_of(task: Task) -> Target:
    """Look at a task.

    Example:
        >>> target = target_of(Task(id="a", prompt="9*2=", answer="18"))
        >>> target.kind, target.wrong
        ('number', ('19', '17', '28'))
    """
    question = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
    kind = kind_of(task.answer)
    answer = task.answer.strip()
    known = dict.fromkeys((*_neighbours(kind, answer), "1", "2", "3", "4"))  # some answers have too few neighbours
    first, second, third = [text for text in known if text != answer][:3]
    return Target(task=task, question=question, kind=kind, wrong=(first, second, third))


def kind_of(answer: str) -> Kind:
    r"""The kind of answer that a reference is.

    Example:
        >>> kind_of("def f(x): return x")
        'program'
        >>> [kind_of(text) for text in ("1,234", "50%", r"\frac12", r"\frac{1}{2}", "(C)", "[1, 2)", "x+1", "red")]
        ['number', 'percent', 'expression', 'fraction', 'choice', 'interval', 'expression', 'text']
    """
    text = _bare(answer)
    if not text:
        return "empty"
    if _PROGRAM.search(answer):
        return "program"
    if number_of(text) is not None:
        return "percent" if text.endswith("%") else "fraction" if _FRACTION.fullmatch(text) else "number"
    if _CHOICE.fullmatch(text):
        return "choice"
    if "," in text:
        if text.startswith(("\\{", "{")):
            return "set"
        is_bracketed = text[0] in "[(" and text[-1] in ")]"
        return "set" if not is_bracketed else "tuple" if (text[0], text[-1]) == ("(", ")") else "interval"
    return "text" if _WORDS.fullmatch(text) and re.search(r"[^\W\d]{2}", text) else "expression"


def function_of(program: str) -> str:
    """The name of the first function that a program defines.

    Example:
        >>> function_of("import math; half = 0.5\\ndef twice(x): return 2 * x")
        'twice'
    """
    return next((name for name in _PROGRAM.findall(program) if name), "solve")


def number_of(text: str) -> Fraction | None:
    """Read a text that is one number, fraction or percentage; `50%` is 50.

    Example:
        >>> number_of("$1,234.50"), number_of("3/4"), number_of("3 or 4")
        (Fraction(2469, 2), Fraction(3, 4), None)
    """
    text = _bare(text).removesuffix("%").strip()
    if len(text) > _MAX_CHARACTERS:
        return None
    if match := _FRACTION.fullmatch(text):
        sign, top, bottom, over, under = match.groups()
        if int(bottom or under) == 0:
            return None
        return Fraction(int(top or over), int(bottom or under)) * (-1 if sign else 1)
    is_number = re.fullmatch(_NUMBER, text) and any("0" <= character <= "9" for character in text)
    return Fraction(text.replace(",", "")) if is_number and text.isascii() else None


def decimal(value: Fraction, places: int) -> str:
    """Write a number with so many decimals, the rest cut off.

    Example:
        >>> decimal(Fraction(-1, 3), 2), decimal(Fraction(7), 0)
        ('-0.33', '7')
    """
    whole, rest = divmod(int(abs(value) * 10**places), 10**places)
    sign = "-" if value < 0 and (whole or rest) else ""
    return f"{sign}{whole}.{rest:0{places}}" if places else f"{sign}{whole}"


def num_places(text: str) -> int:
    """Decimals that a number is written with."""
    return len(_bare(text).removesuffix("%").partition(".")[2])


def _bare(text: str) -> str:
    return text.replace("\\$", "").replace("$", "").replace("\\%", "%").replace("−", "-").strip()


def _letters(text: str) -> str:
    """What tells words apart."""
    return "".join(re.findall(r"[^\W_]+", re.sub(r"\\(?:text|mathrm|boxed)\b", "", text.casefold())))


def _readings(text: str) -> set[Fraction]:
    value = number_of(text)
    return set() if value is None else {value, value / 100} if "%" in text else {value}


def _neighbours(kind: Kind, answer: str) -> Iterator[str]:
    value = number_of(answer)
    if kind in ("number", "percent") and value is not None:
        places, end = num_places(answer), "%" if kind == "percent" else ""
        yield from (f"{decimal(value + step, places)}{end}" for step in (1, -1, 10))
    elif kind == "fraction" and value is not None:
        top, bottom = value.numerator, value.denominator
        pairs = ((top + 1, bottom), (top, bottom + 1), (top + bottom, bottom), (top + 7, bottom + 4))
        yield from (
            rf"\frac{{{a}}}{{{b}}}" if "\\" in answer else f"{a}/{b}" for a, b in pairs if Fraction(a, b) != value
        )
    elif kind == "choice":
        letter = _CHOICE.fullmatch(_bare(answer))
        right = letter[1] if letter else answer
        yield from (answer.replace(right, other) for other in "ABCDE" if other != right)
    elif kind in ("tuple", "set", "interval"):
        yield from _other_lists(answer)
    elif kind == "text":
        yield from _other_words(answer)
    elif kind == "program":
        yield from (
            f"def {function_of(answer)}(*given, **named):\n    {body}" for body in ("pass", "return 7", "raise")
        )
    elif kind == "expression":
        yield from (f"{answer}+1", f"{answer}+2", f"{answer}-1")


def _other_words(answer: str) -> Iterator[str]:
    opposite = _OPPOSITES.get(answer.casefold())
    if opposite is not None:
        yield opposite
    if numbers := re.findall(r"\d+", answer):
        yield from (answer.replace(numbers[0], str(int(numbers[0][:_MAX_CHARACTERS]) + step), 1) for step in (1, 2, 10))
    yield from (word for word in _OTHER_WORDS if word.casefold() != answer.casefold())


def _other_lists(answer: str) -> Iterator[str]:
    """One item, the other, or both changed."""
    answer = answer.replace("\\left", "").replace("\\right", "")
    opening = re.match(r"\\?[\[({]?", answer)
    closing = re.search(r"\\?[\])}]?$", answer)
    start, end = (opening.end() if opening else 0), (closing.start() if closing else len(answer))
    items = [item.strip() for item in answer[start:end].split(",")]
    first, last = [_changed(items[0]), *items[1:]], [*items[:-1], _changed(items[-1])]
    both = [_changed(items[0]), *items[1:-1], _changed(items[-1])] if len(items) > 1 else [_changed(_changed(items[0]))]
    yield from (f"{answer[:start]}{', '.join(changed)}{answer[end:]}" for changed in (last, first, both))


def _changed(item: str) -> str:
    value = number_of(item)
    if value is not None and _FRACTION.fullmatch(item) is None:
        return decimal(value + 1, num_places(item))
    return "7" if "infty" in item else f"{item}+1"
