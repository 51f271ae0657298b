import itertools
import threading
from fractions import Fraction

import pytest
from math_verify import LatexExtractionConfig, parse, verify

from loops import each
from pace import assert_at_most
from podsrl.score.rewards.algebra import is_bomb, is_equal, number_of
from podsrl.score.rewards.answers import is_correct


@each(
    ("candidate", "answer"),
    [
        ("18", "18"),
        (r"\$18", "18"),
        ("18 dollars", "18"),
        ("18.0", "18"),
        ("1,234", "1234"),
        ("1234", "1,234"),
        (r"\frac12", "0.5"),
        (r"\dfrac{1}{2}", "1/2"),
        ("2/4", r"\frac{1}{2}"),
        ("0.333333", r"\frac{1}{3}"),
        (r"90^\circ", "90"),
        ("90", r"90^{\circ}"),
        (r"50\%", "50"),
        ("50", r"50\%"),
        ("0.5", r"50\%"),
        (r"12.5\%", "0.125"),
        (r"5\text{ cm}", "5"),
        ("5", r"5 \mbox{ inches}^2"),
        (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt 2}{2}"),
        ("1+x^2", "x^2+1"),
        ("(x+1)^2", "x^2+2x+1"),
        ("x=3", "3"),
        ("3", "x=3"),
        ("2+2", "4"),
        ("(1,2)", "(1, 2)"),
        ("[1, 2)", "[1,2)"),
        ("[1,2]", r"1 \le x \le 2"),
        ("2, 1", "1,2"),
        ("-3, 3", r"\pm 3"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("Evelyn", r"\text{Evelyn}"),
        ("(C)", r"\text{C}"),
        ("6 - 5i", "6-5i"),
        (r"\left(3, \frac{\pi}{2}\right)", r"(3,\pi/2)"),
    ],
    few=4,
)
def test_equal_answers_are_the_same(candidate: str, answer: str) -> None:
    assert is_equal(candidate, answer)


@each(
    ("candidate", "answer"),
    [
        ("", "1"),
        ("   ", "1"),
        ("19", "18"),
        ("-18", "18"),
        ("0.33", r"\frac{1}{3}"),
        ("(1,2]", "[1,2)"),
        ("x^2-1", "x^2+1"),
        ("seat", r"\text{east}"),
        ("listen", "silent"),
        ("Odd", r"\text{even}"),
        ("2/0", "2"),
        (r"\infty", "3"),
        ("x", "2"),
        (r"x \neq 2", "2"),
        (r"x \ge 2", "2"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("20", r"\text{June 20}"),
    ],
    few=8,
)
def test_different_answers_are_not(candidate: str, answer: str) -> None:
    assert not is_equal(candidate, answer)


@each(
    "listing",
    [
        "1, 2, 3, 4, 5, 6",
        "1 2 3 6",
        "6 7",
        "6 or 7",
        r"6 \text{ or } 7",
        r"6 \text{ and } 7",
        "6; 7",
        r"6 \lor 7",
        r"6\\7",
        r"\{5, 6, 7\}",
        "x = 6, x = 7",
        "$5$, $6$",
        r"1\quad 6",
        r"6 \pm 1",
        r"\begin{cases}5\\6\end{cases}",
        r"\mathbb{R}",
        r"(-\infty, \infty)",
        "5 < x < 7",
        "6 = 7",
    ],
)
def test_a_list_of_answers_does_not_collect_the_reward_of_one(listing: str) -> None:
    assert not is_equal(listing, "6")


@pytest.mark.parametrize("factors", ["6 7", r"6\ 7", r"6\text{ }7", "$6$ $7$"])
def test_a_row_of_numbers_is_not_their_product(factors: str) -> None:
    assert not is_equal(factors, "42")
    assert not is_equal(factors, "67")


def test_one_of_the_reference_s_answers_is_not_enough() -> None:
    assert not is_equal("1", "1, 2")
    assert not is_equal("3", r"\pm 3")
    assert is_equal("1 and 2", "1, 2")


@pytest.mark.parametrize("answer", ["", " ", "$$"])
def test_a_reference_without_content_is_an_error(answer: str) -> None:
    with pytest.raises(
        ValueError, match=r"the reference answer '.*' cannot be parsed: it is empty; wanted a number, LaTeX or text"
    ):
        is_equal("7", answer)


def test_the_verdict_is_the_same_in_a_thread_where_signals_do_not_work() -> None:
    cases = [("1+x^2", "x^2+1"), (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"), ("x", "x+1")]
    found: list[bool] = []
    judge = threading.Thread(target=lambda: found.extend(is_equal(*case) for case in cases))
    judge.start()
    judge.join()
    assert found == [is_equal(*case) for case in cases] == [True, True, False]


def test_the_quick_way_for_written_numbers_says_what_math_verify_says() -> None:
    forms = ["0", "1", "-1", "2", "0.5", ".5", "-0.5", "1/2", r"\frac12", r"-\frac{1}{2}", r"\frac{2}{4}", "3.5", "7/2"]
    forms += [
        r"3\frac12",
        "0.333333",
        "1/3",
        "0.3333",
        "50",
        r"50\%",
        "0.50",
        "100",
        r"100\%",
        "1,234",
        "1234",
        "1234.0",
    ]
    boxed = LatexExtractionConfig(boxed_match_priority=0)
    parsed = {form: parse(f"\\boxed{{{form}}}", extraction_config=(boxed,), parsing_timeout=None) for form in forms}
    for one, other in itertools.product(forms, forms):
        expected = verify(parsed[one], parsed[other], timeout_seconds=None)
        assert is_equal(other, one) is bool(expected), (one, other)


@each(
    "expression",
    [
        "9^{9^{9^9}}",
        "9^9^9",
        "9**9**9",
        "99999!",
        "((9!)!)!",
        "3!!",
        "x^{99999}",
        "(x+1)^{3000}",
        "(a+b+c+d+e+f+g+h)^{20}",
        "(((9^{99})^{99})^{99})^{99}",
        r"\sum_{n=1}^{10} n",
        r"\int_0^1 x dx",
        r"\binom{99999}{5}",
        r"\binom{10^9}{5}",
        r"\sqrt{" * 20 + "2" + "}" * 20,
        "+".join(["x"] * 100),
        "9" * 50,
        "1+" * 500,
        " / ".join("7" * 20),
    ],
)
def test_a_bomb_is_unequal_at_once(expression: str) -> None:
    assert is_bomb(expression)
    assert not is_equal(expression, "x+2")
    assert_at_most(100, lambda: is_equal(expression, "x+2"), lambda: is_equal("(x+1)^2", "x^2+2x+1"))


@pytest.mark.parametrize(
    "answer", ["2^{2005}", r"\frac{1}{2004!}", "(x-5)(x^2-4x+7)", "x^8+x^7+x", r"7z^{96}(4z+1)", "5!"]
)
def test_answers_of_published_sets_are_no_bombs(answer: str) -> None:
    assert not is_bomb(answer)


def test_a_reference_without_letters_has_a_value() -> None:
    assert number_of("10^{4}") == (10_000, True) and number_of(r"\frac{1}{3}+\frac13") == (Fraction(2, 3), True)
    assert number_of("x+1") is None and number_of("9^{9^9}") is None
    found = number_of(r"2\sqrt{3}")
    assert found is not None and not found[1] and abs(found[0] ** 2 - 12) < Fraction(1, 10**30)


def test_a_decimal_is_left_out_where_it_is_the_value_rounded_or_cut() -> None:
    decimals = ("7.07", "7.08", "7.0710678", "7", "8", "0")
    judged = [is_correct(rf"\boxed{{5\sqrt{{2}} \approx {decimal}}}", r"5\sqrt{2}") for decimal in decimals]
    assert judged == [True, False, True, True, False, False]


def test_only_inequalities_are_joined_to_a_union() -> None:
    union = r"(-\infty,2)\cup(3,\infty)"
    assert is_correct(r"\boxed{x < 2 \text{ or } x > 3}", union)
    assert not any(is_correct(rf"\boxed{{{text}}}", union) for text in ("x < 2 or y", "x < 2, x > 3", "x < 3 or x > 2"))
