import pytest

from loops import each
from podsrl.tasks.answers import gsm8k_answer, plain_number


@each(
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
