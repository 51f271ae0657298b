import pytest

from podsrl.score.tags import strict_format, tag_count, tag_share, think_format
from podsrl.types import Task

TASK = Task(id="1+2", prompt="1+2=", answer="3")
BLOCK = "<think>1+2</think><answer>3</answer>"
LINES = "<think>\n1+2\n</think>\n<answer>\n3\n</answer>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (BLOCK, 1.0),
        (f"\n{BLOCK} \n", 1.0),
        (LINES, 1.0),
        ("<think>1 < 2\n</think> <answer></answer>", 1.0),
        ("<think>1+2</think>  <answer>3</answer>", 0.0),
        (BLOCK + "!", 0.99),
        ("So: " + BLOCK, 0.96),
        ("So: " + BLOCK + " ok", 0.93),
        (BLOCK + "x" * 30, 0.7),
        (BLOCK + "x" * 100, 0.0),
        (BLOCK + "x" * 1000, 0.0),
        ("<think><think>1</think><answer>3</answer>", 0.93),
        ("<think>1</think><think>2</think><answer>3</answer>", 0.84),
        ("<think>1<answer>2</answer></think><answer>3</answer>", 0.0),
        ("<answer>3</answer><think>1</think>", 0.0),
        ("<think>1+2<answer>3</answer>", 0.0),
        ("3", 0.0),
        ("", 0.0),
    ],
)
def test_think_format_takes_a_hundredth_for_each_character_outside_the_block(text: str, value: float) -> None:
    assert think_format(TASK, text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (BLOCK, 1.0),
        (BLOCK + "<think>", 0.75),
        (BLOCK + BLOCK, 0.0),
        ("</answer></think>", 0.5),
        ("<think>", 0.25),
        ("< think >", 0.0),
        ("", 0.0),
    ],
)
def test_tag_count_gives_a_quarter_for_each_tag_that_occurs_once(text: str, value: float) -> None:
    assert tag_count(TASK, text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (LINES, 1.0),
        (LINES + "\n", 1.0),
        (BLOCK, 0.0),
        (LINES + " ok", 0.0),
        (LINES.replace("1+2", "1\n+\n2"), 1.0),
        (LINES.replace("1+2", "<think>"), 0.0),
        ("", 0.0),
    ],
)
def test_strict_format_wants_each_tag_on_its_own_line(text: str, value: float) -> None:
    assert strict_format(TASK, text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (LINES, 1.0),
        (BLOCK, 0.0),
        (LINES + LINES, 0.0),
        ("<think>\n1+2\n</think>\n<answer>3</answer>", 0.5),
        ("1+2\n</think>\n<answer>\n3\n</answer>", 0.75),
    ],
)
def test_tag_share_gives_a_quarter_for_each_tag_with_its_line_breaks(text: str, value: float) -> None:
    assert tag_share(TASK, text) == value
