"""The words around a value: which state it, which cast doubt on it, which are only its unit.

The lists are English. A word that stands in none is a plain word: it may stand beside a value and changes nothing.
"""

from __future__ import annotations

import re

_NUMBER_AHEAD = r"(?:\s+(?:of|the|a|an))*\s*(?:[-+(]|\\frac\{|\\sqrt\{)*\s*[0-9]"
_DOUBT = re.compile(
    r"\b(?:not|but|never|nor|neither|either|maybe|perhaps|possibly|probably|likely|might|guess\w*|wrong|incorrect|false|except"
    r"|presumably|supposedly|seemingly|apparently|hopefully|suppose|assuming|whether|unlike(?:ly)?|unequal|differs?|besides"
    r"|excluded|excluding|ruled\s+out|impossible|invalid|untrue|doubtful|a\s+lie|(?:apart|aside)\s+from|(?:vicinity|range)\s+of"
    r"|alternatively|otherwise|instead|unless|unknown|unsure|cannot|approx\w*|roughly|circa|no|at\s+(?:least|most)|minimum\s+of|maximum\s+of|ish"
    r"|(?:could|may|can|should|would)\s+be)\b|n't\b|\?|…|\.\.\.|[~≡]|==|:="
    r"|\\(?:ne|neq|not|lnot|neg|approx|sim|simeq)(?![A-Za-z])",
    re.IGNORECASE,
)
_SEVERAL = re.compile(r"\bor\b|[<>]|\\(?:le|leq|ge|geq|lt|gt|pm|mp|lor|vee|cup)(?![A-Za-z])", re.IGNORECASE)
_CHANGE = re.compile(
    r"(?<!\\)\b(?:(?:about|around|nearly|almost|over|under|above|below|beyond|than|near|without|approaching|if|exceeds?|exceeding|between|within|until|minus"
    r"|plus|negative|times|twice|half|double|triple|thrice|mod|modulo|root|factorial|log|max|min|(?:close|near)\s+(?:to|by)|up\s+to)"
    r"|(?:half|third|quarter|fifth|tenth|square|cube|root|inverse|reciprocal|opposite|multiple|factor|divisor|power|fraction)s?"
    rf"\s+of){_NUMBER_AHEAD}"
    r"|[0-9}]\s*(?:-?\s*(?:squared|cubed|hundred|tenths?|hundredths?|thousandths?|halves|thirds?|factorial|plus|minus|point"
    r"|choose|max|tops|upwards?|downwards?|if)\b|and\s+(?:a|an|one|two|three|four|five)\s)",
    re.IGNORECASE,
)
_BESIDE = r"[\s$*\\(\[:]{0,8}"
_BEFORE_BOX = re.compile(
    rf"(?:\b(?:not|never|n't|either|maybe|perhaps|than|minus|negative|twice|half)\b|\\(?:ne|neq|not)(?![A-Za-z])|≠){_BESIDE}$",
    re.IGNORECASE,
)
_AFTER_BOX = re.compile(
    r"[.,!$*\s]{0,8}(?:or\b|\?|is\s+(?:not\s+(?:the\s+)?(?:right|correct|answer)|wrong|incorrect|false)\b|at\s+(?:least|most)\b)",
    re.IGNORECASE,
)
_BEFORE_TAGGED_BOX = re.compile(
    rf"(?:\b(?:or|about|around|nearly|almost|roughly|approximately|at\s+least|at\s+most|up\s+to)\b|[<>≤≥≈~]"
    rf"|\\(?:le|leq|ge|geq|approx|sim)(?![A-Za-z])){_BESIDE}$",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|being|becomes?|equals?|equal\s+to|has|have|had|having|makes?|made|making|gives?|gave|giving|gets?|got"
    r"|getting|costs?|costing|pays?|paid|paying|earns?|earned|earning|receives?|received|needs?|needed|takes?|took|taking"
    r"|leaves?|leaving|spends?|spent|spending|saves?|saved|saving|contains?|sells?|sold|selling|buys?|bought|eats?|ate"
    r"|totals?|totaling|totalling|yields?|comes?\s+to|amounts?\s+to|adds?\s+up\s+to|sums?\s+to|remains?|reads?|reading|weighs?"
    r"|runs?|ran|walks?|walked|travels?|traveled|drives?|drove|lasts?|uses?|used|collects?|collected|charges?|charged|produces?"
    r"|produced|obtains?|obtained|get|requires?|required|holds?|keeps?|kept|scored?|scores|works?|worked|owes?|owed)\b(?:\s+[a-z]+:|:)?"
    r"|(?<=[A-Za-z)]):",
    re.IGNORECASE,
)
_LISTING = re.compile(r"\b(?:and|also|or|then)\b|:", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_UNITS = "mgshlLWVNJCF"
_WORD = re.compile(r"/?\s?([^\W\d_]+)(?:[-'/.][^\W\d_]+)*+(?:\^-?[1-3])?(?:!(?=\s|$))?")
_BETWEEN_WORDS = re.compile(r"[\s.,:;'()\[\]{}*]*")
_TRAILING_UNITS = re.compile(
    r"(?<=[\w)}\]\s])\s*(?<![\\A-Za-z])(?:/\s?)?[A-Za-z]{2,}(?:[\s/.'-]+[A-Za-z]{2,})*(?:\^[23])?$"
)
_UNIT_OF_A_FACTOR = re.compile(r"(?:/|\bper)\s*[A-Za-z]{2,}|(?<![\\A-Za-z])[A-Za-z]{2,}")


def doubt(text: str) -> bool:
    """Whether a plain text negates or doubts its statement.

    Example:
        >>> doubt("not 18"), doubt("at least 18"), doubt("18?"), doubt("18 more than Bob")
        (True, True, True, False)
    """
    return _DOUBT.search(text) is not None


def states_once(before: str) -> bool:
    """Whether the words up to a stated value state no other one: "and" and the like may not join two statements.

    Example:
        >>> states_once("The answer is "), states_once("It is 17, and it is ")
        (True, False)
    """
    joined = list(_LISTING.finditer(before))[:-1] if before.rstrip().endswith(":") else list(_LISTING.finditer(before))
    return not joined or _VERB.search(before[: joined[-1].start()]) is None


def names_several(text: str) -> bool:
    """Whether a plain text has an alternative, or a sign of several values.

    Example:
        >>> names_several("16 or 18"), names_several(r"x > 18"), names_several("18 dollars")
        (True, True, False)
    """
    return _SEVERAL.search(text) is not None


def changes(text: str) -> bool:
    """Whether a word right beside a number makes another value of it, or a bound.

    Example:
        >>> changes("half of 18"), changes("less than 18"), changes("18 squared"), changes("18 more than Bob")
        (True, True, True, False)
    """
    return _CHANGE.search(text) is not None


def is_doubtful_box(before: str, after: str, *, is_tagged: bool) -> bool:
    """Whether the words right beside a box negate it.

    In answer tags they may not bound it or name an alternative either. In a long text "at least" before a box is often
    part of the question.

    Example:
        >>> is_doubtful_box("It is not $", "$.", is_tagged=False), is_doubtful_box("17 or $", "$", is_tagged=True)
        (True, True)
    """
    is_bounded = is_tagged and _BEFORE_TAGGED_BOX.search(before) is not None
    return is_bounded or _BEFORE_BOX.search(before) is not None or _AFTER_BOX.match(after) is not None


def last_statement(text: str) -> str:
    """Give what follows the last verb that states a value, or colon: all of the text where there is neither.

    Example:
        >>> last_statement("The answer is 18"), last_statement("18 dollars")
        ('18', '18 dollars')
    """
    end = 0
    for verb in _VERB.finditer(text):
        end = verb.end()
    return text[end:].strip()


def states_only_last(gap: str) -> bool:
    """Whether the words between two numbers lead to the second as the one that is stated.

    Example:
        >>> states_only_last(" has "), states_only_last(" or "), states_only_last(" and it is ")
        (True, False, False)
    """
    return _VERB.search(gap) is not None and _LISTING.search(gap) is None


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
    if re.search(r"[0-9]\s*[A-Za-z ]*[-+*/]", text) and not re.search(r"\\(?!times|cdot|frac)", text):
        text = _UNIT_OF_A_FACTOR.sub("", text)
    return without_units(text)
