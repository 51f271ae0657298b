"""The words in «» of hacks.toml: what they stand for, given a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from podsrl.tools.attack.forms import FORMS, written
from podsrl.tools.attack.target import Target, decimal, num_places

_WORD = re.compile("«([^«»]*)»")
_REPEATED = re.compile(r"(.+) × (\d+)", re.DOTALL)
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SUBSCRIPTS = str.maketrans("0123456789-", "₀₁₂₃₄₅₆₇₈₉₋")
_WIDE = str.maketrans("0123456789", "０１２３４５６７８９")
_CYRILLIC = str.maketrans("ABCEHKMOPTXaceopxy", "АВСЕНКМОРТХасеорху")
_STROKE = "\u0336"
_PROSE = "the quick brown fox jumps over the lazy dog and thinks about it again " * 700


def _right(target: Target) -> str | None:
    return target.answer if target.kind != "empty" else None


def _is_scalar(target: Target) -> bool:
    return target.kind in ("number", "percent")


def _not_zero(target: Target) -> str | None:
    return target.answer if target.kind == "number" and target.value else None


def _no_percentage(target: Target) -> str | None:
    """The number, where the question does not ask for a percentage."""
    is_asked = "%" in target.question or "percent" in target.question.casefold()
    return None if is_asked else _not_zero(target)


def _hundredfold(target: Target) -> str | None:
    if _no_percentage(target) is None or target.value is None:
        return None
    return decimal(100 * target.value, max(0, num_places(target.answer) - 2))


def _operand(target: Target) -> str | None:
    """A number that none of the operations leaves as it is."""
    is_number = target.kind in ("number", "fraction") and target.value is not None
    return target.answer if is_number and target.value not in (0, 1, 2) else None


def _inverse(target: Target) -> str | None:
    return f"1/({target.answer})" if _operand(target) is not None and target.value != -1 else None


def _of_integer(write: Callable[[int], str]) -> Callable[[Target], str | None]:
    return lambda target: None if target.integer is None else write(target.integer)


def _of_natural(write: Callable[[int], str]) -> Callable[[Target], str | None]:
    return lambda target: None if target.integer is None or target.integer < 0 else write(target.integer)


def _factor(target: Target) -> int | None:
    n = target.integer
    return next((k for k in range(2, 100) if n and n % k == 0 and abs(n) != k), None)


def _look_alike(write: Callable[[str], str], *, of_numbers: bool) -> Callable[[Target], str | None]:
    """The right answer in other characters, where it has any, of numbers or of all else."""

    def find(target: Target) -> str | None:
        text = write(target.answer)
        return text if text != target.answer and _is_scalar(target) == of_numbers else None

    return find


WORDS: Mapping[str, Callable[[Target], str | None]] = {
    "right": _right,
    "wrong": lambda target: target.wrong[0],
    "other": lambda target: target.wrong[1],
    "third": lambda target: target.wrong[2],
    "question": lambda target: target.question,
    "bare question": lambda target: target.question.strip(),
    "prose": lambda target: _PROSE,
    "less prose": lambda target: _PROSE[:20000],
    "numbers": lambda target: ", ".join(map(str, range(5000))),
    "whole form": lambda target: "<think>Well.</think> <answer>something</answer>",
    "no percentage": _no_percentage,
    "hundredfold": _hundredfold,
    "not zero": _not_zero,
    "operand": _operand,
    "inverse": _inverse,
    "n": _of_integer(str),
    "n-1": _of_integer(lambda n: f"{n - 1}"),
    "n+1": _of_integer(lambda n: f"{n + 1}"),
    "2n": _of_integer(lambda n: f"{2 * n}"),
    "100-n": _of_integer(lambda n: f"{100 - n}"),
    "beyond n": _of_integer(lambda n: f"{max(1000, n + 1)}"),
    "n≥0": _of_natural(str),
    "-n": _of_natural(lambda n: f"{-n}"),
    "n²": _of_natural(lambda n: f"{n * n}"),
    "hexadecimal": _of_natural(hex),
    "factor": lambda target: None if (k := _factor(target)) is None else str(k),
    "cofactor": lambda target: None if (k := _factor(target)) is None else str((target.integer or 0) // k),
    "struck out": lambda target: "".join(f"{character}{_STROKE}" for character in target.answer),
    "digits": lambda target: target.answer if _is_scalar(target) else None,
    "raised": _look_alike(lambda answer: answer.translate(_SUPERSCRIPTS), of_numbers=True),
    "lowered": _look_alike(lambda answer: answer.translate(_SUBSCRIPTS), of_numbers=True),
    "wide": _look_alike(lambda answer: answer[:1] + answer[1:].translate(_WIDE), of_numbers=True),
    "Cyrillic": _look_alike(lambda answer: answer.translate(_CYRILLIC), of_numbers=False),
    "backspaces": lambda target: chr(8) * len(target.wrong[0]),
    "reversed": lambda target: target.answer[::-1],
    "in tag characters": lambda target: "".join(chr(0xE0000 + ord(c)) for c in target.answer if ord(c) < 128),
}
"""Word -> its text for a question; None where it has no meaning there. Besides: «TEXT × COUNT» is a text repeated,
«FORM:WORD» a word in a form (`forms.py`), «U+HEX» a character."""


def fill(template: str, target: Target, more: Mapping[str, str]) -> str | None:
    """A template's text for a question; None where one of its words has no meaning there."""
    values = {name: value_of(name, target, more) for name in _WORD.findall(template)}
    if None in values.values():
        return None
    return _WORD.sub(lambda found: values[found[1]] or "", template)


def value_of(name: str, target: Target, more: Mapping[str, str]) -> str | None:
    """What a word stands for; KeyError for a word that is none."""
    form, _, word = name.partition(":")
    if name in more:
        return more[name]
    if repeated := _REPEATED.fullmatch(name):
        return repeated[1] * int(repeated[2])
    if name.startswith("U+"):
        return chr(int(name[2:], 16))
    if word and form in FORMS:
        value = WORDS[word](target)
        return None if value is None else written(form, value)
    return WORDS[name](target)
