from fractions import Fraction

import pytest

from podsrl.score.canonical import Number, canonical, read_number, read_quantity


@pytest.mark.parametrize(
    ("text", "value", "is_decimal", "is_percent"),
    [
        ("7", Fraction(7), False, False),
        ("-7", Fraction(-7), False, False),
        ("−7", Fraction(-7), False, False),
        ("- 7", Fraction(-7), False, False),
        ("+7", Fraction(7), False, False),
        ("1,234.50", Fraction(2469, 2), True, False),
        ("10{,}000", Fraction(10_000), False, False),
        (r"10,\!000", Fraction(10_000), False, False),
        ("10 000", Fraction(10_000), False, False),
        (".5", Fraction(1, 2), True, False),
        ("3/4", Fraction(3, 4), False, False),
        ("-3 / 4", Fraction(-3, 4), False, False),
        (r"\frac12", Fraction(1, 2), False, False),
        (r"\dfrac{1}{2}", Fraction(1, 2), False, False),
        (r"-\tfrac{1}{2}", Fraction(-1, 2), False, False),
        (r"\frac{-1}{2}", Fraction(-1, 2), False, False),
        (r"3\frac{1}{2}", Fraction(7, 2), False, False),
        (r"-3\frac12", Fraction(-7, 2), False, False),
        ("-3 1/2", Fraction(-7, 2), False, False),
        (r"50\%", Fraction(50), False, True),
        ("12.5 %", Fraction(25, 2), True, True),
        (r"\$18", Fraction(18), False, False),
        ("$18$", Fraction(18), False, False),
        (r"90^\circ", Fraction(90), False, False),
        (r"90^{\circ}", Fraction(90), False, False),
        (r"\text{7}.", Fraction(7), False, False),
    ],
)
def test_written_numbers_are_read_exactly(text: str, value: Fraction, is_decimal: bool, is_percent: bool) -> None:
    assert read_number(text) == Number(value, is_decimal, is_percent)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2+2",
        "1 2",
        "1,23",
        "1/0",
        r"\frac{1}{0}",
        "1/2/3",
        "2 5/3",
        "1.5 1/2",
        "2^3",
        "3!",
        r"\sqrt{2}",
        "1, 2",
        "1e5",
        "--1",
    ],
)
def test_what_is_no_written_number_is_none(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18 dollars", 18),
        (r"5 \text{ cm}^2", 5),
        ("5 km/h", 5),
        ("**18** dollars.", 18),
        ("The answer is 18.", 18),
        ("a 5-door", None),
        ("18 or 19", None),
        ("3 x", None),
        ("2(3) apples", None),
        ("-(5) apples", None),
        ("n = 5", None),
        (r"5\pi", None),
        ("five", None),
    ],
)
def test_a_quantity_is_one_number_among_words(text: str, value: int | None) -> None:
    found = read_quantity(text, with_words_before=True)
    assert (None if found is None else found.value) == value


def test_words_before_a_number_may_be_refused() -> None:
    assert read_quantity("June 20", with_words_before=False) is None
    assert read_quantity("20 apples", with_words_before=False) == Number(Fraction(20), False, False)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0.50", "1/2"),
        (r"\frac{2}{4}", "1/2"),
        ("012", "12"),
        ("50.0%", "50%"),
        (r"\text{(C)}", "C"),
        ("(c)", "c"),
        ("Evelyn.", "evelyn"),
        (r"\left( 1,\, \dfrac12 \right)", r"(1,\frac{1}{2})"),
        ("x ^ 2", "x^2"),
        ("3 4", "3 4"),
        ("34", "34"),
        ("  ", ""),
    ],
)
def test_most_equal_answers_are_written_in_one_way(text: str, written: str) -> None:
    assert canonical(text) == written


def test_an_endless_answer_is_left_as_it_stands() -> None:
    assert canonical(" " + "9" * 5000) == "9" * 5000
