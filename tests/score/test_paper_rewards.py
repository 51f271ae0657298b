"""The rewards of the paper: values worked out by hand, and the forms against the published patterns as they stand."""

import random
import re

import pytest

from podsrl.score.rewards.paper import any_correct, boxed_correct, strict_format, tag_count, tag_share, think_format
from podsrl.types import Task

TASK = Task(id="half", prompt="1/4 + 1/4 =", answer="1/2")
BLOCK = "<think>1+2</think><answer>3</answer>"
LINES = "<think>\n1+2\n</think>\n<answer>\n3\n</answer>"
TOKENS = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "\n",
    " ",
    "a",
    "\n</think>\n<answer>\n",
    "<think>\n",
    "\n</answer>",
)


@pytest.mark.parametrize(
    ("text", "by_any", "by_box"),
    [
        (r"\boxed{0.5}", 1.0, 1.0),
        (r"\boxed{7} <answer>0.5</answer> 8", 1.0, 0.0),
        (r"\boxed{7} <answer>8</answer> 0.5", 1.0, 0.0),
        ("<answer>8</answer> 0.5", 1.0, 0.0),
        ("<answer>0.5</answer> 8", 1.0, 1.0),
        ("So 0.5", 1.0, 1.0),
        (r"\boxed{7} <answer>8</answer> 9", 0.0, 0.0),
        ("0.5 or 7", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_one_reward_tries_three_pieces_and_the_other_one(text: str, by_any: float, by_box: float) -> None:
    assert any_correct(TASK, text) == by_any
    assert boxed_correct(TASK, text) == by_box


def test_the_forms_are_the_published_patterns() -> None:
    draw = random.Random(0)
    num_matched = [0, 0]
    for _ in range(20_000):
        text = "".join(draw.choices(TOKENS, k=draw.randint(0, 9)))
        if draw.random() < 0.5:
            text = "<think>\n" + text
        loose = re.search(r"<think>.*</think>[ \n]?<answer>.*</answer>", text, flags=re.DOTALL)
        expected = 0.0 if loose is None else max(0.0, 1 - 0.01 * (len(text) - len(loose[0])))
        assert think_format(TASK, text) == pytest.approx(expected), text
        strict = re.match(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", text, re.DOTALL | re.MULTILINE)
        assert strict_format(TASK, text) == float(strict is not None), text
        num_matched[0] += loose is not None
        num_matched[1] += strict is not None
    assert min(num_matched) > 100
    outside = [think_format(TASK, text) for text in (BLOCK + "!", "So: " + BLOCK, BLOCK + "x" * 100, "3")]
    assert outside == pytest.approx([0.99, 0.96, 0.0, 0.0])


@pytest.mark.parametrize(
    ("text", "value"),
    [(BLOCK, 1.0), (BLOCK + "<think>", 0.75), (BLOCK + BLOCK, 0.0), ("</answer></think>", 0.5), ("< think >", 0.0)],
)
def test_tag_count_gives_a_quarter_for_each_tag_that_occurs_once(text: str, value: float) -> None:
    assert tag_count(TASK, text) == value


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
