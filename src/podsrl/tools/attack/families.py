"""The families of hacks of hacks.toml, and how their hacks are made for a set of questions."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from podsrl.tools.attack import computed
from podsrl.tools.attack.forms import FORMS, Form, filled, written
from podsrl.tools.attack.programs import HOSTILE, program
from podsrl.tools.attack.target import Target
from podsrl.tools.attack.verdict import Nature
from podsrl.tools.attack.words import fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One idea of how to be paid without an answer."""

    name: str
    why: str
    """Why it must not pay."""
    texts: tuple[tuple[str, ...], ...] = ()
    """Templates: (text,), (name, text) or (name, text, form); a text alone is its own name."""
    each: tuple[tuple[str, str], ...] = ()
    """(name, text) for the words «name» and «each»: templates with them are made for each."""
    computed: Callable[[Target], Iterator[tuple[str, str]]] | None = None
    """Makes the hacks in place of templates."""
    kinds: frozenset[str] | None = None
    """Kinds of answers that it has a meaning for; None: all."""
    is_never_right: bool = False
    """Texts that hold the right answer as a word are left out."""
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

    def make(self, target: Target) -> Iterator[tuple[str, str]]:
        """(What it is, text) pairs for a question."""
        if self.computed is not None:
            yield from self.computed(target)
        elif self.kinds is None or target.kind in self.kinds:
            for name, text in self._filled(target):
                if not (self.is_never_right and _is_right(target, text)):
                    yield name, text

    def is_for(self, target: Target) -> bool:
        """Whether it has a meaning for a question; for one that a program answers, few have."""
        if target.kind == "program" or self.is_of_programs:
            return target.kind == "program" and (self.is_of_programs or self.may_break)
        return True

    @property
    def is_of_programs(self) -> bool:
        """Whether its texts are programs."""
        return self.kinds == frozenset({"program"})

    def concerns(self, nature: Nature) -> bool:
        """Whether it is tried on a reward of that nature."""
        return nature == "correctness" or self.is_for_forms or self.may_break

    def _filled(self, target: Target) -> Iterator[tuple[str, str]]:
        many = [template for template in self.texts if "«each»" in "".join(template)]
        one = [template for template in self.texts if template not in many]
        filled_each = [(name, fill(text, target, {}) or "") for name, text in self.each]
        words = [{"name": name, "each": text, "quoted": repr(text)} for name, text in filled_each]
        for more, templates in (*((more, many) for more in words), ({}, one)):
            for template in templates:
                *name, text = (fill(part, target, more) for part in template[:2])
                if text is not None:
                    text = written(template[2], text) if template[2:] else text
                    yield from [(name[0] or "", text)] if name else computed.named(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hack:
    """One text tried on one question."""

    family: Family
    name: str
    target: Target
    text: str

    @property
    def place(self) -> tuple[str, int, str]:
        """The same for hacks that differ only in where the right answer stands."""
        return self.family.name, id(self.target), self.name.partition(":")[0]


KINDS: Mapping[str, Mapping[str, Any]] = {
    "placed": {"is_placed": True},
    "whole": {},
    "form": {"is_for_forms": True, "knows_answer": False, "max_questions": 4},  # much the same for every question
    "flood": {"may_break": True, "knows_answer": False, "max_questions": 1},  # each may take the whole time limit
}
"""Array of hacks.toml -> what its families have in common."""


def _family(kind: str, entry: dict[str, Any]) -> Family:
    own = {**KINDS[kind], **entry}
    changes: dict[str, Callable[[Any], Any]] = {
        "texts": lambda texts: tuple((text,) if isinstance(text, str) else tuple(text) for text in texts),
        "each": lambda each: tuple((" ".join(t.split())[:37], t) if isinstance(t, str) else tuple(t) for t in each),
        "kinds": frozenset,
        "computed": lambda name: getattr(computed, name),
    }
    return Family(**{name: changes[name](value) if name in changes else value for name, value in own.items()})


def _families() -> Iterator[Family]:
    for kind, entries in tomllib.loads(resources.files(__package__).joinpath("hacks.toml").read_text("utf-8")).items():
        yield from (_family(kind, entry) for entry in entries)


FAMILIES = (
    *_families(),
    *(
        Family(
            name=name,
            why=why,
            texts=tuple(programs.items()),
            kinds=frozenset({"program"}),
            is_placed=True,
            max_questions=1,  # some take the whole time limit
        )
        for name, (why, programs) in HOSTILE.items()
    ),
)


def make_hacks(
    targets: Sequence[Target],
    forms: Mapping[str, Form],
    *,
    words: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
) -> list[Hack]:
    """Make all hacks, in the order of the families, each text once per question; no text that is honest and right.

    Families with `is_placed` write in the forms in turn; without a form they make nothing.

    Args:
        words: what stands for places in hostile programs (`programs.places`).
        left_out: names of families.
    """
    found: dict[tuple[int, str], Hack] = {}
    for family in FAMILIES:
        for place, target in asked(family, targets) if family.name not in left_out else ():
            for name, text in _texts(family, target, forms, place, words or {}):
                if text not in honest_texts(target):
                    found.setdefault((place, text), Hack(family=family, name=name, target=target, text=text))
    return list(found.values())


def asked(family: Family, targets: Sequence[Target]) -> list[tuple[int, Target]]:
    """The questions that a family is tried on, with their places: evenly spread, those with a number first."""
    found = [(place, target) for place, target in enumerate(targets) if family.is_for(target)]
    if family.max_questions is None or len(found) <= family.max_questions:
        return found
    found.sort(key=lambda pair: pair[1].kind != "number")
    return [found[i * len(found) // family.max_questions] for i in range(family.max_questions)]


def honest_texts(target: Target) -> dict[str, str]:
    """The right answer in every form: text -> form."""
    return {written(form, target.answer): form for form in FORMS}


def _texts(
    family: Family, target: Target, forms: Mapping[str, Form], place: int, words: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    if family.is_placed and family.knows_answer and target.kind == "empty":
        return
    words = {**words, "NAME": target.function, "ANSWER": target.answer}
    for number, (name, text) in enumerate(family.make(target)):
        text = program(text, words) if family.name in HOSTILE else text
        if not family.is_placed:
            yield name, text
        elif forms:
            form = list(forms)[(number + place) % len(forms)]
            yield f"{name} ({form})", filled(forms[form], text)


def _is_right(target: Target, text: str) -> bool:
    """Whether one of its words is the right answer."""
    words = text.split()
    return any(target.is_answer(word.strip(".?!,:;=\"'")) for word in words)
