"""The rule for answers, on the tables of answer_cases/: one answer in tags each, the reference beside it."""

import json
from functools import partial
from pathlib import Path

import pytest

from loops import each
from pace import assert_at_most
from podsrl.lib.boxed import boxes
from podsrl.score import EARNED, EXTRACTORS, REWARDS
from podsrl.score.rewards.algebra import equals_by_algebra, is_bomb, is_equal
from podsrl.score.rewards.answers import MAX_CHARACTERS, math_correct, voted_answer
from podsrl.score.rewards.canonical import canonical
from podsrl.score.rewards.extract import find_answer
from podsrl.score.rewards.reading import read_value
from podsrl.types import Task

CASES = Path(__file__).parent / "answer_cases"
COUNTED = "How many eggs, apples, cookies, meals, pens, students, positive divisors or dollars of profit are there?"
EIGHTEEN = Task(id="a", prompt=COUNTED, answer="18")


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def in_tags(row: dict[str, str]) -> float:
    task = Task(id="a", prompt=row.get("question", COUNTED), answer=row["answer"])
    return math_correct(task, f"<think>Step by step.</think> <answer>{row['text']}</answer>")


@each("row", rows("right"), few=18)
def test_a_right_answer_is_right_in_any_honest_form(row: dict[str, str]) -> None:
    assert in_tags(row) == 1.0


@each("row", rows("wrong"), few=38)
def test_what_is_no_single_computed_answer_pays_nothing(row: dict[str, str]) -> None:
    assert in_tags(row) == 0.0


@each("row", rows("broken_tags"))
def test_a_right_answer_in_broken_tags_is_found(row: dict[str, str]) -> None:
    assert math_correct(EIGHTEEN, row["text"]) == 1.0
    wrong = Task(id="a", prompt=COUNTED, answer="17")
    assert math_correct(wrong, row["text"]) == 0.0


@each(
    ("text", "piece"),
    [
        (r"<think>\boxed{17}</think> <answer>18</answer> 16", "18"),
        (r"\boxed{17} <answer>18</answer> 16", "18"),
        (r"<answer>17 \boxed{18}</answer> 16", "18"),
        (r"<think>\boxed{17}</think> \boxed{18} 16", "18"),
        (r"<think>\boxed{17}</think> 18", "18"),
        (r"\boxed{17} and then \boxed{18}", "18"),
        ("<think>17</think> There were 16. It is 18.", "It is 18."),
        ("It is 16. It is 18.", "It is 16. , It is 18."),
        ("Answer: 17\nSo it is.\nAnswer: 18", "17 , 18"),
        ("x^2 + 1\nx^2-1", "x^2 + 1 , x^2-1"),
        ("Carla\nEvelyn", "Carla , Evelyn"),
        ("2x = 6\nx = 3", "x = 3"),
        ("1. 18", "18"),
        ("The answer is 18. I hope it is correct.", "The answer is 18."),
        ("18\n18\n18", "18"),
        ("<think><answer>17</answer></think> <answer>18", "18"),
        ("<answer>17</answer> <answer>18", "17"),
        ("<answer>17</answer> <answer>18</answer>", "17 , 18"),
        (r"\boxed{17} \boxed{18}", "17 , 18"),
        (r"<answer>\boxed{17}, \boxed{18}</answer>", "17 , 18"),
        ("17\n18", "17 , 18"),
        ("#### 17\n#### 18", "17 , 18"),
        ("18<|im_end|>\n<|im_start|>assistant\n17", "18"),
        ("<think>18</think>", None),
        ("<think>\\boxed{17}, \\boxed{18} </think>\n", "17 , 18"),
        (r"<think>\boxed{17} so \boxed{18} </think>", "18"),
        ("<answer>18</answer>" * 7 + "<answer>18</ans", "18"),
        ("<answer>17</answer>" + "<answer>18</answer>" * 7, "17 , 18"),
        (r"\boxed{17} and $\boxed{18}$.", "17 , 18"),
        (r"\boxed{18} or \boxed{18.0}", "18.0"),
        ("It is 18. This is the answer.", "It is 18."),
        ("<answer></answer>", None),
        ("", None),
    ],
)
def test_one_piece_counts_by_a_fixed_order(text: str, piece: str | None) -> None:
    assert find_answer(text) == piece


@each(
    ("text", "is_right"),
    [
        (r"The answer is not \boxed{18}.", False),
        (r"Not $\boxed{18}$", False),
        (r"\boxed{18} is wrong.", False),
        (r"\boxed{18} or \boxed{17}", False),
        (r"\boxed{18}?", False),
        (r"<answer>17 or \boxed{18}</answer>", False),
        (r"<answer>at least \boxed{18}</answer>", False),
        (r"It needs at least $\boxed{18}$ eggs.", True),
        (r"Its roots are $x \approx \boxed{18}$.", True),
        (r"The square root $\boxed{18}$", True),
        (r"It is hardly $\boxed{18}$", False),
        (r"So it is clearly $\boxed{18}$.", True),
        (r"At least $\boxed{18}$ eggs are left.", True),
        (r"It can be $\boxed{18}$, as the last line says.", True),
        (r"It is $\boxed{17}$ and $\boxed{18}$.", False),
        ("He has 18 eggs more than Mr. Everest.\n#### 18", True),
        ("He ate all of them in 5\ndays.\n#### 18", True),
        (r"<answer>up to \boxed{18}</answer>", False),
        (r"\boxed{17 \boxed{18}}", False),
        (r"\boxed{\boxed{18}}", True),
        (r"\boxed{\text{18}}", True),
        (r"\fbox{18}", True),
        (r"\boxed 18", True),
        (r"\boxed{18", True),
    ],
)
def test_words_right_beside_a_box_belong_to_it(text: str, is_right: bool) -> None:
    assert math_correct(EIGHTEEN, text) == float(is_right)


@pytest.mark.parametrize(
    ("prompt", "text", "answer", "is_right"),
    [
        ("What percent of 200 is 50?", "25%", "25", True),
        ("What is the percentage?", r"25\%", "25", True),
        ("How many % are that?", "25 percent", "25", True),
        ("What is 20% of 90?", "18%", "18", False),
        ("What is 20 percent of 90?", "18%", "18", False),
        (r"What is 20\% of 90?", "18%", "18", False),
        ("How many?", "18%", "18", False),
        ("What percent?", "1800%", "18", False),
        ("What percent?", "0.25", r"25\%", False),
        ("How many dozens?", "2 dozen", "2", True),
        ("How many eggs?", "2 dozen", "2", False),
    ],
)
def test_a_percent_sign_belongs_where_the_reference_or_the_question_has_one(
    prompt: str, text: str, answer: str, is_right: bool
) -> None:
    task = Task(id="a", prompt=prompt, answer=answer)
    assert math_correct(task, f"<answer>{text}</answer>") == float(is_right)
    chat = Task(id="a", prompt=({"role": "user", "content": prompt},), answer=answer)
    assert math_correct(chat, f"<answer>{text}</answer>") == float(is_right)


@pytest.mark.parametrize("answer", ["36/2", "16 or 18", "9 * 2", "not 18", "18!", r"\max(1, 18)", r"2\sqrt{81}", "9+9"])
def test_a_reference_s_own_form_is_right_whatever_it_is(answer: str) -> None:
    assert math_correct(Task(id="a", prompt="", answer=answer), rf"\boxed{{{answer}}}") == 1.0


def test_a_piece_beyond_any_answer_s_length_must_be_the_reference_letter_by_letter() -> None:
    long = "1+" * MAX_CHARACTERS + "1"
    assert math_correct(Task(id="a", prompt="", answer=long), f"<answer>{long}</answer>") == 1.0
    assert math_correct(Task(id="a", prompt="", answer="2001"), f"<answer>{long}</answer>") == 0.0


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        ("<answer>18 dollars</answer>", "18"),
        (r"\boxed{7} <answer>8</answer>", "8"),
        (r"<answer>\boxed{\frac{2}{4}}</answer>", "1/2"),
        (r"\boxed{1,234.50}", "2469/2"),
        ("It costs $18.", "18"),
        (r"\boxed{\text{Evelyn}}", "evelyn"),
        (r"\boxed{50\%}", "50%"),
        ("<answer></answer>", None),
        ("", None),
    ],
)
def test_votes_are_written_in_one_way(text: str, vote: str | None) -> None:
    assert voted_answer(text) == vote


def test_all_votes_on_mathematics_follow_the_one_rule() -> None:
    assert EXTRACTORS.keys() < REWARDS.keys()
    assert {EXTRACTORS[name] for name in ("math_correct", "any_correct", "boxed_correct")} == {voted_answer}


HOSTILE = [
    "\\boxed{", "<answer>", "</answer>", "<think>", "</think>", "<think><answer>", "1,234", "123,", "9", "- ", "7 / ",
    "\\frac", "\\frac{1}", "{", "}", "(", "x^", "2^", "a ", "is ", "or ", "=", "1 = 1 ", "18 is ", "\n", "18\n", "$",
    "~", "Answer: 18\n", "\\text{", "^{", "!", "%", "+x", "1 000 ", "0.", "\u200b", "**", "# ", "</",
    "</think>\n<answer>\n", "\n</answer>", "and 1 ", "1.2.3.", "aa-bb'", "word/word.", "\\\\", "\\boxed{1} ",
    "\\boxed 1 ", " ", "\x00", "<|a|>",
]  # fmt: skip
NUM_CHARACTERS = 100_000


@each("unit", HOSTILE)
def test_hostile_characters_take_time_in_proportion_to_their_number(unit: str) -> None:
    """Eight times as many take eight times as long, were it by their square 64; what an honest answer costs is free."""
    text, honest = unit * (NUM_CHARACTERS // len(unit) + 1), partial(math_correct, EIGHTEEN, "1 + 17 = 18")
    functions = [  # but for those that run the text as a program
        lambda text, reward=reward: reward(EIGHTEEN, text)
        for name, reward in REWARDS.items()
        if name != EARNED and "code" not in name
    ]
    functions += [find_answer, voted_answer, boxes, canonical, is_bomb]
    functions += [lambda text: is_equal(text, "18"), lambda text: equals_by_algebra(text, "x^2")]
    for function in functions:
        for form in ("{}", "<answer>{}</answer>", "\\boxed{{{}}}"):
            few, many = (form.format(text[:size]) for size in (NUM_CHARACTERS // 8, NUM_CHARACTERS))
            assert_at_most(24, partial(function, many), lambda f=function, few=few: (f(few), honest()))


@each("unit", HOSTILE, few=7)
def test_an_answer_of_the_longest_length_that_is_looked_into_is_read_at_once(unit: str) -> None:
    text = (unit * MAX_CHARACTERS)[:MAX_CHARACTERS]
    for answer in ("18", "x^2+2x+1", "(1,2)"):
        task = Task(id="a", prompt="", answer=answer)
        for read in (partial(read_value, text), partial(math_correct, task, f"<answer>{text[:900]}</answer>")):
            assert_at_most(100, read, lambda: is_equal("(x+1)^2", "x^2+2x+1"))
