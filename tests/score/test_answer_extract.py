import time

import pytest

from podsrl.score.extract import answer_content, boxed_content, final_answer, last_number, numbers_in


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{1} and \boxed{ 2 }", "2"),
        (r"\fbox{3}", "3"),
        (r"\boxed{1}, no: \fbox{3}", "3"),
        (r"\fbox{3}, no: \boxed{1}", "1"),
        (r"\boxed{\frac{1}{\sqrt{2}}} and }", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a \} b} c", r"a \} b"),
        (r"\boxed 7.", "7"),
        (r"\boxed\pi$", r"\pi"),
        (r"\boxed {12}", "12"),
        (r"\boxed{}", ""),
        (r"\boxed{7", None),
        (r"\boxed", None),
        ("7", None),
        ("", None),
    ],
)
def test_the_last_box_counts_with_its_braces_balanced(text: str, content: str | None) -> None:
    assert boxed_content(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>7</answer>", "7"),
        ("<answer>7</answer> <answer>\n8\n</answer>", "8"),
        ("<answer>7</answer> <answer>8", "7"),
        ("</answer><answer>7", None),
        ("<answer><answer>7</answer>", "7"),
        ("7", None),
    ],
)
def test_the_last_closed_answer_tag_counts(text: str, content: str | None) -> None:
    assert answer_content(text) == content


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("10 - 3 = 7", ["10", "3", "7"]),
        ("is -3, (-4), $-5, -$6, 7-8", ["-3", "-4", "$-5", "-$6", "7", "8"]),
        ("1,234 and 1,234,567.89, then 12,34", ["1,234", "1,234,567.89", "12", "34"]),
        ("half .5, 3.14.", [".5", "3.14"]),
        (r"\frac12, \dfrac{-1}{2}, 3\frac{1}{2}, 3/4", [r"\frac12", r"\dfrac{-1}{2}", r"3\frac{1}{2}", "3/4"]),
        ("3 1/2 hours, 3, 1/2, 3 12", ["3 1/2", "3", "1/2", "3", "12"]),
        (r"50%, 50 \%, \$18", ["50%", r"50 \%", r"\$18"]),
        ("x^2 + y_1", []),
        ("#### 1,234", ["1,234"]),
        ("no number", []),
    ],
)
def test_numbers_are_found_as_they_are_written(text: str, numbers: list[str]) -> None:
    assert numbers_in(text) == numbers


def test_the_last_number_may_stand_anywhere() -> None:
    assert last_number("It is 7" + " and so on" * 100) == "7"
    assert last_number("12" + "3" * 300) == "12" + "3" * 300  # longer than the tail that is looked at first
    assert last_number("none") is None


def test_a_box_goes_before_a_tag_and_a_tag_before_a_number() -> None:
    assert final_answer(r"\boxed{1} <answer>2</answer> 3") == "1"
    assert final_answer("<answer>2</answer> 3") == "2"
    assert final_answer("3 it is") == "3"
    assert final_answer("I do not know") is None


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 20_000,
        "\\boxed{" + "{" * 50_000 + "}" * 50_000,
        "<answer>" * 20_000,
        "1,234" * 20_000,
        "123," * 30_000,
        "9" * 100_000,
        "- " * 50_000,
        "7 / " * 30_000,
        "\\frac" * 20_000,
    ],
)
def test_a_text_made_to_be_slow_is_not(text: str) -> None:
    start = time.process_time()
    final_answer(text)
    assert time.process_time() - start < 1.0
