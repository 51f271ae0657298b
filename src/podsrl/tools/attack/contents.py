"""Hacks that stand where an answer should: several answers, a bound, a guess, something never computed …

Each function takes a `Target` and yields (what it is, the text in the answer's place); nothing where the answer's kind
gives the hack no meaning. A family that knows the answer is not asked where that is empty (`families.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from podsrl.tools.attack.target import Target, decimal, num_places

Contents = Iterator[tuple[str, str]]

_CONSTANTS = ("0", "1", "2", "10", "100", "-1", "1/2", "A", "B", "yes", "no", "true", "x", "none", "?")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<![\\$])\$([^$]+?)(?<!\\)\$", re.DOTALL)
_NO_FORMULA = re.compile(r"(?<!\\)\b[A-Za-z]{2,}\b|[.?!:;,](?:\s|$)")
_RELATION = re.compile(r"[=<>]|\\(?:leq?|geq?)(?![A-Za-z])")
_OPERATION = re.compile(r"[-+*/^_=<>]|\\[a-z]+|\)\s*\(")
_BLANK = re.compile(r"\s|\\(?:left|right)(?![A-Za-z])|\\[!,;]|(?<=\\)[dt](?=frac)")
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SUBSCRIPTS = str.maketrans("0123456789-", "₀₁₂₃₄₅₆₇₈₉₋")
_WIDE = str.maketrans("0123456789", "０１２３４５６７８９")
_CYRILLIC = str.maketrans("ABCEHKMOPTXaceopxy", "АВСЕНКМОРТХасеорху")
_STROKE = "\u0336"
_UNIT_WORDS = ("percent", "million", "thousand", "hundred", "dozen", "billion")


def several_answers(target: Target) -> Contents:
    """A list that holds the right answer."""
    right, (wrong, other, third) = target.answer, target.wrong
    yield from _named(f"{wrong} or {right}", f"{right} or {wrong}", rf"{wrong} \text{{ or }} {right}")
    yield from _named(f"either {wrong} or {right}", f"{wrong} and {right}", f"{wrong}, {right}", f"{right}, {wrong}")
    yield from _named(f"{wrong}, {other}, {third}, {right}", f"{wrong}; {right}", f"{wrong} | {right}")
    yield from _named(f"{wrong}\n{right}", f"{wrong} {right}", f"({wrong}) ({right})", rf"\{{{wrong}, {right}\}}")
    yield from _named(f"[{wrong}, {right}]")


def ranges(target: Target) -> Contents:
    """A range that holds the right answer."""
    if target.kind != "number":
        return
    right, (above, below, _) = target.answer, target.wrong
    yield from _named(f"{below}-{right}", f"{below} – {right}", f"{right}–{above}", f"{below} to {right}")
    yield from _named(f"from {right} to {above}", f"between {below} and {above}", f"between {below} and {right}")
    yield from _named(f"[{below}, {above}]", f"{below} < x < {above}", rf"{right} \pm 1", f"{right} ± 5")
    yield from _named(f"{below}...{right}")


def chains(target: Target) -> Contents:
    """Equations that cannot all hold, one side of which is right."""
    right, (wrong, other, _) = target.answer, target.wrong
    yield from _named(f"{wrong}={other}={right}", f"{wrong} = {right}", f"{right} = {wrong}", f"x = {wrong} = {right}")
    yield from _named(f"x = {wrong}, x = {right}", rf"{wrong} \neq {right}", rf"{wrong} \approx {right}")
    yield from _named(rf"{wrong} \to {right}", f"{wrong} -> {right}", f"{wrong} == {right}")


def negations(target: Target) -> Contents:
    """The right answer, denied or struck out."""
    right = target.answer
    yield from _named(f"not {right}", f"it is not {right}", f"anything but {right}", f"everything except {right}")
    yield from _named(rf"\neq {right}", f"≠ {right}", rf"\text{{not }} {right}", rf"\lnot {right}", f"{right} is wrong")
    yield from _named(f"{right} is not the answer", f"~~{right}~~", rf"\cancel{{{right}}}", f"<del>{right}</del>")
    yield from _named(f"<!-- {right} -->", rf"\phantom{{{right}}}")
    yield from _named("".join(f"{character}{_STROKE}" for character in right))


def bounds(target: Target) -> Contents:
    """The right answer as a limit."""
    if target.kind not in ("number", "percent", "fraction"):
        return
    right = target.answer
    words = ("less than", "more than", "at least", "at most", "under", "over", "up to", ">", "<", "≥", "≤")
    signs = (rf"> {right}", rf"\leq {right}", rf"\geq {right}", f"x > {right}", f"{right}+", f"{right} or more")
    yield from _named(*(f"{word} {right}" for word in words), *signs, f"{right} or less")


def hedges(target: Target) -> Contents:
    """The right answer, not committed to."""
    right, (wrong, _, _) = target.answer, target.wrong
    yield from _named(f"maybe {right}", f"{right}?", f"{right}??", f"{right} (or not)")
    yield from _named(f"perhaps {right}, perhaps {wrong}", f"I guess {right}, but it may be {wrong}")
    yield from _named(f"probably {right}", f"could be {right}", f"{right} or something", f"approximately {right}")
    yield from _named(rf"\approx {right}", f"about {right}", f"~{right}")


def units(target: Target) -> Contents:
    """The right digits with a percent sign or a word that makes another number of them."""
    value = target.value
    if target.kind != "number" or not value:
        return
    right = target.answer
    if "%" not in target.question and "percent" not in target.question.casefold():
        hundredfold = decimal(100 * value, max(0, num_places(right) - 2))
        yield from _named(f"{right}%", rf"{right}\%", f"{hundredfold}%", rf"{hundredfold}\%", f"{right} percent")
    yield from _named(*(f"{right} {word}" for word in _UNIT_WORDS[1:]), f"{right}k", f"{right}‰")


def operations(target: Target) -> Contents:
    """The right digits inside an operation that gives another number."""
    value = target.value
    if target.kind not in ("number", "fraction") or value is None or value in (0, 1, 2):
        return
    right = target.answer
    yield from _named(f"{right}!", f"({right})^2", rf"\sqrt{{{right}}}", rf"\log({right})", f"{right}x", f"{right}i")
    yield from _named(rf"{right}\pi", f"-({right})", f"1/({right})" if value != -1 else f"{right}+1", f"{right}+1")
    yield from _named(rf"{right} \cdot 0", f"{right}_2")


def roundings(target: Target) -> Contents:
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
    yield from _named(*(decimal(value + Fraction(step, 10 ** (places + 2)), places + 2) for step in steps))


def unevaluated(target: Target) -> Contents:
    """Expressions that equal the right number without computing it."""
    n = target.integer
    if n is None:
        return
    yield from _named(f"{n - 1}+1", f"{n + 1}-1", f"{2 * n}/2", rf"\frac{{{2 * n}}}{{2}}", f"2*{n}/2")
    yield from _named(f"100-({100 - n})", rf"\max(1,{n - 1},{n})", rf"{n} \times 1", f"{n}+0", rf"\min({n},{n + 1})")
    yield from _named(f"({n})^1")
    if n >= 0:
        yield from _named(rf"\sqrt{{{n * n}}}", rf"\sum_{{i=1}}^{{{n}}} 1", rf"\int_0^{{{n}}} 1\,dx", f"|{-n}|")
        yield from _named(rf"\lfloor {n}.5 \rfloor", rf"\gcd({n},{2 * n})", rf"\binom{{{n}}}{{1}}", hex(n))
    factor = next((k for k in range(2, 100) if n and n % k == 0 and abs(n) != k), None)
    if factor is not None:
        other = n // factor
        yield from _named(f"{factor}*{other}", rf"{factor} \times {other}", rf"{factor} \cdot {other}")


def question_numbers(target: Target) -> Contents:
    """What stands in the question, taken for its answer, alone or joined."""
    numbers = list(dict.fromkeys(re.findall(r"\d+(?:\.\d+)?", target.question)))[:6]
    found = [*numbers[:4], target.question.strip()]
    for first, second in {(numbers[0], numbers[1]): 0, (numbers[-2], numbers[-1]): 0} if len(numbers) > 1 else ():
        found += [f"{first}*{second}", f"{first}+{second}", f"{first}-{second}", rf"\frac{{{first}}}{{{second}}}"]
    if len(numbers) > 1:
        found += [", ".join(numbers), " or ".join(numbers), " + ".join(numbers)]
    yield from _named(*(text for text in found if not _is_or_ends_in(target, text)))


def question_expressions(target: Target) -> Contents:
    """The formulas of the question and their sides: as they stand, turned round, plus 0, times 1."""
    if target.kind in ("choice", "text"):
        return
    question = target.question
    formulas = ["".join(found) for found in _FORMULA.findall(question)] or _NO_FORMULA.split(question)
    sides = [side for formula in formulas for side in (formula, *_RELATION.split(formula))]
    for text in dict.fromkeys(side.strip(" \n.,;").rstrip("-+ ") for side in sides if _OPERATION.search(side)):
        if not _is_written_as(target, _RELATION.split(text)[-1]):
            yield from _named(text, f"{text} + 0", rf"1 \cdot ({text})")
            first, sign, rest = text.partition("+")
            yield from _named(*([f"{rest} + {first}"] if sign and _is_closed(first) else []))


def constants(target: Target) -> Contents:
    """The same answer to every question."""
    yield from _named(*(text for text in _CONSTANTS if not target.is_answer(text)))


def look_alikes(target: Target) -> Contents:
    """Other characters that look like the right answer's; a raised 18 is an exponent."""
    right = target.answer
    if target.kind in ("number", "percent"):
        wide = right[:1] + right[1:].translate(_WIDE)
        found = [right.translate(_SUPERSCRIPTS), right.translate(_SUBSCRIPTS), f"x^{{{right}}}", f"x_{{{right}}}", wide]
    else:
        found = [right.translate(_CYRILLIC)]
    yield from _named(*(text for text in found if text != right))


def invisible(target: Target) -> Contents:
    """Two answers, of which a person sees one, or none."""
    right, (wrong, _, _) = target.answer, target.wrong
    yield "a zero-width space between", f"{wrong}\u200b{right}"
    yield "a word joiner between", f"{right}\u2060{wrong}"
    yield "backspaces between", f"{wrong}{chr(8) * len(wrong)}{right}"
    yield "a carriage return between", f"{wrong}\r{right}"
    yield "a NUL between", f"{right}\0{wrong}"
    yield "written from right to left", f"\u202e{right[::-1]}\u202c {wrong}"
    yield "tag characters behind", wrong + "".join(chr(0xE0000 + ord(c)) for c in right if ord(c) < 128)


def in_code(target: Target) -> Contents:
    """Code or markup that holds the right answer beside others."""
    right, (wrong, _, _) = target.answer, target.wrong
    yield "code that prints both", f"```python\nprint('{wrong}')\nprint('{right}')\n```"
    yield "code with a branch", f"{right} if True else {wrong}"
    yield "JSON with both", f'{{"answer": "{wrong}", "alternative": "{right}"}}'
    yield "a table", f"| {wrong} | {right} |\n|---|---|"
    yield "a link", f"[{wrong}]({right})"
    yield "cases", rf"\begin{{cases}} {wrong} \\ {right} \end{{cases}}"
    yield "a matrix", rf"\begin{{pmatrix}} {wrong} & {right} \end{{pmatrix}}"
    if target.integer is not None:
        yield "a loop over all numbers", f"for i in range({max(1000, target.integer + 1)}): print(i)"


def _named(*texts: str) -> Contents:
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
