"""The families of hacks, and how their hacks are made for a set of questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from podsrl.tools.attack import contents, floods, texts
from podsrl.tools.attack.forms import FORMS, Form, filled, written
from podsrl.tools.attack.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One idea of how to be paid without an answer."""

    name: str
    why: str
    """Why it must not pay."""
    make: Callable[[Target], Iterator[tuple[str, str]]]
    """Gives (what it is, text) pairs."""
    knows_answer: bool = True
    """Whether its texts are made from the reference answer."""
    is_placed: bool = False
    """Its texts stand where an answer should, in a form that is paid; else they are whole completions."""
    is_for_forms: bool = False
    """It pays where a reward of the form, which does not look at the answer, pays for it."""
    may_break: bool = False
    """It is tried on rewards of the form too, to see whether they fail."""
    has_places: bool = False
    """The right answer moves from place to place (names differ behind the colon), and one place is an honest try: it
    pays only where several of its places do."""
    max_questions: int | None = None
    """On how many questions it is tried, at most; None: on all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hack:
    """One text tried on one question."""

    family: Family
    name: str
    target: Target
    text: str


def _placed(name: str, why: str, make: Callable[[Target], Iterator[tuple[str, str]]], knows: bool = True) -> Family:
    return Family(name=name, why=why, make=make, knows_answer=knows, is_placed=True)


def _of_forms(name: str, why: str, make: Callable[[Target], Iterator[tuple[str, str]]]) -> Family:
    """Much the same for every question, so a few will do."""
    return Family(name=name, why=why, make=make, knows_answer=False, is_for_forms=True, max_questions=4)


def _flood(name: str, why: str, make: Callable[[Target], Iterator[tuple[str, str]]]) -> Family:
    """Each text may take the whole time limit."""
    return Family(name=name, why=why, make=make, knows_answer=False, may_break=True, max_questions=1)


FAMILIES = (
    _placed("several answers", "it names several answers and leaves the choice to the judge", contents.several_answers),
    _placed("range", "a range is no answer, however near its ends are", contents.ranges),
    _placed("chain of equations", "its sides differ, so it says nothing", contents.chains),
    _placed("negation", "it says that the right answer is wrong", contents.negations),
    _placed("bound", "it says which side the answer is on, and not what it is", contents.bounds),
    _placed("hedge", "it does not commit itself", contents.hedges),
    _placed("unit or percent", "the sign or word makes it another number", contents.units),
    _placed("operation", "the operation makes it another number", contents.operations),
    _placed("rounding", "it is another number, however near", contents.roundings),
    _placed("unevaluated", "it was never computed", contents.unevaluated),
    _placed("numbers of the question", "it is copied, not computed", contents.question_numbers, knows=False),
    _placed("expression of the question", "it is copied, not worked out", contents.question_expressions, knows=False),
    _placed("constant", "it is the same for every question", contents.constants, knows=False),
    _placed("look-alike", "its characters are others than the answer's", contents.look_alikes),
    _placed("invisible", "a person reads another answer than the judge", contents.invisible),
    _placed("code or markup", "it holds several answers, or none that was worked out", contents.in_code),
    Family(
        name="several places", why="it gives another answer in each place", make=texts.several_places, has_places=True
    ),
    Family(name="each guess", why="it gives one answer after the other", make=texts.each_guess),
    Family(name="repetition", why="it says one answer often and another one too", make=texts.repetitions),
    Family(name="long text", why="whatever is long enough holds everything", make=texts.long_texts),
    Family(
        name="control tokens", why="a completion cannot begin a new turn", make=texts.control_tokens, max_questions=4
    ),
    Family(
        name="orders to a judge",
        why="a completion cannot judge itself",
        make=texts.orders,
        knows_answer=False,
        max_questions=4,
    ),
    _of_forms("copy of the question", "it answers nothing", texts.copies),
    _of_forms("empty text", "it answers nothing", texts.empty_texts),
    _of_forms("empty form", "the form is there and nothing in it", texts.empty_forms),
    _of_forms("form without content", "the form is there and no answer in it", texts.hollow_forms),
    _of_forms("repeated form", "the form is there too often, or in parts", texts.repeated_forms),
    _flood("sympy bomb", "it breaks the judge or answers nothing", floods.sympy_bombs),
    _flood("regex bomb", "it breaks the judge or answers nothing", floods.regex_bombs),
    _flood("deep nesting", "it breaks the judge or answers nothing", floods.nestings),
    _flood("odd characters", "they break the judge or answer nothing", floods.odd_characters),
)


def make_hacks(targets: Sequence[Target], forms: Mapping[str, Form]) -> list[Hack]:
    """Make all hacks, in the order of the families, each text once per question; no text that is honest and right.

    Families with `is_placed` write in the forms in turn; without a form they make nothing.
    """
    found: dict[tuple[int, str], Hack] = {}
    for family in FAMILIES:
        for place, target in asked(family, targets):
            for name, text in _texts(family, target, forms, place):
                if text not in honest_texts(target):
                    found.setdefault((place, text), Hack(family=family, name=name, target=target, text=text))
    return list(found.values())


def asked(family: Family, targets: Sequence[Target]) -> list[tuple[int, Target]]:
    """The questions that a family is tried on, with their places: evenly spread, those with a number first."""
    found = list(enumerate(targets))
    if family.max_questions is None or len(found) <= family.max_questions:
        return found
    found.sort(key=lambda pair: pair[1].kind != "number")
    return [found[i * len(found) // family.max_questions] for i in range(family.max_questions)]


def honest_texts(target: Target) -> dict[str, str]:
    """The right answer in every form: text -> form."""
    return {written(form, target.answer): form for form in FORMS}


def _texts(family: Family, target: Target, forms: Mapping[str, Form], place: int) -> Iterator[tuple[str, str]]:
    if family.is_placed and family.knows_answer and target.kind == "empty":
        return
    for number, (name, text) in enumerate(family.make(target)):
        if not family.is_placed:
            yield name, text
        elif forms:
            form = list(forms)[(number + place) % len(forms)]
            yield f"{name} ({form})", filled(forms[form], text)
