"""`pods check-reward --attack`, and one file from `pods eval` over `pods check-reward` to `pods report`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podsrl.tools.completions import read_completions

Pods = Callable[..., tuple[int, str, str]]
OWN = r"""
def contains(task, text): return float(task.answer in text)
def strict(task, text):
    return float(text == f"<think>I work it out step by step.</think> <answer>{task.answer}</answer>")
def by_level(prompts, completions, level): return [float(one == "bare") for one in completions]
def never(task, text): return 0.0
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "command_rewards.py").write_text(OWN)
    yield
    sys.modules.pop("command_rewards", None)


def test_hacks_that_pay_are_printed_kept_and_judged_again(pods: Pods, tmp_path: Path) -> None:
    attack = ("check-reward", "--attack", "--num-questions", "2", "--workers", "1")
    code, printed, said = pods(*attack, "--reward", "command_rewards:contains", "-o", "hacks.jsonl")
    assert code == 1
    assert "several answers" in printed and "'19 or 18'" not in said and "must not, because it names several" in printed
    hacks = read_completions(tmp_path / "hacks.jsonl")
    assert len(hacks) > 100 and {one.label for one in hacks} == {False}
    first, *lines = printed.splitlines()
    assert f"'command_rewards:contains' rewards {len(hacks)} of" in first.replace(",", "")
    rows = [line.split("│") for line in lines if line.startswith("│")]
    assert rows and all(row[4].strip() != "·" or row[5].strip() != "·" for row in rows)
    assert sum(line.startswith("pays: ") for line in lines) == 3
    again = ("check-reward", "hacks.jsonl", "--workers", "1", "--json", "--reward")
    [found] = json.loads(pods(*again, "command_rewards:contains")[1])["rewards"]
    assert (found["num_rows"], found["agreement"]["accuracy"]) == (len(hacks), 0.0)
    [found] = json.loads(pods(*again, "command_rewards:strict")[1])["rewards"]
    assert found["agreement"]["accuracy"] == 1.0


def test_a_strict_reward_holds_and_ends_with_0(pods: Pods) -> None:
    code, printed, said = pods(
        *("check-reward", "--attack", "--reward", "command_rewards:strict", "--num-questions", "3", "--json")
    )
    result = json.loads(printed)
    assert (code, result["num_questions"]) == (0, 3)
    [found] = result["rewards"]
    assert (found["nature"], found["paid"], found["escaped"]) == ("correctness", [], [])
    assert found["honest"] == {"form": "tags", "right": 1.0, "wrong": 0.0}
    names = {"family", "why", "knows_answer", "num_tried", "num_paid", "num_escaped"}
    assert all(family.keys() == names for family in found["families"])
    assert "'command_rewards:strict' rewarded none of" in said


def test_all_shows_the_families_that_hold_too(pods: Pods) -> None:
    attack = (
        "check-reward",
        "--attack",
        "--reward",
        "command_rewards:strict",
        "--num-questions",
        "1",
        "--workers",
        "1",
    )
    code, printed, _ = pods(*attack)
    assert code == 0 and "│" not in printed and printed.startswith("'command_rewards:strict' rewarded none of")
    code, printed, _ = pods(*attack, "--all")
    assert code == 0 and len([line for line in printed.splitlines() if line.startswith("│")]) > 20


def test_a_reward_that_pays_nothing_honest_ends_with_1_and_says_so(pods: Pods) -> None:
    code, printed, _ = pods("check-reward", "--attack", "--reward", "command_rewards:never", "--num-questions", "1")
    assert code == 1
    assert "nothing can be said" in printed.splitlines()[0]
    assert "rewards no honest answer to 1 of 1 questions" in printed


def test_questions_come_from_a_file_a_config_or_a_task_set(pods: Pods, tmp_path: Path) -> None:
    rows = [{"prompt": f"{i // 2}+1=", "completion": "x", "answer": i // 2 + 1} for i in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own.toml").write_text('[task]\nnum_eval = 5\nrewards = { "command_rewards:strict" = 1 }\n')
    strict = ("--reward", "command_rewards:strict")
    attack = ("check-reward", "--attack", "--json", "--workers", "1")
    for arguments, num_questions in (
        (("rows.jsonl", *strict), 3),
        (("rows.jsonl", *strict, "--num-questions", "2"), 2),
        (("--config", "own.toml"), 5),
        (("--task", "arithmetic", *strict), 14),
        (strict, 14),
    ):
        code, printed, _ = pods(*attack, *arguments)
        assert (code, json.loads(printed)["num_questions"]) == (0, num_questions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attack"], "wants either --reward NAME=WEIGHT"),
        (["--reward", "correct"], "wants a FILE of completions, or --attack to make some"),
        (["a.jsonl", "--reward", "correct", "--task", "gsm8k"], "--task: read with --attack only"),
        (["a.jsonl", "--reward", "correct", "-o", "x", "--num-questions", "2"], "--num-questions and --out: read with"),
        (["a.jsonl", "--attack", "--reward", "correct", "--task", "gsm8k"], "both name questions: keep one"),
        (["--attack", "--reward", "correct", "--correct", "correct"], "--correct: names what is compared"),
        (["--attack", "--reward", "corect"], "'corect'"),
        (["--attack", "--reward", "correct", "--out", "nowhere/x"], "--out nowhere/x: wanted a file in a folder"),
        (["--attack", "--reward", "correct", "--task", "jsonl"], "task.path is not set"),
        (
            ["--attack", "--reward", "correct", "--task", "gsm9k"],
            "task.name = 'gsm9k' is no task set. Did you mean 'gsm8k'?",
        ),
        (["--attack", "--reward", "command_rewards:by_level"], "needs ['level'], but task 'eggs' has none"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(pods: Pods, arguments: list[str], message: str) -> None:
    code, printed, said = pods("check-reward", *arguments)
    assert (code, printed) == (2, "")
    assert f"error: {message.split(';')[0]}"[7:] in said and said.strip().splitlines()[-1].startswith("error: ")


def test_one_file_goes_from_eval_over_check_reward_to_report(pods: Pods, tmp_path: Path) -> None:
    """The three commands that docs/rewards.md shows."""
    code, _, _ = pods("eval", "pods", "--num-questions", "5", "--samples", "3", "-o", "answers.jsonl")
    assert code == 0
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 15 and {line["sample"] for line in lines} == {0, 1, 2}
    code, printed, _ = pods("check-reward", "answers.jsonl", "--config", "pods", "--workers", "1", "--json")
    correct, form = json.loads(printed)["rewards"]
    assert (code, correct["num_rows"], correct["name"], form["name"]) == (0, 15, "correct", "format")
    assert (correct["agreement"]["num_labels"], correct["agreement"]["accuracy"]) == (15, 1.0)
    assert correct["mean"] == pytest.approx(sum(line["is_correct"] for line in lines) / 15)
    assert form["mean"] == pytest.approx(sum(line["is_formatted"] for line in lines) / 15)
    code, printed, _ = pods("report", "answers.jsonl")
    assert (code, printed.strip()) == (0, "answers.html")
    page = (tmp_path / "answers.html").read_text()
    assert page.count('<details class="group"') == 5 and all(line["completion"] in page for line in lines)
    code, _, said = pods("report", "answers.jsonl", "answers.jsonl")
    assert code == 2 and "wanted folders of runs, or one file alone" in said
