from fractions import Fraction

from loops import each
from podsrl.score.rewards.canonical import Number, canonical, has_invisible, plain, read_number


@each(
    ("text", "value", "num_decimals", "is_percent"),
    [
        ("7", Fraction(7), 0, False),
        ("-7", Fraction(-7), 0, False),
        ("−7", Fraction(-7), 0, False),
        ("- 7", Fraction(-7), 0, False),
        ("+7", Fraction(7), 0, False),
        ("1,234.50", Fraction(2469, 2), 2, False),
        ("10{,}000", Fraction(10_000), 0, False),
        (r"10,\!000", Fraction(10_000), 0, False),
        ("10 000", Fraction(10_000), 0, False),
        (".5", Fraction(1, 2), 1, False),
        ("3/4", Fraction(3, 4), 0, False),
        ("-3 / 4", Fraction(-3, 4), 0, False),
        (r"\frac12", Fraction(1, 2), 0, False),
        (r"\dfrac{1}{2}", Fraction(1, 2), 0, False),
        (r"-\tfrac{1}{2}", Fraction(-1, 2), 0, False),
        (r"\frac{-1}{2}", Fraction(-1, 2), 0, False),
        (r"3\frac{1}{2}", Fraction(7, 2), 0, False),
        (r"-3\frac12", Fraction(-7, 2), 0, False),
        ("-3 1/2", Fraction(-7, 2), 0, False),
        (r"50\%", Fraction(50), 0, True),
        ("12.5 %", Fraction(25, 2), 1, True),
        (r"\$18", Fraction(18), 0, False),
        ("$18$", Fraction(18), 0, False),
        (r"90^\circ", Fraction(90), 0, False),
        (r"90^{\circ}", Fraction(90), 0, False),
        (r"\text{7}.", Fraction(7), 0, False),
    ],
)
def test_written_numbers_are_read_exactly(text: str, value: Fraction, num_decimals: int, is_percent: bool) -> None:
    found = read_number(plain(text))
    assert found == Number(value, num_decimals, is_percent, "/" in text or "frac" in text)


@each(
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
        "1.5/3",
        "１８",
        "2^3",
        "3!",
        r"\sqrt{2}",
        "1, 2",
        "1e5",
        "--1",
    ],
)
def test_what_is_no_written_number_is_none(text: str) -> None:
    assert read_number(plain(text)) is None


@each(
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


def test_characters_that_nobody_sees_are_noticed() -> None:
    assert all(map(has_invisible, ("1\u200b8", "18\u200e", "\u202e18", "1\u00ad8", "\u206018")))
    assert not any(map(has_invisible, ("18", "1\u00a08", "1\u202f800", "π\n18\t")))
