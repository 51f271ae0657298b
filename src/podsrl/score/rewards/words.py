"""The words around a value: which state it, which cast doubt on it, which are only its unit.

The lists are English. Right beside a number only a verb, a word of the question, or one of `_PLAIN` may stand; other
words may stand farther away and change nothing, except for the few that deny or doubt.
"""

from __future__ import annotations

import functools
import re

_DOUBT = re.compile(
    r"\b(?:not?|but|n?either|never|nor|cannot|maybe|perhaps|might|guess\w*|wrong|incorrect|false|unless|at\s+(?:least|most)|(?:could|may|can)\s+be"
    r"|(?!(?:on|final|exact|clear|name|simp|multip|supp|fami|equal|actual|total|current|original|initial|hour|dai|week|month|year)ly)[a-z]{2,}ly)\b"
    r"|n't\b|\?|…|\.\.\.|[~≡]|==|:=|\\(?:ne|neq|not|lnot|neg|approx|sim|simeq)(?![A-Za-z])",
    re.IGNORECASE,
)
"""Negations, and adverbs such as "hardly": any in -ly but the ones of time and order."""
_SEVERAL = re.compile(r"\bor\b|[<>]|\\(?:le|leq|ge|geq|lt|gt|pm|mp|lor|vee|cup)(?![A-Za-z])", re.IGNORECASE)
_PLAIN = (
    r"(?:so|therefore|thus|hence|then|the|an?|th(?:at|[eo]se|is)|his|her|their|s?he|they|it|we|final|correct|answer|result|solution|value|number|total|sum"
    r"|exactly|only|just|now|still|another|more(?!\s+or\b)|left|remain\w*|(?:al)?together|all|each|every|in|of|for|with|at|by|to|per|on|from|after"
    r"|because|since|which|when|was|were|are|can|will|must|would|should|(?:away|off|out|up)(?!\s+(?:to|of|by))"
    r"|usd|dollars?|cents?|euros?|(?:pound|second|minute|hour|day|week|month|year|mile|degree|unit)s?|inch(?:es)?"
    r"|f[oe][oe]t|people|points|percent|(?:kilo|centi|milli)?(?:met(?:er|re)|gram|lit(?:er|re))s?|square(?!\s+of\b)|sq|cubic)(?![a-z])"
)
"""What may stand right beside a number: units, and words that change no number."""
_LEAD = re.compile(rf"(?:[\s:,*(]|\b{_PLAIN})*", re.IGNORECASE)
_FOLLOW = re.compile(
    rf"[\s(*,-]*(?:$|[^\s(*,A-Za-z-]|{_PLAIN}|(?:[a-z]|th|st|nd|rd|[ap]m|[cdkm]m|k?m/|k[gm]|ml|ft|oz|lbs?|mph|hrs?|mins?|times(?!\s+(?:the|as|more)\b)"
    r"|is\s+(?:left|(?:the|my)\s+(?:\w+\s+)?answer))(?![a-z]))",
    re.IGNORECASE,
)
_PERSONS = frozenset(("i", "you", "he", "she", "it", "we", "they", "who"))
_OTHER_VERB = re.compile(r"\s+(?:(?:can|will|must|would)\s+)?([a-z]{2,})(?:\s+(?:up|out))?(?=\s)")
_CHANGES = (
    "half twice double triple times than least most about nearly almost around over under above below between minus"
    " plus without near if and not ten tenth hundred hundredth thousand thousandth square cube root"
)
"""Words that are no part of a question's own: beside a number they make another of it."""
_ENDING = re.compile(r"(?<=\w{3})(?:ings?|ers?|ied|ies?|ed|es|(?<!s)s|(?<![aeiou])y|e)$")
_OF_A_STATEMENT = re.compile(r"at\s|can\s|\\", re.IGNORECASE)
_BEFORE_BOX = re.compile(r"(?:\\(?:ne|neq|not)|≠|\b(?:than|minus|negative|twice|half))$", re.IGNORECASE)
_AFTER_BOX = re.compile(
    r"[.,!$*\s]{0,8}(?:or\b|\?|is\s+(?:not\s+(?:the\s+)?(?:right|correct|answer)|wrong|incorrect|false)\b|at\s+(?:least|most)\b)",
    re.IGNORECASE,
)
_BEFORE_TAGGED_BOX = re.compile(
    r"(?:[<>≤≥≈~]|\\(?:le|leq|ge|geq)|\b(?:or|about|around|almost|up\s+to))$", re.IGNORECASE
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|becomes?|equals?|equal\s+to|ha(?:s|ve|d|ving)|ma(?:kes?|de|king)|g[ie]ts?|got|gives?|gave|costs?|pa(?:ys?|id)|needs?"
    r"|takes?|took|leaves?|leaving|sp(?:ends?|ent)|earn(?:s|ed)?|contains?|remains?|yields?|(?:comes?|amounts?|adds?\s+up|sums?)\s+to)\b",
    re.IGNORECASE,
)
_STATES = re.compile(rf"{_VERB.pattern}|\btotals?(?:\s+of)?\b|(?<=[A-Za-z)]):", re.IGNORECASE)
_LISTING = re.compile(r"\b(?:and|also|or|then)\b|:", re.IGNORECASE)
_MIN_CLAUSE = 3
"""Words between two numbers that may be a clause with a verb of its own."""
_CLAUSE = re.compile(r"(?:[A-Za-z'’]+[\s,]+){2,}(?=[-0-9.(\\][^=]*[-+*/\\])")
_LETTERS = re.compile(r"[^\W\d_]+")
_UNITS = "mgshlLWVNJCF"
_WORD = re.compile(r"/?\s?([^\W\d_]+)(?:[-'/.][^\W\d_]+)*+(?:\^-?[1-3])?(?:!(?=\s|$))?")
_BETWEEN_WORDS = re.compile(r"[\s.,:;'()\[\]{}*]*")
_TRAILING_UNITS = re.compile(
    r"(?<=[\w)}\]\s])\s*(?<![\\A-Za-z])(?:/\s?)?[A-Za-z]{2,}(?:[\s/.'-]+[A-Za-z]{2,})*(?:\^[23])?$"
)
_UNIT_OF_A_FACTOR = re.compile(r"(?:/|\bper)\s*[A-Za-z]{2,}|(?<![\\A-Za-z])[A-Za-z]{2,}")


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
    joined = list(_LISTING.finditer(before))[:-1] if before.rstrip().endswith(":") else list(_LISTING.finditer(before))
    return not joined or _STATES.search(before[: joined[-1].start()]) is None


def names_several(text: str) -> bool:
    """Whether a plain text has an alternative, or a sign of several values.

    Example:
        >>> names_several("16 or 18"), names_several(r"x > 18"), names_several("18 dollars")
        (True, True, False)
    """
    return _SEVERAL.search(text) is not None


def _stem(word: str) -> str:
    return _ENDING.sub("", word.lower())


_NEVER_OWN = frozenset(map(_stem, _CHANGES.split()))


@functools.lru_cache(maxsize=1024)
def own_words(question: str) -> frozenset[str]:
    """Stems of the words of a question that may stand right beside a number in an answer to it.

    Example:
        >>> sorted(own_words("Is half of 18 eggs 9?"))
        ['egg']
    """
    return frozenset(_stem(word) for word in _LETTERS.findall(question) if len(word) > 2) - _NEVER_OWN


def is_led(before: str, own: frozenset[str]) -> bool:
    """Whether only what may stand there leads to a number: a verb or a word of the question, then plain words.

    Example:
        >>> own = own_words("How many eggs?")
        >>> is_led("The total is: ", own), is_led("Eggs: ", own), is_led("less than: ", own), is_led("north of ", own)
        (True, True, False, False)
    """
    behind_verb = max((verb.end() for verb in _VERB.finditer(before)), default=0)
    rest = before[behind_verb:]
    place = max(
        (word.end() for word in _LETTERS.finditer(rest) if _stem(word[0]) in own or word[0].lower() in _PERSONS),
        default=0,
    )
    if place and not behind_verb and (word := _OTHER_VERB.match(rest, place)) and _stem(word[1]) not in _NEVER_OWN:
        place = word.end()
    return _LEAD.fullmatch(rest, place) is not None


def may_follow(after: str, own: frozenset[str]) -> bool:
    """Whether the first word behind a number, if there is any, is a unit, the question's own, or begins another part.

    Example:
        >>> own = own_words("How many eggs?")
        >>> [may_follow(after, own) for after in (" eggs", " dollars a day", "", " tens", " or so")]
        [True, True, True, False, False]
    """
    word = _LETTERS.search(after)
    return _FOLLOW.match(after) is not None or (word is not None and _stem(word[0]) in own)


def is_doubtful_box(before: str, after: str, *, is_tagged: bool) -> bool:
    """Whether the words right beside a box negate it.

    In answer tags they may not bound it or name an alternative either. In a long text "at least" and "can be"
    before a box are often part of the statement that it ends.

    Example:
        >>> is_doubtful_box("It is not $", "$.", is_tagged=False), is_doubtful_box("17 or $", "$", is_tagged=True)
        (True, True)
    """
    before = before.rstrip(" \t\n$*\\([:")
    doubts = [found[0] for found in _DOUBT.finditer(before) if found.end() == len(before) and found[0][-1:].isalpha()]
    is_denied = any(is_tagged or _OF_A_STATEMENT.match(found) is None for found in doubts)
    is_bounded = is_tagged and _BEFORE_TAGGED_BOX.search(before) is not None
    return is_denied or is_bounded or _BEFORE_BOX.search(before) is not None or _AFTER_BOX.match(after) is not None


def last_statement(text: str) -> str:
    """Give what follows the last verb that states a value, or colon: all of the text where there is neither.

    Example:
        >>> last_statement("The answer is 18"), last_statement("18 dollars")
        ('18', '18 dollars')
    """
    return text[max((found.end() for found in _STATES.finditer(text)), default=0) :].strip()


def states_only_last(gap: str, own: frozenset[str] = frozenset()) -> bool:
    """Whether the words between two numbers lead to the second as the one that is stated.

    Example:
        >>> states_only_last(" has "), states_only_last(" or "), states_only_last(" and it is ")
        (True, False, False)
    """
    has_verb = _STATES.search(gap) is not None or (num_words(gap) >= _MIN_CLAUSE and is_led(gap, own))
    return has_verb and _LISTING.search(gap) is None


def num_words(text: str) -> int:
    """Count the words of a text."""
    return len(_LETTERS.findall(text))


def only_words(before: str, after: str) -> bool:
    """Whether plain words alone stand around a number: no other signs, no letter that could be a variable.

    Example:
        >>> only_words("", " dollars a day"), only_words("", "x"), only_words("9 *", "")
        (True, False, False)
    """
    letters = {word for word in _WORD.findall(before) if len(word) == 1} - set("aAI")
    units = {word for word in _WORD.findall(after) if len(word) == 1} - set("aAI" + _UNITS)
    if letters or units:
        return False
    return all(_BETWEEN_WORDS.fullmatch(_WORD.sub("", part)) is not None for part in (before, after))


def without_units(text: str) -> str:
    r"""Leave out the words behind an expression.

    Example:
        >>> without_units(r"6\pi square inches")
        '6\\pi'
    """
    return _TRAILING_UNITS.sub("", text).strip()


def bare_calculation(text: str) -> str:
    r"""Leave out the units of a calculation with numbers.

    Example:
        >>> bare_calculation("9 eggs * 2 dollars/egg"), bare_calculation(r"\binom{5}{2}")
        ('9  * 2', '\\binom{5}{2}')
    """
    text = _CLAUSE.split(text)[-1]
    if re.search(r"[0-9]\s*[A-Za-z ]*(?:[-+*/]|\\times|\\cdot)", text) and not re.search(
        r"\\(?!times|cdot|frac)", text
    ):
        text = _UNIT_OF_A_FACTOR.sub("", text)
    return without_units(text)
