import pytest

from podsrl.score import EXTRACTORS, REWARDS
from podsrl.score.correctness import boxed_answer, boxed_correct, math_answer, math_correct
from podsrl.types import Task

HALF = Task(id="half", prompt="1/4 + 1/4 =", answer="1/2")


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
    assert math_correct(HALF, text) == by_any
    assert boxed_correct(HALF, text) == by_box


@pytest.mark.parametrize(
    ("text", "in_tags_first", "boxed_first"),
    [
        ("<answer>18 dollars</answer>", "18", "18"),
        (r"\boxed{7} <answer>8</answer>", "8", "7"),
        (r"<answer>\boxed{\frac{2}{4}}</answer>", "1/2", "1/2"),
        (r"\boxed{1,234.50}", "2469/2", "2469/2"),
        ("It costs $18.", "18", "18"),
        (r"\boxed{\text{Evelyn}}", "evelyn", "evelyn"),
        (r"\boxed{50\%}", "50%", "50%"),
        ("<answer></answer>", None, None),
        ("I give up.", None, None),
    ],
)
def test_answers_for_votes_are_written_in_one_way(
    text: str, in_tags_first: str | None, boxed_first: str | None
) -> None:
    assert math_answer(text) == in_tags_first
    assert boxed_answer(text) == boxed_first


def test_votes_on_stated_answers_count_only_well_formed_ones() -> None:
    stated = EXTRACTORS["correct"]
    assert stated("7+5=12 Answer: -12.\n") == "-12"
    assert stated("Answer: 12") is None
    assert stated("Answer: 11. Answer: 12.") is None


def test_votes_exist_only_for_known_rewards() -> None:
    assert EXTRACTORS.keys() < REWARDS.keys()
