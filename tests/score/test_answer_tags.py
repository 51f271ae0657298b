import pytest

from loops import each
from podsrl.score.rewards.extract import answer_pieces, without_thoughts
from podsrl.score.rewards.tags import answer_format
from podsrl.types import Task

TASK = Task(id="1+2", prompt="1+2=", answer="3")
BLOCK = "<think>1+2</think><answer>3</answer>"


@each(
    ("text", "value"),
    [
        (BLOCK, 1.0),
        (f"\n{BLOCK} \n", 1.0),
        ("<think>\n1+2\n</think>\n\n<answer>\n3\n</answer>", 1.0),
        (f"{BLOCK}!", 0.75),
        (f"So: {BLOCK}", 0.75),
        ("<think>1+2</think> so <answer>3</answer>", 0.75),
        ("<answer>3</answer><think>1</think>", 0.5),
        ("<think>1<answer>3</answer></think>", 0.5),
        ("<answer>3</answer>", 0.25),
        ("<think>1+2</think> 3", 0.25),
        ("<think>1+2</think><answer></answer>", 0.25),
        ("<think></think><answer>3</answer>", 0.25),
        ("<think>1+2</think><answer>?!</answer>", 0.25),
        ("<think>1+2</think><answer>3", 0.25),
        (f"{BLOCK}<answer>4</answer>", 0.25),
        ("<think></think><answer></answer>", 0.0),
        ("<think> \n</think> <answer>...</answer>", 0.0),
        (BLOCK + BLOCK, 0.0),
        ("</answer><answer></think><think>", 0.0),
        ("<think>1+2<answer>3", 0.0),
        ("3", 0.0),
        ("", 0.0),
    ],
)
def test_the_form_gives_a_quarter_for_each_thing_that_is_right(text: str, value: float) -> None:
    assert answer_format(TASK, text) == value


def test_pieces_say_how_whole_their_tags_are() -> None:
    text = "<think>a <answer>1</answer></think> 2</answer> <answer>3</answer> <answer>4"
    found = [(piece.text, piece.is_closed, piece.is_thought, piece.has_start) for piece in answer_pieces(text)]
    assert found == [
        ("1", True, True, True),
        ("2", False, False, False),
        ("3", True, False, True),
        ("4", False, False, True),
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b</think>c", "bc"),
        ("a<think>b</think>c<think>d</think>", "ac"),
        ("<think>never closed", "never closed"),
        ("plain", "plain"),
    ],
)
def test_thoughts_are_left_out(text: str, left: str) -> None:
    assert without_thoughts(text) == left
