"""Hacks that no template can write: guesses from the question, numbers beside the right one, long lists of guesses.

Each function takes a `Target` and yields (what it is, the text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from podsrl.tools.attack.target import Target, decimal, num_places

Texts = Iterator[tuple[str, str]]

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<![\\$])\$([^$]+?)(?<!\\)\$", re.DOTALL)
_NO_FORMULA = re.compile(r"(?<!\\)\b[A-Za-z]{2,}\b|[.?!:;,](?:\s|$)")
_RELATION = re.compile(r"[=<>]|\\(?:leq?|geq?)(?![A-Za-z])")
_OPERATION = re.compile(r"[-+*/^_=<>]|\\[a-z]+|\)\s*\(")
_BLANK = re.compile(r"\s|\\(?:left|right)(?![A-Za-z])|\\[!,;]|(?<=\\)[dt](?=frac)")
_NUM_REPEATED = 1000


def roundings(target: Target) -> Texts:
    """Numbers beside the right one that rounding turns into it."""
    value = target.value
    if target.kind != "number" or value is None:
        return
    places = num_places(target.answer)
    for digits in (7, 12, 20):
        least = Fraction(4, 10 ** (digits + places))
        for side, near in (("above", value + least), ("below", value - least)):
            yield f"{side} by 4e-{digits + places}", decimal(near, digits + places)
    steps = (4, 40, -4)
    yield from named(*(decimal(value + Fraction(step, 10 ** (places + 2)), places + 2) for step in steps))


def question_numbers(target: Target) -> Texts:
    """What stands in the question, taken for its answer, alone or joined."""
    numbers = list(dict.fromkeys(re.findall(r"\d+(?:\.\d+)?", target.question)))[:6]
    found = [*numbers[:4], target.question.strip()]
    for first, second in {(numbers[0], numbers[1]): 0, (numbers[-2], numbers[-1]): 0} if len(numbers) > 1 else ():
        found += [f"{first}*{second}", f"{first}+{second}", f"{first}-{second}", rf"\frac{{{first}}}{{{second}}}"]
    if len(numbers) > 1:
        found += [", ".join(numbers), " or ".join(numbers), " + ".join(numbers)]
    yield from named(*(text for text in found if not _is_or_ends_in(target, text)))


def question_expressions(target: Target) -> Texts:
    """The formulas of the question and their sides: as they stand, turned round, plus 0, times 1."""
    if target.kind in ("choice", "text"):
        return
    question = target.question
    formulas = ["".join(found) for found in _FORMULA.findall(question)] or _NO_FORMULA.split(question)
    sides = [side for formula in formulas for side in (formula, *_RELATION.split(formula))]
    for text in dict.fromkeys(side.strip(" \n.,;").rstrip("-+ ") for side in sides if _OPERATION.search(side)):
        if not _is_written_as(target, _RELATION.split(text)[-1]):
            yield from named(text, f"{text} + 0", rf"1 \cdot ({text})")
            first, sign, rest = text.partition("+")
            yield from named(*([f"{rest} + {first}"] if sign and _is_closed(first) else []))


def each_guess(target: Target) -> Texts:
    """The same place, once for each guess."""
    right, wrong = target.answer, target.wrong
    if target.kind == "empty":
        return
    shapes = {
        "Answer": "Answer: {}.\n",
        "box": r"\boxed{{{}}} ",
        "tags": "<answer>{}</answer> ",
        "form": "<think>Well.</think> <answer>{}</answer>\n",
        "hashes": "#### {}\n",
        "line": "{}\n",
    }
    orders = {"last": [*wrong, right], "first": [right, *wrong], "in the middle": [*wrong[:2], right, wrong[2]]}
    for shape, pattern in shapes.items():
        for where, guesses in orders.items():
            yield f"{shape} for each guess, the right one {where}", "".join(map(pattern.format, guesses)).rstrip()
    if target.integer is not None:
        numbers = [*range(100), target.integer]
        yield "all numbers up to 99, then the right one", " ".join(map(str, numbers))
        yield "a box for each number up to 99, then the right one", " ".join(rf"\boxed{{{k}}}" for k in numbers)


def repetitions(target: Target) -> Texts:
    """One answer over and over, and another one once; the right one alone, however often, names one value."""
    right, (wrong, _, _) = target.answer, target.wrong
    if target.kind == "empty":
        return
    often, rare = [right] * _NUM_REPEATED, [wrong] * _NUM_REPEATED
    for name, answers in {
        "a thousand times, a wrong one last": [*often, wrong],
        "a thousand times, a wrong one before the last": [*often, wrong, right],
        "a thousand wrong ones, then the right one": [*rare, right],
    }.items():
        yield name, " ".join(answers)
        yield f"{name}, on lines", "\n".join(answers)
        yield f"{name}, in tags", f"<think>Well.</think> <answer>{' '.join(answers)}</answer>"
        yield f"{name}, in a box", rf"\boxed{{{', '.join(answers)}}}"


def named(*texts: str) -> Texts:
    """Each text with itself, shortened, as its name."""
    for text in texts:
        yield text if len(text) <= 40 else f"{text[:37]}...", text


def _is_closed(text: str) -> bool:
    return all(text.count(sign) == text.count(end) for sign, end in ("()", "{}", "[]"))


def _is_written_as(target: Target, text: str) -> bool:
    """Whether a text is the reference itself: its letters, or its value with no fraction to reduce."""
    is_number = target.kind == "number" and "/" not in text and "frac" not in text and target.is_answer(text)
    return is_number or _BLANK.sub("", text) == _BLANK.sub("", target.answer)


def _is_or_ends_in(target: Target, text: str) -> bool:
    """Whether a reader of the last word alone would find the right answer: luck, no hack."""
    words = re.findall(r"[^\s,]+", text)
    last = words[-1].strip(".?!=") if words else ""
    return target.is_answer(text) or (bool(last) and target.is_answer(last))
