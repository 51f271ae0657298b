"""Reads a piece of text as one number: `196 has 9 positive divisors` is 9.

What may not stand beside the number decides: another number that competes with it, an alternative, a negation or a
doubt, a bound or another word that makes another number of it, a step that goes on. All other words may; the lists are
English. Words of the question never count against a number, unless they compare or multiply.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from podsrl.score.rewards.canonical import NUMBERS, Number, has_invisible, plain, read_number

MAX_STEPS, MAX_WORDS = 12, 25
"""Statements before the one with the answer; words on each side of a value."""
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
    r"(?:\b(?:not?|n?either|never|nor|none|cannot|maybe|perhaps|might|guess\w*|doubt\w*|wrong|incorrect|false|unless|except"
    r"|exclud\w*|too\s+(?:much|many)|(?:hard|scarce|bare|near|rough|approximate|probab|possib|presumab|like|unlike|seeming"
    r"|apparent|virtual|practical|supposed|alleged|arguab|conceivab|potential|slight|wrong|mistaken|inverse|doub|trip)ly)\b|n't\b)"
)
HEDGES = r"\b(?:at\s+(?:least|most|best)|(?:could|may|can)\s+be)\b"
_DOUBT = re.compile(
    rf"{DENIALS}|{HEDGES}|\?|…|\.\.\.|[~≡]|==|:=|\\(?:ne|neq|not|lnot|neg|approx|sim|simeq)(?![A-Za-z])", re.IGNORECASE
)
_SEVERAL = re.compile(r"\b(?:or|else)\b|\s,\s|[<>]|\\(?:le|leq|ge|geq|lt|gt|pm|mp|lor|vee|cup)(?![A-Za-z])", re.IGNORECASE)
_COMPARES = (
    "than half twice thrice double triple quadruple times about around almost over under above below beneath beyond within"
    " between minus plus negative without besides near if and but not less fewer up some any ten tens hundred thousand million"
    " billion trillion square squared cube cubed root least most"
)
_CHANGES = frozenset(
    f"{_COMPARES} estimated bounded bound limit max maximum min minimum upper lower successor predecessor opposite inverse"
    " reciprocal sin cos tan cot sec csc log ln exp sqrt abs gcd lcm floor ceil ceiling round excess shy short north south third quarter differs unlike versus".split()
)
"""Words in front of a number that make another one of it, or bound it."""
_FILLERS = frozenset("the a an of by to from as total sum number value amount only exactly just".split())
_CHANGED = re.compile(
    r"[\s(,*]*(and|plus|minus|less|below|over|mod|squared|cubed|raised|divided|multiplied|doubled|tripled|halved|upwards?|tops|point"
    r"|tens|gross|scores?|(?:hundred|thousand|million|billion|trillion|dozen|pair|couple|third|quarter)s?|hal(?:f|ves)|\w+[dt]ths"
    r"|times\s+(?:the|as|more|that)|(?:is|are|was)\s+(?:\w+\s+){0,2}?(?:less|more|half|twice|than|bound|too))\b",
    re.IGNORECASE,
)
"""The same right behind a number."""
_ENDING = re.compile(r"(?<=\w{3})(?:ings?|ers?|ied|ies?|ed|es|(?<!s)s|(?<![aeiou])y|e)$")
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|becomes?|equals?|equal\s+to|ha(?:s|ve|d|ving)|ma(?:kes?|de|king)|g[ie]ts?|got|gives?|gave|costs?|pa(?:ys?|id)|needs?"
    r"|takes?|took|leaves?|leaving|sp(?:ends?|ent)|earn(?:s|ed)?|contains?|remains?|yields?|(?:comes?|amounts?|adds?\s+up|sums?)\s+to)\b",
    re.IGNORECASE,
)
_STATES = re.compile(rf"{_VERB.pattern}|\btotals?(?:\s+of)?\b|(?<=[A-Za-z]):", re.IGNORECASE)
_LISTING = re.compile(r"\b(?:and|also|or|then)\b|:|\s,\s", re.IGNORECASE)
_GOES_ON = re.compile(r"\b(?:and|plus|minus|times|than|less|to)\b(?!\s+[a-z])|\b(?:and|plus|minus|times|than|less)\b", re.IGNORECASE)
_LEADS_TO_GIVEN = re.compile(r"\b(?:of|from|for|in|on|with|at|after|per|over|during)(?: (?:the|his|her|their|its|all|these|those|every)){0,2} ?$", re.I)
_CLAUSE = re.compile(r"(?:[A-Za-z'’]+[\s,]+){2,}(?=[-0-9.(\\][^=]*[-+*/\\])")
_LETTERS = re.compile(r"[^\W\d_]+")
_UNITS = frozenset("mgshlLWVNJCFaAI")
_WORD = re.compile(r"/?\s?([^\W\d_]+)(?:[-'/.][^\W\d_]+)*+(?:\^-?[1-3])?(?:!(?=\s|$))?")
_BETWEEN_WORDS = re.compile(r"[\s.,:;'()\[\]{}*—]*")
_TRAILING_UNITS = re.compile(
    r"(?<=[\w)}\]\s])\s*(?<![\\A-Za-z])(?:/\s?)?[A-Za-z]{2,}(?:[\s/.'-]+[A-Za-z]{2,})*(?:\^[23])?$"
)
_UNIT_OF_A_FACTOR = re.compile(r"(?:/|\bper)\s*[A-Za-z]{2,}|(?<![\\A-Za-z])[A-Za-z]{2,}")
_WORKING = re.compile(r"(?<=\S) ?\(\s?=?\s?([^()]*[0-9][^()]*)\)")
_SCIENTIFIC = re.compile(
    r"(?<![\w.^])(-?[1-9](?:\.[0-9]{1,30})?)(?:\s*(?:\\times|\\cdot|\*)\s*10\^\{?(-?[0-9]{1,2})\}?|[eE]([-+]?[0-9]{1,2}))(?![0-9])"
)
_REPEATING = re.compile(r"(?<![\w.])([0-9]*)\.([0-9]{0,20})\\(?:overline|bar)\{?([0-9]{1,20})\}?")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"(?<![\w.,])([0-9][0-9,]*(?:\.[0-9]+)?)\s+({'|'.join(_SCALES)})(?![A-Za-z])", re.IGNORECASE)
_NEGATIVE = re.compile(r"^(?:negative|minus)\s+(?=[0-9])|(?<=\bis )(?:negative|minus)\s+(?=[0-9])", re.IGNORECASE)
_SPOKEN = re.compile(r"((?:[-+*/]|\\times|\\cdot) ?[0-9][0-9.,]*)\s+(?:is(?: equal to)?|equals|gives|makes)\s+(?=[-0-9.\\])")
_PARTS = {
    "hour": (60, "minute"),
    "minute": (60, "second"),
    "day": (24, "hour"),
    "week": (7, "day"),
    "year": (12, "month"),
}
_PARTED = re.compile(rf"([0-9]+) ({'|'.join(_PARTS)})s?,? (?:and )?([0-9]+) (minute|second|hour|day|month)s?\b")
_HALVES = {"half": "1/2", "third": "1/3", "quarter": "1/4"}
_MIN_WORDS = 3
"""Words of a sentence that may name the question's numbers before the one that states the answer."""


@dataclass(frozen=True, slots=True)
class Value:
    """The one number that a piece of text states."""

    number: Number
    claims: tuple[str, ...] = ()
    """Calculations that the text equates with the number, `9 * 2` in `9 * 2 = 18`; they are not checked yet."""
    steps: tuple[Value, ...] = ()
    """Equations before it, whose claims are not checked yet either."""


def read_value(piece: str, question: str = "", before: str = "") -> Value | None:
    r"""Read a piece of text that states one number.

    Of several numbers the newest counts: one that neither the question nor an equation has given; of those as new as
    each other the last, if a verb leads to it. None where another number, a negation or a doubt competes with it.

    Args:
        before: the text in front of the piece, whose equations give numbers.

    Example:
        >>> read_value("196 has 9 positive divisors").number.value, read_value("9 * 2"), read_value("17 or 18")
        (Fraction(9, 1), None, None)
        >>> read_value("He makes $18 from 9 eggs", "He has 9 eggs.").number.value
        Fraction(18, 1)
    """
    if has_invisible(piece):
        return None
    ages = {**dict.fromkeys(_results(before), 1), **dict.fromkeys(_given(question), 2)}
    found = [plain(one) for one in statements(piece)]
    own = own_words(question)
    derived = _read_derived(found, ages, question, own) if len(found) > 1 else None
    return derived or _read(plain(piece), ages, question, own)


def _read_derived(found: list[str], ages: dict[Fraction, int], question: str, own: frozenset[str]) -> Value | None:
    """The last of several statements, where the question or an equation accounts for every other number."""
    *before, last = found
    value = _read(last, ages, question, own)
    if value is None or len(before) > MAX_STEPS:
        return None
    known, steps, used = {*ages, value.number.value}, [], _numbers(last)
    for text in reversed(before):
        step = _read(text, ages, question, own) if "=" in text else None
        if step is not None and step.claims and step.number.value in used:
            steps.append(step)
            known.add(step.number.value)
        elif not _names_only(text, known, value.number.value):
            return None
        used |= _numbers(text)
    return replace(value, steps=tuple(steps))


def _names_only(text: str, known: set[Fraction], value: Fraction) -> bool:
    """Whether a sentence names known numbers alone, or the value again."""
    numbers = _numbers(text)
    is_plain = not (doubt(text) or names_several(text) or "=" in text)
    return is_plain and numbers <= known and (numbers <= {value} or num_words(text) >= _MIN_WORDS)


def _read(text: str, ages: dict[Fraction, int], question: str, own: frozenset[str]) -> Value | None:
    """One statement."""
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    text = _PARTED.sub(functools.partial(_in_one_unit, question=question), text)
    *left, right = (part.strip() for part in EQUALS.split(text))
    right, working = _without_working(right)
    if doubt(text, own) or names_several(text) or num_words(" ".join(left)) > MAX_WORDS:
        return None
    number = _stated_number(right, ages, own)
    if number is None:
        return None
    has_name = bool(left) and NAME.fullmatch(left[0]) is not None
    claims = [re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", _calculation(part.rpartition("because ")[2])) for part in left]
    claims = [one for one in claims if not (NAME.fullmatch(one) or (has_name and not re.search("[0-9]", one)))]
    return Value(number, (*claims, *working))


def _stated_number(text: str, ages: dict[Fraction, int], own: frozenset[str]) -> Number | None:
    found = list(NUMBERS.finditer(text))
    place = _newest(text, found, ages)
    if place is None:
        return None
    ends = [0, *(one.end() for one in found)]
    before = text[ends[place] : found[place].start()]
    gaps = [text[end : one.start()] for end, one in zip(ends[1:], found[1:], strict=False)]
    after = [*gaps[place:], text[ends[-1] :]]
    statement = last_statement(before)
    if changes(before, own) or changed(after[0], own):
        return None
    if before[-1:].isalpha() or max(num_words(text[: found[place].start()]), *map(num_words, after)) > MAX_WORDS:
        return None
    written = found[place][0]
    if written.startswith(("- ", "+ ")) and statement.strip(" ("):  # "Answer - 18" is no negative number
        return None
    if not (_is_plain(statement, frozenset("aAI")) and all(_is_plain(gap, _UNITS) for gap in after)):
        return None
    return read_number(written.strip())


def _newest(text: str, found: list[re.Match[str]], ages: dict[Fraction, int]) -> int | None:
    """The place of the number that a text states; None where others compete with it."""
    if not found:
        return None
    numbers = [read_number(one[0].strip()) for one in found]
    old = [0 if number is None else ages.get(number.value, 0) for number in numbers]
    newest = [place for place, age in enumerate(old) if age == min(old)]
    gaps = [text[one.end() : other.start()] for one, other in zip(found, found[1:], strict=False)]
    leads = bool(gaps) and _STATES.search(gaps[-1]) is not None and not _LISTING.search(gaps[-1])
    if leads and newest[-1] == len(found) - 1:
        return newest[-1]
    place = newest[0]
    if len(newest) > 1 and not min(old):
        return None
    if place and not _is_led(text[: found[place - 1].start()], gaps[place - 1]):
        return None
    return place if all(map(_is_aside, gaps[place:])) else None


def _is_led(before: str, gap: str) -> bool:
    """Whether the words between a given number and a new one lead to the new one."""
    has_verb = _VERB.search(gap) is not None
    has_clause = num_words(gap) > 1 or (num_words(gap) == 1 and _LEADS_TO_GIVEN.search(before) is not None)
    return has_verb or (has_clause and _LISTING.search(gap) is None)


def _is_aside(gap: str) -> bool:
    """Whether the words between a number and a given one behind it say what the first came from."""
    has_clause = num_words(gap) > 1 or _LEADS_TO_GIVEN.search(gap) is not None
    return has_clause and _GOES_ON.search(gap) is None


def _is_plain(text: str, letters: frozenset[str]) -> bool:
    """Whether a text has words alone: no other signs, no letter that could be a variable."""
    alone = {word for word in _WORD.findall(text) if len(word) == 1}
    return alone <= letters and _BETWEEN_WORDS.fullmatch(_WORD.sub("", text)) is not None


def _without_working(text: str) -> tuple[str, list[str]]:
    """A text without the calculations in brackets behind its number, `18 (= 9 * 2)`, and these."""
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        bare = _calculation(match[1])
        if re.search(r"(?<!\\)\b[A-Za-z]{2,}", bare):
            return match[0]
        found.append(bare)
        return ""

    return _WORKING.sub(take, text), found


def changes(before: str, own: frozenset[str]) -> bool:
    """Whether the words in front of a number bound it or make another one of it."""
    words = _LETTERS.findall(_VERB.split(before)[-1].lower())
    last = next((word for word in reversed(words) if word not in _FILLERS), "")
    return last in _CHANGES and _stem(last) not in own


def changed(after: str, own: frozenset[str]) -> bool:
    """Whether the words right behind a number make another one of it, or go on."""
    found = _CHANGED.match(after)
    return found is not None and _stem(found[1]) not in own


def doubt(text: str, own: frozenset[str] = frozenset()) -> bool:
    """Whether a plain text negates or doubts its statement, with other words than the question's own.

    Example:
        >>> doubt("not 18"), doubt("hardly 18"), doubt("18?"), doubt("18 more than Bob")
        (True, True, True, False)
    """
    return any(_stem(found[0]) not in own for found in _DOUBT.finditer(text))


def states_once(before: str) -> bool:
    """Whether the words up to a stated value state no other one: "and" and the like may not join two statements.

    Example:
        >>> states_once("The answer is "), states_once("It is 17, and it is ")
        (True, False)
    """
    joined = list(_LISTING.finditer(before.rstrip().removesuffix(":")))
    return not joined or _STATES.search(before[: joined[-1].start()]) is None


def statements(text: str) -> list[str]:
    """Give the sentences of all lines, without the signs of a list before them.

    Example:
        >>> statements("1. He has 9 eggs. Each costs $2.\\n#### 18")
        ['He has 9 eggs.', 'Each costs $2.', '18']
    """
    text = re.sub(r"(=[^=,\n]{1,60}),\s(?:and|so|then)\s", r"\1\n", text)
    return [sentence for line in text.split("\n") for sentence in sentences(line)]


def sentences(line: str) -> list[str]:
    """Give the sentences of a line that hold a letter or digit."""
    found = _SENTENCE.split(_ITEM.sub("", line).rpartition("####")[2])
    return [sentence.strip() for sentence in found if any(map(str.isalnum, sentence))]


def names_several(text: str) -> bool:
    """Whether a plain text has an alternative, or a sign of several values."""
    return _SEVERAL.search(text) is not None


def last_statement(text: str) -> str:
    """Give what follows the last verb that states a value, or colon: all of the text where there is neither."""
    return text[max((found.end() for found in _STATES.finditer(text)), default=0) :].strip()


def num_words(text: str) -> int:
    """Count the words of a text."""
    return len(_LETTERS.findall(text))


def without_units(text: str) -> str:
    """Leave out the words behind an expression."""
    return _TRAILING_UNITS.sub("", text).strip()


def _calculation(text: str) -> str:
    """A calculation with numbers without the words before it and its units."""
    text = _CLAUSE.split(last_statement(text))[-1]
    if re.search(r"[0-9]\s*[A-Za-z ]*(?:[-+*/]|\\times|\\cdot)", text) and not re.search(
        r"\\(?!times|cdot|frac)", text
    ):
        text = _UNIT_OF_A_FACTOR.sub("", text)
    return without_units(text)


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


def _results(text: str) -> set[Fraction]:
    """The numbers right behind the equals signs of a text."""
    return _numbers(" ; ".join(re.findall(r"=\s*[$\\]{0,2}([0-9][0-9.,]*)", text)))


def _numbers(text: str) -> set[Fraction]:
    found: Iterable[Number | None] = (read_number(match[0].strip()) for match in NUMBERS.finditer(text))
    return {number.value for number in found if number is not None}


def _in_one_unit(match: re.Match[str], question: str) -> str:
    count, unit, rest, part = match.groups()
    ratio, smaller = _PARTS[unit]
    asked = re.search(rf"\b(?:how many|in) (?:{unit}|({part}))s\b", question, re.IGNORECASE)
    if part != smaller or asked is None:
        return match[0]
    total = int(count) * ratio + int(rest)
    return f"{total} {part}s" if asked[1] else f"{Fraction(total, ratio)} {unit}s"


def _scientific(match: re.Match[str]) -> str:
    return format(Decimal(match[1]).scaleb(int(match[2] or match[3])), "f")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    nines = 10 ** (len(fixed) + len(period)) - 10 ** len(fixed)
    return f"{int(whole) * nines + int(fixed + period) - int(fixed or '0')}/{nines}"


def _scaled(match: re.Match[str]) -> str:
    return format(Decimal(match[1].replace(",", "")).scaleb(_SCALES[match[2].lower()]), "f")


_REWRITES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"^(?:[-•*]|1[.)]) (?=[0-9.,]+ [A-Za-z])|^1[.)] (?=[0-9.,]+$)"), ""),
    (re.compile(r"^([^=()]+?) ?\( ?= ?([^=]+)\)$"), r"\2 = \1"),
    (re.compile(r"(?<=[0-9]) and (?:a|one)[ -](half|third|quarter)\b"), lambda match: f" {_HALVES[match[1]]}"),
    (_SCIENTIFIC, _scientific),
    (_REPEATING, _repeating),
    (_SCALED, _scaled),
    (_NEGATIVE, "-"),
    (re.compile(r"(?<=[0-9]) minus (?=[0-9])"), " - "),
    (_SPOKEN, r"\1 = "),
    (re.compile(r" o'clock\b"), ""),
]
"""Items of a list, `18 (= 9 * 2)`, "3 and a half", scientific notation, repeating decimals, scales and signs."""
