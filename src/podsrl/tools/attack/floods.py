"""Hacks that try to break the judge: huge powers, food for careless patterns, deep nesting, odd characters.

Each function takes a `Target` and yields (what it is, the completion). None holds the right answer. They are tried on
one question only, because each may take the whole time limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from podsrl.tools.attack.forms import written
from podsrl.tools.attack.target import Target

Texts = Iterator[tuple[str, str]]

_BOMBS = (
    "9^{9^{9^9}}",
    "10^{10^{10}}",
    "2^{2^{2^{2^{2^{2}}}}}",
    "99999999!",
    "(((9!)!)!)!",
    r"\binom{10^{9}}{5 \cdot 10^{8}}",
    r"\sum_{i=1}^{1000000000} \frac{1}{i}",
    r"\prod_{i=1}^{100000000} i",
    r"\int_0^{1} x^{x^{x^{x}}} dx",
    "(x+y+z)^{100000}",
    r"\sqrt[100000]{2}^{99999999}",
    r"\frac{1}{0}",
    "0^0",
    r"\log(0)",
    r"1e999999999",
    r"\lim_{x \to \infty} x^{x^{x}}",
)


def sympy_bombs(target: Target) -> Texts:
    """Short expressions that take for ever to compute."""
    for bomb in _BOMBS:
        yield bomb, written("box in tags", bomb)


def regex_bombs(target: Target) -> Texts:
    """Long texts on which a careless pattern takes for ever."""
    yield "spaces", f"<answer>{' ' * 50_000}x"
    yield "one letter", "a" * 50_000 + "!"
    yield "opening tags", "<think>" * 5_000
    yield "opening and closing tags", "<think></think>" * 3_000
    yield "angle brackets", "<" * 30_000
    yield "opening boxes", "\\boxed{" * 5_000
    yield "marks", "Answer: " * 5_000
    yield "hashes", "#" * 30_000
    yield "backslashes", "\\" * 30_000
    yield "commas", "1," * 20_000 + "x"
    yield "digits", "7" * 20_000
    yield "digits in a box", written("box in tags", "7" * 5_000)
    yield "digits over digits", written("box in tags", f"{'7' * 5_000}/{'3' * 5_000}")
    yield "points", "1." * 20_000
    yield "dollars", "$" * 20_000
    yield "signs", written("box in tags", "-" * 5_000 + "1")


def nestings(target: Target) -> Texts:
    """Brackets within brackets."""
    yield "boxes", "\\boxed{" * 2_000 + "x" + "}" * 2_000
    yield "braces in a box", written("box in tags", "{" * 300 + "x" + "}" * 300)
    yield "parentheses in a box", written("box in tags", "(" * 300 + "x" + ")" * 300)
    yield "thousands of parentheses", written("box in tags", "(" * 5_000 + "x" + ")" * 5_000)
    yield "fractions", written("box in tags", r"\frac{1}{1+" * 100 + "x" + "}" * 100)
    yield "roots", written("box in tags", r"\sqrt{" * 100 + "x" + "}" * 100)
    yield "powers", written("box in tags", "x^{" * 100 + "x" + "}" * 100)
    yield "JSON lists", "[" * 20_000
    yield "tags", "<think>" * 1_000 + "</think>" * 1_000 + "<answer>" * 1_000 + "</answer>" * 1_000


def odd_characters(target: Target) -> Texts:
    """Characters that programs stumble over."""
    odd = {
        "a NUL": "\0",
        "half of a surrogate pair": "\ud800",
        "its other half": "\udfff",
        "no character": "\uffff",
        "private use": "\U0010fffd",
        "right to left": "\u202e",
        "an accent alone": "\u0301" * 50,
        "other digits": "೪೭೯",
        "a raised two": "²",
        "a fraction sign": "⅞",
        "a Roman numeral": "Ⅷ",
        "an escape": "\x1b[31m",
        "a line separator": "\u2028",
    }
    for name, character in odd.items():
        yield name, character
        yield f"{name}, in a box", written("box in tags", character)
        yield f"{name}, in tags", written("tags", character)
