import pytest

from podsrl.tasks.answers import boxed_answer, gsm8k_answer, plain_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5}", "5"),
        (r"so it is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\boxed{\left\{ x \mid \sqrt{x^{2}} = {1} \right\}} holds", r"\left\{ x \mid \sqrt{x^{2}} = {1} \right\}"),
        (r"\boxed{\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
        (r"\boxed{1 \\}", r"1 \\"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\fbox{12}", "12"),
        (r"\boxed {7}", "7"),
        ("\\boxed{\n  7\n}", "7"),
        (r"$\boxed 5$", "5"),
        (r"$\boxed 12.$ and more", "12"),
        (r"$x = \boxed \frac{1}{2}$", r"\frac{1}{2}"),
        (r"\boxed 5 is it", "5"),
        (r"$\boxed-3$", "-3"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\fbox{1} then \boxed{2}", "2"),
        (r"\boxed{1} then \fbox{2}", "2"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"done: \boxed{4}. Or \boxed{5", "4"),
        (r"\boxed{6} \boxed{}", "6"),
        (r"\boxed{5", None),
        (r"\boxed{}", None),
        (r"\boxed", None),
        (r"\boxedanswer{5}", None),
        ("no box", None),
        ("", None),
    ],
)
def test_the_last_box_is_the_answer(text: str, answer: str | None) -> None:
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("48/2 = <<48/2=24>>24\n#### 72", "72"),
        ("#### 1,234", "1234"),
        ("####109,200,000", "109200000"),
        ("#### -7", "-7"),
        ("#### -1,000\n", "-1000"),
        ("#### 2.50", "2.5"),
        ("#### $1,080", "1080"),
        ("#### 3 \n#### 4", "4"),
        ("#### 12,34", None),
        ("#### 1234,567", None),
        ("#### seven", None),
        ("#### 7 eggs", None),
        ("#### ", None),
        ("72", None),
    ],
)
def test_the_number_after_the_mark_is_the_answer(text: str, answer: str | None) -> None:
    assert gsm8k_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("145.0", "145"),
        ("100", "100"),
        ("100.00", "100"),
        ("0.10", "0.1"),
        ("0", "0"),
        ("1.", None),
        ("1e5", None),
        ("nan", None),
    ],
)
def test_a_number_is_written_plainly(text: str, number: str | None) -> None:
    assert plain_number(text) == number
