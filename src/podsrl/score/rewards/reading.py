"""Reads a piece of text as one number: `196 has 9 positive divisors` is 9.

What may not stand beside the number decides: another number that competes with it, an alternative, a negation or a
doubt, a word that bounds it or makes another one of it, a step that goes on. All other words may. Words of the question
never count against it, unless they compare or multiply. The lists are English.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from podsrl.score.rewards.canonical import NUMBERS, Number, has_invisible, plain, read_number

MAX_WORDS = 25  # between two numbers, or between a number and an end
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\\!)\s+(?=[A-Z0-9\\$*(#])")
_ITEM = re.compile(r"^\s*[0-9]{1,2}[.)]\s+(?=\S)")
EQUALS = re.compile(r"(?<![<>!=\\:])=(?![=>])")
_TERM = r"[A-Za-z](?:_\w|\^2)?"
NAME = re.compile(
    rf"{_TERM}(?:\s?[-+]\s?{_TERM})+|[A-Z]{{2}}\^2|\\frac\{{[A-Za-z]{{1,2}}\}}\{{[A-Za-z]{{1,2}}\}}|(?:m\s?)?\\angle\s?[A-Z]{{1,3}}"
    r"|\\overline\{[A-Z]{2}\}|(?:\\angle\s?)?\|?[A-Za-z]{1,3}(?:_\w|_\{\w+\})?\|?(?:\([^()=]{0,20}\))?|\\[a-z]+|[^0-9=\\^+*/<>]*"
)
"""What may stand left of an equals sign without being computed: `x`, `f(9)`, `a + b`, `Total`."""
DENIALS = (
    r"(?:\b(?:not?|n?either|never|nor|none|cannot|maybe|perhaps|might|guess\w*|doubt\w*|wrong|incorrect|false|unless|except|exclud\w*|too\s+(?:much|many)"
    r"|(?:hard|scarce|bare|near|rough|approximate|probab|possib|presumab|like|unlike|seeming|apparent|virtual|practical|supposed|alleged|arguab|conceivab"
    r"|potential|slight|wrong|mistaken|inverse|doub|trip)ly)\b|n't\b)"
)
HEDGES = r"\b(?:at\s+(?:least|most|best)|(?:could|may|can)\s+be)\b"
_DOUBT = re.compile(
    rf"{DENIALS}|{HEDGES}|\?|…|\.\.\.|[~≡]|==|:=|\\(?:ne|neq|not|lnot|neg|approx|sim|simeq)(?![A-Za-z])", re.IGNORECASE
)
SEVERAL = re.compile(r"\b(?:or|else)\b|[<>]|\\(?:[lg]eq?|[lg]t|pm|mp|lor|vee|cup)(?![A-Za-z])", re.IGNORECASE)
_COMPARES = """than half twice thrice double triple quadruple times about around almost over under above below beneath
beyond within between minus plus negative without besides near if and but not less fewer up some any ten tens hundred
thousand million billion trillion square squared cube cubed root least most"""
_BOUNDS = """estimated bounded bound limit max maximum min minimum upper lower successor predecessor opposite inverse
reciprocal sin cos tan cot sec csc log ln exp sqrt abs gcd lcm floor ceil ceiling round excess shy short north south
third quarter differs unlike versus"""
_CHANGES = frozenset(_COMPARES.split() + _BOUNDS.split())
"""Words in front of a number that make another one of it, or bound it."""
_FILLER = re.compile(r"the|an?|of|by|to|from|as|total|sum|number|value|amount|only|exactly|just")
_CHANGED = re.compile(
    r"[\s(,*]*(and|plus|minus|less|below|over|mod|squared|cubed|raised|divided|multiplied|doubled|tripled|halved|upwards?|tops|point|tens|gross|scores?"
    r"|(?:hundred|thousand|million|billion|trillion|dozen|pair|couple|third|quarter)s?|hal(?:f|ves)|\w+[dt]ths"
    r"|times\s+(?:the|as|more|that)|(?:is|are|was)\s+(?:\w+\s+){0,2}?(?:less|more|half|twice|than|bound|too))\b",
    re.IGNORECASE,
)
"""The same right behind a number."""
_ENDING = re.compile(r"(?<=\w{3})(?:ings?|ers?|ied|ies?|ed|es|(?<!s)s|(?<![aeiou])y|e)$")
_VERB = re.compile(
    r"(?i:\b(?:is|are|was|were|be|becomes?|equals?|equal\s+to|ha(?:s|ve|d|ving)|ma(?:kes?|de|king)|g[ie]ts?|got|gives?|gave|costs?|pa(?:ys?|id)|needs?"
    r"|takes?|took|leaves?|leaving|sp(?:ends?|ent)|earn(?:s|ed)?|contains?|remains?|yields?|(?:comes?|amounts?|adds?\s+up|sums?)\s+to)\b)"
)
STATES = re.compile(rf"{_VERB.pattern}|\btotals?(?:\s+of)?\b|(?<=[A-Za-z]):", re.IGNORECASE)
_LISTING = re.compile(r"\b(?:and|also|or|then)\b|:", re.IGNORECASE)
_GOES_ON = re.compile(r"\b(?:and|plus|minus|times|than|less)\b", re.IGNORECASE)
_PREPOSITION = re.compile(r"\b(?:of|from|for|in|on|with|at|after|per|over|during)\b[a-z ]{0,12}$", re.IGNORECASE)
_CLAUSE = re.compile(r"(?:[A-Za-z'’]+[\s,]+){2,}(?=[-0-9.(\\][^=]*[-+*/\\])")
_LETTERS = re.compile(r"[^\W\d_]+")
_UNITS = frozenset("mgshlLWVNJCFaAI")
_WORD = re.compile(r"/?\s?([^\W\d_]+)(?:[-'/.][^\W\d_]+)*+(?:\^-?[1-3])?(?:!(?=\s|$))?")
_BETWEEN_WORDS = re.compile(r"[\s.,:;'()\[\]{}*—]*")
_UNIT = re.compile(r"(?<=[\w)}\]\s])\s*(?<![\\A-Za-z])(?:/\s?)?[A-Za-z]{2,}(?:[\s/.'-]+[A-Za-z]{2,})*(?:\^[23])?$")
_UNIT_OF_A_FACTOR = re.compile(r"(?:/|\bper)\s*[A-Za-z]{2,}|(?<![\\A-Za-z])[A-Za-z]{2,}")
_WORKING = re.compile(r"(?<=\S) ?\(\s?([^()]*[0-9][^()]*)\)")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SHIFTED = re.compile(
    r"(?<![\w.^])(?:(-?[1-9](?:\.[0-9]{1,30})?)(?:\s*(?:\\times|\\cdot|\*)\s*10\^\{?(-?[0-9]{1,2})\}?|e([-+]?[0-9]{1,2}))(?![0-9])"
    rf"|(?<!,)([0-9][0-9,]*(?:\.[0-9]+)?)\s+({'|'.join(_SCALES)})(?![A-Za-z]))",
    re.IGNORECASE,
)
_REPEATING = re.compile(r"(?<![\w.])([0-9]*)\.([0-9]{0,20})\\(?:overline|bar)\{?([0-9]{1,20})\}?")
_SPOKEN = re.compile(
    r"((?:[-+*/]|\\times|\\cdot) ?[0-9][0-9.,]*)\s+(?:is(?: equal to)?|equals|gives|makes)\s+(?=[-0-9.\\])"
)
_PARTS = {
    "hour": (60, "minute"),
    "minute": (60, "second"),
    "day": (24, "hour"),
    "week": (7, "day"),
    "year": (12, "month"),
}
_PARTED = re.compile(rf"([0-9]+) ({'|'.join(_PARTS)})s?,? (?:and )?([0-9]+) (minute|second|hour|day|month)s?\b")
_HALVES = {"half": "1/2", "third": "1/3", "quarter": "1/4"}


@dataclass(frozen=True, slots=True)
class Value:
    """The one number that a piece of text states."""

    number: Number
    claims: tuple[tuple[str, Number | None], ...] = ()
    """Calculations that are not checked yet, `9 * 2` in `9 * 2 = 18`, and what they should be; None: the number."""


def read_value(piece: str, question: str = "", before: str = "") -> Value | None:
    r"""Read a piece of text that states one number; None where another number, a negation or a doubt competes with it.

    Of several numbers the newest counts: one that neither the question nor an equation has given, here or in the text
    before; of those as new as each other the last, if a verb leads to it.

    Example:
        >>> read_value("196 has 9 positive divisors").number.value, read_value("9 * 2"), read_value("17 or 18")
        (Fraction(9, 1), None, None)
    """
    if has_invisible(piece):
        return None
    results = " ; ".join(re.findall(r"=\s*[$\\]{0,2}([0-9][0-9.,]*)", before)[-100:])
    ages = {**dict.fromkeys(_numbers(results), 1), **dict.fromkeys(_given(question), 2)}
    return _read_last([plain(one) for one in statements(piece)], ages, question) or _read(plain(piece), ages, question)


def _read_last(found: list[str], ages: dict[Fraction, int], question: str) -> Value | None:
    """The last of several, where the question or a true equation accounts for every other number."""
    value = _read(found[-1], ages, question) if len(found) > 1 else None
    if value is None:
        return None
    known, claims, used = {*ages, value.number.value}, value.claims, _numbers(found[-1])
    for text in reversed(found[:-1]):
        step, numbers = (_read(text, ages, question) if "=" in text else None), _numbers(text)
        is_list = num_words(text) < 3 and numbers != {value.number.value}
        if step is not None and step.claims and step.number.value in used:
            claims += tuple((claim, number or step.number) for claim, number in step.claims)
            known.add(step.number.value)
        elif "=" in text or is_list or doubt(text) or SEVERAL.search(text) or not numbers <= known:
            return None
        used |= numbers
    return Value(value.number, claims)


def _read(text: str, ages: dict[Fraction, int], question: str) -> Value | None:
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    text = _PARTED.sub(functools.partial(_in_one_unit, question=question), text)
    *left, right = (part.strip() for part in EQUALS.split(text))
    working = [found for found in _WORKING.finditer(right) if not _UNIT_OF_A_FACTOR.search(_calculation(found[1]))]
    for found in working:
        right = right.replace(found[0], "", 1)
    own = own_words(question)
    is_list = SEVERAL.search(text) is not None or " , " in text
    is_clear = not is_list and not doubt(text, own) and num_words(" ".join(left)) <= MAX_WORDS
    number = _stated_number(right, ages, own) if is_clear else None
    has_name = bool(left) and NAME.fullmatch(left[0]) is not None
    claims = [_calculation(part.rpartition("because ")[2]) for part in left] + [_calculation(one[1]) for one in working]
    claims = [one for one in claims if not (NAME.fullmatch(one) or (has_name and not re.search("[0-9]", one)))]
    return None if number is None else Value(number, tuple((claim, None) for claim in claims))


def _stated_number(text: str, ages: dict[Fraction, int], own: frozenset[str]) -> Number | None:
    found = list(NUMBERS.finditer(text))
    numbers = [read_number(one[0].strip()) for one in found]
    edges = zip((0, *(one.end() for one in found)), (*(one.start() for one in found), len(text)), strict=True)
    gaps = [text[start:end] for start, end in edges]
    place = _newest(numbers, gaps, ages)
    if place is None or max(map(num_words, gaps)) > MAX_WORDS:
        return None
    before, after, written = gaps[place], gaps[place + 1 :], found[place][0]
    statement = last_statement(before)
    is_joined = before[-1:].isalpha() or (written.startswith(("- ", "+ ")) and statement.strip(" ("))  # "Answer - 18"
    is_changed = changes(before, own) or changed(after[0], own)
    is_plain = _is_plain(statement, frozenset("aAI")) and all(_is_plain(gap, _UNITS) for gap in after)
    return numbers[place] if is_plain and not is_changed and not is_joined else None


def _newest(numbers: list[Number | None], gaps: list[str], ages: dict[Fraction, int]) -> int | None:
    """The place of the number that a text states; None where others compete with it."""
    old = [0 if number is None else ages.get(number.value, 0) for number in numbers]
    newest = [place for place, age in enumerate(old) if age == min(old)]
    last = len(numbers) - 1
    if last > 0 and newest[-1] == last and STATES.search(gaps[last]) and not _LISTING.search(gaps[last]):
        return last
    if not newest or (len(newest) > 1 and min(old) == 0):
        return None
    place = newest[0]
    is_led = place == 0 or _is_led(gaps[place - 1], gaps[place])
    return place if is_led and all(map(_is_aside, gaps[place + 1 : -1])) else None


def _is_led(before: str, gap: str) -> bool:
    has_clause = num_words(gap) > 1 or (num_words(gap) == 1 and _PREPOSITION.search(before) is not None)
    return _VERB.search(gap) is not None or (has_clause and not _LISTING.search(gap))


def _is_aside(gap: str) -> bool:
    return (num_words(gap) > 1 or _PREPOSITION.search(gap) is not None) and not _GOES_ON.search(gap)


def _is_plain(text: str, letters: frozenset[str]) -> bool:
    alone = {word for word in _WORD.findall(text) if len(word) == 1}
    return alone <= letters and _BETWEEN_WORDS.fullmatch(_WORD.sub("", text)) is not None


def changes(before: str, own: frozenset[str]) -> bool:
    """Whether the words in front of a number bound it or make another one of it."""
    words = [word for word in _LETTERS.findall(_VERB.split(before)[-1].lower()) if not _FILLER.fullmatch(word)]
    return bool(words) and words[-1] in _CHANGES and _stem(words[-1]) not in own


def changed(after: str, own: frozenset[str]) -> bool:
    """Whether the words right behind a number make another one of it, or go on."""
    found = _CHANGED.match(after)
    return found is not None and _stem(found[1]) not in own


def doubt(text: str, own: frozenset[str] = frozenset()) -> bool:
    """Whether a plain text negates or doubts its statement, with other words than the question's own."""
    return any(_stem(found[0]) not in own for found in _DOUBT.finditer(text))


def statements(text: str) -> list[str]:
    """Give the sentences of all lines, without the signs of a list before them."""
    text = re.sub(r"(=[^=,\n]{1,60}),\s(?:and|so|then)\s", r"\1\n", text)
    return [sentence for line in text.split("\n") for sentence in sentences(line)]


def sentences(line: str) -> list[str]:
    """Give those of a line that hold a letter or digit."""
    found = _SENTENCE.split(_ITEM.sub("", line).rpartition("####")[2])
    return [sentence.strip() for sentence in found if any(map(str.isalnum, sentence))]


def last_statement(text: str) -> str:
    """Give what follows the last verb that states a value, or colon: all of the text where there is neither."""
    return text[max((found.end() for found in STATES.finditer(text)), default=0) :].strip()


def num_words(text: str) -> int:
    """Count its words."""
    return len(_LETTERS.findall(text))


def without_units(text: str) -> str:
    """Leave out the words behind an expression."""
    return _UNIT.sub("", text).strip()


def _calculation(text: str) -> str:
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", _CLAUSE.split(last_statement(text))[-1])
    is_sum = re.search(r"[0-9]\s*[A-Za-z ]*(?:[-+*/]|\\times|\\cdot)", text) and not re.search(
        r"\\(?!times|cdot|frac)", text
    )
    return without_units(_UNIT_OF_A_FACTOR.sub("", text) if is_sum else text)


def _stem(word: str) -> str:
    return _ENDING.sub("", word.lower())


_NEVER_OWN = frozenset(map(_stem, _COMPARES.split()))


@functools.lru_cache(maxsize=1024)
def own_words(question: str) -> frozenset[str]:
    """Stems of the words of a question that do not count against a number in an answer to it."""
    return frozenset(_stem(word) for word in _LETTERS.findall(question) if len(word) > 2) - _NEVER_OWN


@functools.lru_cache(maxsize=1024)
def _given(question: str) -> frozenset[Fraction]:
    return frozenset(_numbers(plain(question)))


def _numbers(text: str) -> set[Fraction]:
    found = (read_number(match[0].strip()) for match in NUMBERS.finditer(text))
    return {number.value for number in found if number is not None}


def _in_one_unit(match: re.Match[str], question: str) -> str:
    count, unit, rest, part = match.groups()
    asked = re.search(rf"\b(?:how many|in) (?:{unit}|({part}))s\b", question, re.IGNORECASE)
    ratio, smaller = _PARTS[unit]
    if part != smaller or asked is None:
        return match[0]
    total = int(count) * ratio + int(rest)
    return f"{total} {part}s" if asked[1] else f"{Fraction(total, ratio)} {unit}s"


def _shifted(match: re.Match[str]) -> str:
    power = int(match[2] or match[3] or _SCALES[(match[5] or "thousand").lower()])
    return format(Decimal((match[1] or match[4]).replace(",", "")).scaleb(power), "f")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    nines = 10 ** (len(fixed) + len(period)) - 10 ** len(fixed)
    return f"{int(whole) * nines + int(fixed + period) - int(fixed or '0')}/{nines}"


_REWRITES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"^(?:[-•*]|1[.)]) (?=[0-9.,]+ [A-Za-z])|^1[.)] (?=[0-9.,]+$)"), ""),
    (re.compile(r"(?<=[0-9]) and (?:a|one)[ -](half|third|quarter)\b"), lambda match: f" {_HALVES[match[1]]}"),
    (_SHIFTED, _shifted),
    (_REPEATING, _repeating),
    (re.compile(r"(?:^|(?<=\bis ))(?:negative|minus)\s+(?=[0-9])", re.IGNORECASE), "-"),
    (re.compile(r"(?<=[0-9]) minus (?=[0-9])"), " - "),
    (_SPOKEN, r"\1 = "),
    (re.compile(r" o'clock\b"), ""),
    (re.compile(r"\(\s?=\s?"), "("),
]
"""Items of a list, "3 and a half", scientific notation, repeating decimals, signs, `9 * 2 is 18`, the time."""
