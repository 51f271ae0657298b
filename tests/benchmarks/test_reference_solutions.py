"""`python -m benchmarks reference-solutions`: on rows written here, and on all published ones."""

import json
import os
from pathlib import Path

import pytest

from benchmarks import reference_solutions


def test_failures_and_coincidences_are_told_apart(tmp_path: Path) -> None:
    solutions = {
        "gsm8k/train": [{"answer": "2 * 600 = 1,200\n#### 1,200"}, {"answer": "#### 1200"}, {"answer": "no answer"}],
        "math/train": [{"solution": r"so \boxed{x = 5}"}, {"solution": r"so \boxed{5}"}],
        "math/test": [{"solution": r"so \boxed{7}", "answer": "8"}],
    }
    for name, rows in solutions.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(map(json.dumps, rows)))
    by_reward = reference_solutions.measure(tmp_path)["rewards"]
    assert by_reward["boxed_correct"]["sets"]["math"] == by_reward["math_correct"]["sets"]["math"]
    found = by_reward["math_correct"]["sets"]
    assert (found["gsm8k"]["num_rows"], found["gsm8k"]["num_correct"]) == (3, 2)
    [failure] = found["gsm8k"]["failures"]
    assert failure["id"] == "gsm8k/train/2" and "cannot be parsed" in failure["reason"]
    assert found["gsm8k"]["num_correct_by_the_next_answer"] == 1  # 1,200 is 1200
    assert found["gsm8k"]["of_these_not_the_same_string"] == []
    assert found["math"]["failures"] == [{"id": "math/test/0", "answer": "8", "reason": "judged as wrong"}]
    assert found["math"]["of_these_not_the_same_string"] == [["x = 5", "5"]]


TWO_ANSWERS = [f"math/train/{i}" for i in (376, 2434, 2446, 4379)]
"""Solutions that end with two boxes side by side, of which the reference answer has the second alone."""


@pytest.mark.parametrize("reward", ["math_correct", "boxed_correct"])
def test_every_reference_solution_is_right_and_no_neighbour_s_answer_is(
    reward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "PODS_DATA" not in os.environ:
        pytest.skip("PODS_DATA is not set: a folder with gsm8k/ and math/ as JSON lines")
    monkeypatch.setattr(reference_solutions, "REWARDS", (reward,))
    found = reference_solutions.measure(Path(os.environ["PODS_DATA"]))["rewards"][reward]["sets"]
    assert (found["gsm8k"]["num_rows"], found["gsm8k"]["failures"]) == (7473, [])
    of_two = TWO_ANSWERS if reward == "math_correct" else []
    assert found["math"]["num_rows"] == 5000 and [failure["id"] for failure in found["math"]["failures"]] == of_two
    assert found["gsm8k"]["of_these_not_the_same_string"] == []
    assert found["math"]["of_these_not_the_same_string"] == [["-1", "x = -1"], ["5", "x=5"]]
    assert found["gsm8k"]["num_invalid_by_the_next_answer"] == found["math"]["num_invalid_by_the_next_answer"] == 0
