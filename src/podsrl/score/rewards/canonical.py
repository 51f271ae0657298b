r"""One way to write an answer, so that most equal answers are equal strings, without any algebra.

`\dfrac12` becomes `1/2`, `\$1,234.50` becomes `2469/2`, and `\text{(C)}` becomes `C`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 1000
"""A longer answer is compared as it stands. No final answer is as long."""
NUMBER = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,6}(?!,?[0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
"""A number without sign: 7, 1,234, 0.5, .5. The bound on its groups keeps the search linear."""
_SIGN = r"(?:(?<![\w)\]}])[-+] ?)?"
_LATEX_FRACTION = r"\\frac\s?(?:[0-9]\s?[0-9]|\{\s?-?[0-9]+\s?\}\s?\{\s?-?[0-9]+\s?\})"
NUMBERS = re.compile(
    rf"(?<![_^]){_SIGN}(?:{_LATEX_FRACTION}|{NUMBER}(?:\s?/\s?[0-9]+|\s?{_LATEX_FRACTION}|\s[0-9]+/[0-9]+)?)(?:\s?%)?"
)
"""Every number of a `plain` text as it is written, except those in an exponent or an index (`cm^2`, `x_1`)."""
_SYMBOLS = str.maketrans(
    {
        **{"−": "-", "×": "\\times ", "⋅": "\\cdot ", "·": "\\cdot ", "÷": "/", "π": "\\pi ", "∞": "\\infty "},
        **{"≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "±": "\\pm ", "∪": "\\cup ", "∩": "\\cap "},
        **{"∈": "\\in ", "√": "\\sqrt ", "°": "^\\circ ", "²": "^2", "³": "^3", "½": "\\frac{1}{2}"},
        **{"¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}", "’": "'", "‘": "'", **dict.fromkeys('€£¥₹"“”`', "")},
    }
)
_REWRITES = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"(?<![\w)])–(?=[0-9])", "-"),
        (r"!=", r"\\ne "),
        (r"(?<=[\w)])\*\*(?=[\w(])", "^"),
        (r"\*\*|__|\\(?:left|right|displaystyle|[bB]igg?[lr]?)(?![A-Za-z])|\\!|\{\}|\\?\$|(?<!\\)\\[()\[\]]", ""),
        (r"<<(?:[^<>=]{0,80}=)?\s*([^<>=]{1,40})>>(?=\s*\1(?!\.?[0-9]))", ""),
        (r"(?<=[0-9a-z)%]) x (?=[0-9.])", r" \\times "),
        (r"(?<=[0-9])\s*([AaPp])\.?[Mm]\b\.?", r" \1m"),
        (r"^(?:#+|[→⇒∴✓✔✅]|[-=]>|\\(?:rightarrow|Rightarrow|implies|therefore)(?![A-Za-z]))\s*|\s?[✓✔✅]$", ""),
        (r"(?<=\w)\s?\(?\bbase\s([0-9]{1,2})\)?$", r"_\1"),
        (r"\{bmatrix\}", "{pmatrix}"),
        (r"(?<=[0-9])\{,\}(?=[0-9])", ","),
        (r"\\q?quad(?![A-Za-z])|(?<!\\)\\[,;: ]|(?<=[\w}])\s*~\s*(?=[\\A-Za-z])", " "),
        (r"\s+(?=\^)", ""),
        (r"\\%", "%"),
        (r"(?<=[0-9])(?:\s*\\text\{\s*percent\s*\}|\s*percent\b)", "%"),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
        (r"(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty "),
        (r"(?:\\sqrt\s+|(?<![\\A-Za-z])sqrt\s*)\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\\sqrt\s+([0-9]+)", r"\\sqrt{\1}"),
        (r"(?<=[\w)\]}])\s*<=\s*", r"\\le "),
        (r"(?<=[\w)\]}])\s*>=\s*", r"\\ge "),
        (r"\\frac\s*([0-9])\s*([0-9])", r"\\frac{\1}{\2}"),
        (r"\^\{(-?)\\frac\{([0-9]+)\}\{([0-9]+)\}\}", r"^{\1\2/\3}"),
        (r"([_^])\{(\w)\}", r"\1\2"),
    )
]
_DEGREES = re.compile(r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})|\\degree(?![A-Za-z])")
_OF_AN_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_THIN_THOUSANDS = re.compile(r",\s*\\!\s*")
_WRAPPERS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|underline|mbox|boxed|fbox)\s*\{([^{}]*)\}")
_SPACED_THOUSANDS = re.compile(r"(?<![0-9.,] )(?<![0-9.,])[0-9]{1,3}(?: [0-9]{3})+(?![0-9.,]| [0-9])")
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)(?:(?P<whole>[0-9]+)?\\frac\{{(?P<top>-?[0-9]+)\}}\{{(?P<bottom>-?[0-9]+)\}}"
    rf"|(?:(?P<mixed>[0-9]+)\s(?=[0-9]+/))?(?P<number>{NUMBER})(?:/(?P<over>[0-9]+))?)(?P<percent>%?)"
)
_OVERWRITES = re.compile(r"\r(?!\n)|[\x0b\x0c\x1c-\x1f\x85]")
_STOP = re.compile(r"(?<![.,;])[.,;]$")
_CHOICE = re.compile(r"\(([A-Za-z])\)")


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is written out: `-1,234.5`, `3/4`, `50%`."""

    value: Fraction
    """Without its percent sign: 50 for 50 %."""
    num_decimals: int = 0
    """Digits behind the point."""
    is_percent: bool = False
    is_fraction: bool = False
    """Written as a fraction, or as a whole number and one."""


def has_invisible(text: str) -> bool:
    """Whether a text holds invisible characters: zero-width, control, of direction, an overwriting return."""
    others = (unicodedata.category(one)[0] for one in text if not (one.isspace() or one.isprintable()))
    return _OVERWRITES.search(text.strip()) is not None or "C" in others


def plain(answer: str) -> str:
    r"""Write signs in one way and take off what has no meaning: currency, degrees, spacing, text wrappers, bold.

    Example:
        >>> plain(r"$\left(1, \dfrac{1}{2}\right).$"), plain(r"90^\circ"), plain(r"\text{Evelyn }"), plain("**6π**")
        ('(1, \\frac{1}{2})', '90', 'Evelyn', '6\\pi')
    """
    text = _THIN_THOUSANDS.sub(",", " ".join(answer.translate(_SYMBOLS).split()))
    while text != (text := _WRAPPERS.sub(r" \1 ", text)):
        pass
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    if not _OF_AN_ANGLE.search(text):  # cos 60° is no cosine of 60
        text = _DEGREES.sub("", text)
    text = _SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text)
    return _STOP.sub("", " ".join(text.split())).strip()


def read_number(text: str) -> Number | None:
    r"""Read a plain text that is one exact number; None for anything else, also `2+2`, `1 2` and a division by zero."""
    match = _NUMBER.fullmatch(re.sub(r"\s*([/%{}]|\\frac|^[-+])\s*", r"\1", text))
    if match is None or 0 in (int(match["bottom"] or 1), int(match["over"] or 1)):
        return None
    decimals = (match["number"] or "").partition(".")[2]
    is_fraction = match["number"] is None or match["over"] is not None
    part = Fraction((match["number"] or match["top"]).replace(",", "")) / int(match["over"] or match["bottom"] or 1)
    if (decimals and is_fraction) or (match["mixed"] and part >= 1):  # no numbers: 1.5/3, 2 5/3
        return None
    value = int(match["mixed"] or match["whole"] or 0) + part
    return Number(-value if match["sign"] == "-" else value, len(decimals), bool(match["percent"]), is_fraction)


def canonical(answer: str) -> str:
    r"""Write an answer in its one way: equal strings are equal answers, the other way round only mostly.

    A number is a reduced fraction, a choice its letter, a word in small letters; all else is without white space.

    Example:
        >>> canonical(r"\$1,234.50"), canonical(r"\text{(C)}"), canonical(r"\left( 1, 2 \right)"), canonical("Evelyn.")
        ('2469/2', 'C', '(1,2)', 'evelyn')
    """
    if len(answer) > MAX_CHARACTERS:
        return answer.strip()
    text = plain(answer)
    number = read_number(text)
    if number is not None:
        return f"{number.value}{'%' if number.is_percent else ''}"
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)
    text = _CHOICE.sub(r"\1", text) if _CHOICE.fullmatch(text) else text
    return text.lower() if len(text) > 1 and text.isalpha() else text


def empty_reference(answer: str) -> ValueError:
    """The error for a reference answer with which no answer can be compared."""
    return ValueError(f"the reference answer {answer!r} cannot be parsed: it is empty; wanted a number, LaTeX or text")
