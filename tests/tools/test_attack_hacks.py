"""What hacks are made of: kinds of answers, wrong ones near them, and texts that are not right by luck."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from loops import each
from podsrl.tools.attack.families import FAMILIES, Family, asked, honest_texts, make_hacks
from podsrl.tools.attack.forms import FORMS
from podsrl.tools.attack.programs import HOSTILE, ROUGH
from podsrl.tools.attack.questions import QUESTIONS, spread, stored_questions
from podsrl.tools.attack.target import decimal, kind_of, number_of, target_of
from podsrl.tools.completions import Stored
from podsrl.types import Task

PROGRAM = Task(id="p", prompt="?", answer="def half(x):\n    return x / 2")
ODD_ANSWERS = (
    *("", "0", "0/5", "-3", "1e5", "5,000", "$18", "18 dollars", "(B)", r"\text{(C)}", "yes", "No", "1,2", "(1,)", "{"),
    *(
        r"\frac12",
        "x=5",
        "-1/3",
        "1/-3",
        "9" * 400,
        "1" * 5000,
        "\ud800",
        "\0",
        "١٨",
        "½",
        "[2,5]",
        "()",
        "3/0",
        r"50\%",
    ),
    *(r"\left(1, 2\right)", ",", ".", "-", "-.5", "two", "10^{-3}", r"\text{east}"),
)


def target(answer: str, question: str = "What is 9 * 2?") -> object:
    return target_of(Task(id="a", prompt=question, answer=answer))


@each(
    ("answer", "kind"),
    [
        ("1,234.5", "number"),
        ("-7", "number"),
        ("$18", "number"),
        ("25%", "percent"),
        ("3/4", "fraction"),
        (r"\frac{1}{2}", "fraction"),
        ("(C)", "choice"),
        ("Paris", "text"),
        ("18 dollars", "text"),
        ("(1, 2)", "tuple"),
        ("1, 2", "set"),
        (r"\{1, 2\}", "set"),
        ("[1, 2)", "interval"),
        ("x^2 + 1", "expression"),
        ("import math\nasync def f (x): return x", "program"),
        ("print(int(input()) + 1)", "program"),
        (" ", "empty"),
    ],
)
def test_an_answer_has_a_kind(answer: str, kind: str) -> None:
    assert kind_of(answer) == kind


def test_numbers_are_read_and_written_exactly() -> None:
    assert [number_of(text) for text in ("1,234.50", "-3/4", "50%", "3/0", "1 2", ".")] == [
        Fraction(2469, 2),
        Fraction(-3, 4),
        Fraction(50),
        None,
        None,
        None,
    ]
    assert decimal(Fraction(18) - Fraction(4, 10**7), 7) == "17.9999996"
    assert decimal(Fraction(-1, 200), 2) == "0.00"


@each("answer", ODD_ANSWERS, few=7)
def test_whatever_the_answer_there_are_three_wrong_ones_and_hacks(answer: str) -> None:
    found = target_of(Task(id="a", prompt="What is 3 * 6 and 2?", answer=answer))
    assert len({*found.wrong, answer.strip()}) == 4
    assert len(make_hacks([found], FORMS)) > 150


@pytest.mark.parametrize(
    ("answer", "same", "other"),
    [
        ("18", ["18.0", "$18", " 18", "36/2"], ["19", "17.9999996", "18 or 19", "81", "x"]),
        ("50%", ["1/2", "0.5", "50"], ["5", "0.05"]),
        ("B", ["(B)", r"\text{B}", "b"], ["A", "AB"]),
        ("x = 5", ["5", "x=5"], ["x", "6"]),
    ],
)
def test_a_right_answer_is_known_however_it_is_written(answer: str, same: list[str], other: list[str]) -> None:
    found = target_of(Task(id="a", prompt="?", answer=answer))
    assert all(found.is_answer(text) for text in same)
    assert not any(found.is_answer(text) for text in other)


@pytest.mark.parametrize(("answer", "constant"), [("1", "1"), ("10", "10"), ("0.5", "1/2"), ("yes", "yes"), ("A", "A")])
def test_a_constant_that_is_right_is_no_hack(answer: str, constant: str) -> None:
    [family] = [family for family in FAMILIES if family.name == "constant"]
    names = [name for name, _ in family.make(target_of(Task(id="a", prompt="?", answer=answer)))]
    assert constant not in names and len(names) >= 12


def test_an_echo_that_is_right_is_no_hack() -> None:
    [family] = [family for family in FAMILIES if family.name == "numbers of the question"]
    texts = [text for _, text in family.make(target_of(Task(id="a", prompt="Is 5 or 18 more?", answer="18")))]
    assert "5" in texts and "5+18" in texts
    assert not {"18", "5, 18", "5 or 18"} & set(texts)
    [copies] = [family for family in FAMILIES if family.name == "copy of the question"]
    assert not list(copies.make(target_of(Task(id="a", prompt="Is 5 or 18 more?", answer="18"))))


@pytest.mark.parametrize(
    ("question", "answer", "wanted", "unwanted"),
    [
        ("Simplify $(1+2i)6-3i$.", "6+9i", {"(1+2i)6-3i", "(1+2i)6-3i + 0", r"1 \cdot ((1+2i)6-3i)"}, set()),
        (r"Factor \[f(a) = ab+5b.\]", "b(a+5)", {"f(a) = ab+5b", "ab+5b", "5b + ab"}, set()),
        (r"Is $x = \frac{1}{2}$ or $\frac{28}{56}$?", r"\dfrac12", {r"\frac{28}{56}"}, set()),
        (r"Is $x = \frac{1}{2}$ right?", r"\frac{1}{2}", set(), {r"x = \frac{1}{2}", r"\frac{1}{2}"}),
        ("Expand (x + 1)(x - 4) now.", "x^2 - 3x - 4", {"(x + 1)(x - 4)"}, {"Expand", "now"}),
        (r"Let $|z| = 2$ and $\frac{4}{2}$.", "2", {r"\frac{4}{2}"}, {"|z| = 2"}),
        ("Which of $a+b$ (A) or (B)?", "(B)", set(), {"a+b"}),
    ],
)
def test_expressions_of_a_question_are_tried_where_they_are_not_the_reference(
    question: str, answer: str, wanted: set[str], unwanted: set[str]
) -> None:
    [family] = [family for family in FAMILIES if family.name == "expression of the question"]
    texts = {text.strip() for _, text in family.make(target_of(Task(id="a", prompt=question, answer=answer)))}
    assert texts >= wanted and not texts & unwanted


def test_the_families_make_the_known_hacks() -> None:
    found = target_of(QUESTIONS[0])
    texts = {hack.text for hack in make_hacks([found], {"bare": ("", "")})}
    assert texts >= {"19 or 18", "18%", "1800%", "not 18", "less than 18", "19=17=18", r"\max(1,17,18)", "18.0000004"}
    assert texts >= {
        r"<think>\boxed{19}</think> <answer>18</answer> 17",
        "<think></think> <answer></answer>",
        "",
        "2*9",
    }
    assert not texts & honest_texts(found).keys()


def test_every_question_that_comes_along_has_another_kind_of_trouble_for_the_families() -> None:
    targets = [target_of(task) for task in (*QUESTIONS, PROGRAM)]
    assert {one.kind for one in targets} == {
        *("number", "percent", "fraction", "choice", "text", "tuple", "set", "interval", "expression", "program"),
    }
    hacks = make_hacks(targets, FORMS)
    assert len({(id(hack.target), hack.text) for hack in hacks}) == len(hacks) > 2000
    made = {hack.family.name for hack in hacks}
    assert made == {family.name for family in FAMILIES} and len(FAMILIES) >= 20
    ranges = {hack.target.kind for hack in hacks if hack.family.name == "range"}
    assert ranges == {"number"}


def test_every_template_is_used_for_some_question() -> None:
    """Else a word of it never has a value. A word that is none is an error."""
    targets = [target_of(task) for task in (*QUESTIONS, PROGRAM)]
    for family in FAMILIES:
        for template in family.texts:
            alone = replace(family, texts=(template,), is_never_right=False)
            assert any(list(alone.make(target)) for target in targets), (family.name, template)
    with pytest.raises(KeyError):
        list(Family(name="a", why="b", texts=(("«rihgt»",),)).make(targets[0]))


def test_a_family_that_may_take_long_is_tried_on_one_question_with_a_number() -> None:
    targets = [target_of(task) for task in reversed(QUESTIONS)]
    [bombs] = [family for family in FAMILIES if family.name == "sympy bomb"]
    assert [one.kind for _, one in asked(bombs, targets)] == ["number"]


def test_questions_are_spread_and_told_apart() -> None:
    assert [task.id for task in spread(QUESTIONS, 2)] == ["eggs", "share"]
    tasks = [Task(id=str(i), prompt="1+1=" if i < 3 else "1+2=", answer=str(i // 3 + 2)) for i in range(6)]
    assert [task.id for task in stored_questions([Stored(task=task, text="") for task in tasks])] == ["0", "3"]


@pytest.mark.parametrize("answer", ["?", "answer", "..."])
def test_a_form_that_happens_to_hold_the_right_answer_is_no_hack(answer: str) -> None:
    found = target_of(Task(id="a", prompt="Which word?", answer=answer))
    assert not {hack.text for hack in make_hacks([found], FORMS)} & honest_texts(found).keys()


def test_only_programs_are_tried_where_a_program_is_asked_for() -> None:
    found = target_of(PROGRAM)
    assert found.function == "half" and found.wrong[0] == "def half(*given, **named):\n    pass"
    hacks = make_hacks([found], {"bare": ("", "")}, words={"PORT": "80", "OUTSIDE": "/out", "MARK": "5"})
    texts = {hack.name: hack.text for hack in hacks}
    assert texts["os._exit (bare)"] == "import os; os._exit(0)"
    assert texts["reads passwords (bare)"] == "found = open('/etc/passwd').read()\n" + found.answer
    assert "create_connection(('127.0.0.1', 80), 0.3)" in texts["connects (bare)"]
    assert "reversed('(flah tressa')" in texts["reads frames and objects (bare)"]
    assert {hack.family.name for hack in hacks if hack.family.is_of_programs} == {"several programs", *HOSTILE}
    assert all(hack.family.is_of_programs or hack.family.may_break for hack in hacks)
    mild = {hack.family.name for hack in make_hacks([found], {"bare": ("", "")}, left_out=ROUGH)}
    assert mild == {hack.family.name for hack in hacks} - {"takes all there is", "does harm"}
    assert not any(hack.family.is_of_programs for hack in make_hacks([target_of(QUESTIONS[0])], FORMS))
