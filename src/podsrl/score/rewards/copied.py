r"""Tells an answer that was worked out from an expression that was copied from the question.

Algebra cannot: `\frac{28}{63}` equals the 4/9 that the question asks for.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

from podsrl.score.rewards.canonical import NUMBER, plain

_TOKEN = re.compile(rf"{NUMBER}|\\[A-Za-z]+|\S")
_LEFT_OUT = frozenset("+-*()[]{}\\%.") | {r"\frac", r"\cdot", r"\times"}
_RELATIONS = frozenset("=<>") | {r"\le", r"\ge"}
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_ONE_WAY = {
    r"\\([lg])(?:eq|e)(?![A-Za-z])": r" \\\1e ",
    r"\\lt(?![A-Za-z])": "<",
    r"\\gt(?![A-Za-z])": ">",
    r"\\div(?![A-Za-z])": "/",
    r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})": "",
    r"\}\s*\{": "}/{",
    r"\\sqrt\s*\[2\]|\^(?:\{\(?(?:1/2|0?\.5)\)?\}|\((?:1/2|0?\.5)\)|0?\.5)": r" \\sqrt ",
    r"\^\s*[{(]+1/([0-9]+)[)}]+": r" \\sqrt \1 ",
    r"[-+]\s*0(?![\w.])|(?<![\w.^}])(?:0\s*\+|1\s*(?:\\cdot|\\times|\*|(?=[(A-Za-z]|\\(?!frac))))": "",
    r"(?:\\cdot|\\times|\*|/|\^)\s*(?:1(?![\w.])|[{(]\s*1\s*[)}])": "",
}
"""Degrees, fractions, roots as powers, plus 0, times 1 and to the power of 1."""
_RADIANS = re.compile(r"\{?([0-9]*)\s*\\pi\s*\}?\s*/\s*\{?([0-9]+)\}?")
_BRACKETS = re.compile(r"\(([^()]*)\)(?:\^\{?([0-9])\}?)?\s*(?:\\cdot|\\times|\*)?\s*\(([^()]*)\)(?:\^\{?([0-9])\}?)?")
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z])(?!(?:thou|m|b|tr)(?:sand|illion))[A-Za-z]+")


def is_copied(text: str, reference: str, question: str) -> bool:
    r"""Whether the numbers and letters of a text stand side by side in the question, in any order, with any signs.

    Around `<` and the like they stand in the same order. What has those of the reference is no copy.

    Example:
        >>> question = r"Write $\frac{28}{63}$ in lowest terms. Expand $x(x + 1)$."
        >>> is_copied("28/63", "4/9", question), is_copied("(1 + x)x", "x^2 + x", question)
        (True, True)
        >>> is_copied("4/9", "4/9", question), is_copied("x + x^2", "x^2 + x", question)
        (False, False)
    """
    own, asked = _tokens(text), _tokens(_DRAWING.sub(" ", question))
    order = list if _RELATIONS & set(own) else sorted
    wanted = order(own)
    if wanted == order(_tokens(reference)):
        return False
    return bool(own) and any(order(asked[i : i + len(own)]) == wanted for i in range(len(asked) - len(own) + 1))


def without_words(text: str) -> str:
    """Leave out what is beside a number, but not "million" and the like, which make another one of it."""
    return _WORD.sub("", text)


@functools.lru_cache(maxsize=1024)
def _tokens(text: str) -> list[str]:
    text = plain(text)
    for pattern, by in _ONE_WAY.items():
        text = re.sub(pattern, by, text)
    if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])", text):
        text = _RADIANS.sub(_degrees, text)
    while text != (text := _BRACKETS.sub(_power, text)):
        pass
    found = [token for token in _TOKEN.findall(text) if token not in _LEFT_OUT]
    return [str(Fraction(token.replace(",", ""))) if token[-1] in "0123456789" else token for token in found]


def _degrees(angle: re.Match[str]) -> str:
    return str(180 * int(angle[1] or 1) // int(angle[2])) if int(angle[2]) else angle[0]


def _power(product: re.Match[str]) -> str:
    """`(1 + x)(x + 1)` as `(1 + x)^2`."""
    same = sorted(product[1].replace(" ", "")) == sorted(product[3].replace(" ", ""))
    return f"({product[1]})^{int(product[2] or 1) + int(product[4] or 1)}" if same else product[0]
