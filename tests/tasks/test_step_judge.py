"""Single steps of answers: each style, each possible mistake, and texts that no model should write."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from podsrl.errors import UsageError
from podsrl.tasks.step_judge import first_wrong, judge_steps, read_story
from podsrl.tasks.steps import LEVELS, ORDINALS, draw_story
from podsrl.tasks.steps_solutions import STYLES, read_rightly, solution

QUESTION = "Ann has 47 pens. First she finds 5. Second she sells 3. In tens, are five or more left over?\n"


def judged(answer: str) -> list[bool]:
    return [step.is_right for step in judge_steps(QUESTION, answer)]


def test_a_question_is_read_back() -> None:
    rng = np.random.default_rng(0)
    for level in [*LEVELS] * 50:
        told = draw_story(level, rng)
        assert read_story(told.question) == told


@pytest.mark.parametrize("style", STYLES)
def test_right_solutions_are_right_in_every_style_and_form(style: str) -> None:
    rng = np.random.default_rng(1)
    for level, is_stated in itertools.product(LEVELS, (True, False)):
        told = draw_story(level, rng)
        steps = judge_steps(told.question, solution(told, read_rightly(told), style=style, is_stated=is_stated))
        num_sentences = len(told.words) * (2 if style == "checked" else 1) + (told.in_tens) + 1
        assert len(steps) == num_sentences and all(step.is_right for step in steps)


def test_of_all_readings_the_first_wrong_step_is_that_of_the_first_verb_that_was_misread() -> None:
    told = draw_story(2, np.random.default_rng(2))
    right = read_rightly(told)
    for signs in itertools.product((1, -1, 0), repeat=len(right)):
        answer = solution(told, signs)
        wrong = [place for place, (sign, wanted) in enumerate(zip(signs, right, strict=True)) if sign != wanted]
        start = first_wrong(told.question, answer)
        if not wrong:
            assert start is None
        else:
            assert start is not None and answer[start:].startswith(f"{ORDINALS[wrong[0]]} ")


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("First 47+5=52. Second 52-3=49. 9 over. Answer: 1.", [True] * 4),
        ("First 47+5=52. Second 52-3=49. 9 over. So it is 1.", [True] * 4),
        ("First 47+5=53. Second 52-3=49. 9 over. Answer: 1.", [False, True, True, True]),
        ("First 47+5=52. Second 52+3=55. 5 over. Answer: 1.", [True, False, False, True]),
        ("Second 52-3=49. First 47+5=52. 9 over. Answer: 1.", [False, False, True, True]),
        ("Second 47-3=44. First 44+5=49. 9 over. Answer: 1.", [False, False, True, True]),
        ("Answer: 1.", [False]),
        ("First 47+5=52. 2 over. Answer: 1.", [True, False, False]),
        ("First 47+5=52. Second 52-3=49. Answer: 1.", [True, True, True]),
        ("First 47+5=52. Second 52-3=49. 9 over. Answer: 0.", [True, True, True, False]),
        ("First 47+5=52. Second 52-3=49. 8 over. Answer: 1.", [True, True, False, True]),
        ("First 47+5=52. Second 52-3=49. 9 over. Answer: 1. Answer: 1.", [True] * 4 + [False]),
        ("First 47+5=52. Second 52-3=49. Second 49-3=46. Answer: 1.", [True, True, False, False]),
        ("First 47+5=52. Check: 52-5=47. Second 52-3=49.", [True, True, True]),
        ("Check: 52-5=47. First 47+5=52.", [False, True]),
        ("First 47+5=52. Check: 52-5=48.", [True, False]),
        ("First she finds 5: 47+5=52. Second she sells 3 pens, so Ann has 52-3=49 pens.", [True, True]),
        ("First she finds 6: 47+5=52.", [False]),
        ("First 47+5=52. Second 52-3=4", [True, False]),
        ("First 47+5=52. Well.", [True, False]),
        ("", []),
        (" \n ", []),
        ("...", [False] * 3),
        ("First 47+5=52. Answer: 1", [True, False]),
    ],
)
def test_each_kind_of_mistake_is_found_where_it_is(answer: str, wanted: list[bool]) -> None:
    assert judged(answer) == wanted


def test_steps_cover_the_answer_but_for_white_space() -> None:
    answer = "  First 47+5=52.\n Second 52+3=55. 5 over.Answer: 1. and so"
    steps = judge_steps(QUESTION, answer)
    assert [answer[step.start : step.end] for step in steps] == [
        "First 47+5=52.",
        "Second 52+3=55.",
        "5 over.",
        "Answer: 1.",
        "and so",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "First 47+5=" + "9" * 6000 + ".",
        "First ٤٧+٥=٥٢.",
        "First 47+5=52\x00.",
        "+" * 50_000,
        "1+1=" * 20_000,
        "." * 20_000,
        "\ud800.",
        "FIRST 47+5=52.",
        "First  47+5=52.",
    ],
)
def test_hostile_texts_are_wrong_steps_and_end(answer: str) -> None:
    assert not any(judged(answer))


@pytest.mark.parametrize(
    "question",
    [
        "",
        "What is 47 + 85?\n",
        QUESTION.strip(),
        QUESTION + QUESTION,
        QUESTION.replace("finds", "flies"),
        QUESTION.replace("Second", "Third"),
        QUESTION.replace("finds 5", "First 55"),
        QUESTION.replace("47", "4" * 5000),
        QUESTION.replace("5", "٥"),
        "Ann has 47 pens. " + "First she finds 5. " * 9 + "In tens, are five or more left over?\n",
        "Ann has 47 pens. How many pens are left?\n",
        "Ann has 47 pens. First she finds 5. How many cups are left?\n",
    ],
)
def test_other_questions_are_refused_with_one_line(question: str) -> None:
    with pytest.raises(UsageError, match="is no question of the task set 'steps'") as caught:
        judge_steps(question, "First 47+5=52.")
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)
