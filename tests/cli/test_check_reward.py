"""`pods check-reward`: what it finds out about a reward before a run depends on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.tools.check_reward import NUM_SHOWN, check_rewards
from podsrl.tools.completions import read_completions

HALF = r"\frac{1}{2}"
ROWS: list[dict[str, Any]] = [
    {"question": "1+2=", "completion": "<think>x</think><answer>3</answer>", "answer": 3, "label": True},
    {"question": "1+2=", "completion": "It is 4.", "answer": 3, "label": False},
    {"question": "half", "completion": r"\boxed{0.5}", "answer": HALF, "label": 1},
    {"question": "half", "completion": "one half", "answer": HALF, "label": 1},
    {"question": "half", "completion": "3", "answer": HALF, "label": None},
]
OWN = """
import itertools, os, time

print("imported")

counter = itertools.count()

def constant(task, text): return 0.5
def nothing(task, text): return None
def words(task, text): return "high"
def picky(task, text): return 1 / text.count("a")
def slow(task, text):
    time.sleep(30 if "half" in text else 0)
    return 1.0
def counting(task, text): return next(counter)
def short(completions): return [1.0]
def lengths(completions, level): return [len(text) * number for text, number in zip(completions, level)]
def tokens(completion_ids): return [float(len(ids)) for ids in completion_ids]
def clock(completions): return [time.perf_counter()] * len(completions)
def hangs(completions):
    time.sleep(30)
    return [1.0] * len(completions)
def exits(completions): os._exit(3)
def noisy(completions):
    print("by Python")
    os.write(1, b"by native code")
    return [float(len(text)) for text in completions]
"""
Run = Callable[..., tuple[int, Any, str]]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "checked_rewards.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("checked_rewards", None)


@pytest.fixture
def pods(pods: Callable[..., tuple[int, str, str]], folder: Path) -> Run:
    """Exit code, what was printed as JSON, and what was said besides."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        code, out, err = pods("check-reward", *arguments, "--workers", "1")
        return code, json.loads(out) if "--json" in arguments and out else out, err

    return run


def test_a_sound_reward_is_measured_and_compared_with_the_labels(pods: Run) -> None:
    code, found, _ = pods("rows.jsonl", "--reward", "math_correct", "--reward", "think_format=0.1", "--json")
    assert (code, found["problems"]) == (0, [])
    correct, form = found["rewards"]
    assert (correct["mean"], correct["num_distinct"], correct["num_rows"]) == (0.4, 2, 5)
    assert (correct["weight"], form["weight"], form["mean"]) == (1.0, 0.1, 0.2)
    assert (correct["num_invalid"], correct["num_changed"], correct["warnings"]) == ({}, 0, [])
    times = correct["milliseconds"]
    assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
    agreement = correct["agreement"]
    assert (agreement["num_labels"], agreement["accuracy"]) == (4, 0.75)
    assert (agreement["precision"], agreement["recall"]) == (1.0, pytest.approx(2 / 3))
    [different] = agreement["disagreements"]
    assert (different["where"], different["label"], different["value"]) == ("rows.jsonl:4", True, 0.0)
    assert form["agreement"] is None


def test_the_table_names_every_reward_and_shows_where_labels_differ(pods: Run) -> None:
    code, printed, _ = pods("rows.jsonl", "--reward", "math_correct=1", "--all")
    assert code == 0
    first, *lines = printed.splitlines()
    assert len([line for line in lines if line.startswith("│")]) == 12 and "distinct values" in printed
    assert (
        "would not fail" in first
        and "'math_correct' agrees with 75.0% of 4 labels (precision 100.0%, recall 66.7%)" in first
    )
    assert "rows.jsonl:4: label correct, reward 0" in printed and "ends 'one half'" in printed


def test_the_short_table_has_what_is_wrong_and_a_failing_run_is_said_first(pods: Run) -> None:
    _, printed, said = pods("rows.jsonl", "--reward", "checked_rewards:counting")
    titles = [line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│")]
    assert titles == ["mean", "distinct values", "ms: median", "invalid", "changed when repeated"]
    code, printed, said = pods("rows.jsonl", "--reward", "checked_rewards:nothing")
    assert code == 1 and "would not fail" not in printed and said.startswith("a run would fail:")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nothing", "reward 'checked_rewards:nothing': no completion got a value, so nothing could be trained on"),
        (
            "nothing",
            "first: reward 'checked_rewards:nothing' returned None, on '<think>x</think><answer>3</answer>': it",
        ),
        ("words", "returned 'high' (str), not a number; wanted a number for each completion"),
        ("short", "reward 'checked_rewards:short' returned a list of 1; wanted a list of 5 numbers"),
        ("lengths", "reward 'checked_rewards:lengths' needs ['level'], but task 'rows.jsonl:1' has none"),
    ],
)
def test_what_would_end_a_run_ends_with_1_and_says_why(pods: Run, name: str, problem: str) -> None:
    code, found, said = pods("rows.jsonl", "--reward", f"checked_rewards:{name}", "--json")
    assert code == 1
    [told] = found["problems"]
    assert problem in told
    assert "a run would fail:" in said and problem.split(";")[0] in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("constant", "gave every completion the same value"),
        ("picky", "of 5 completions would be invalid; first: reward 'checked_rewards:picky' raised ZeroDivisionError"),
        ("counting", "the second time for 4 completions"),
        ("clock", "the second time for 5 completions"),
        ("tokens", "reads completion_ids, which stored completions lack"),
    ],
)
def test_what_should_be_looked_at_is_a_warning(pods: Run, name: str, warning: str) -> None:
    code, found, _ = pods("rows.jsonl", "--reward", f"checked_rewards:{name}", "--json")
    assert code == 0
    assert any(warning in text for text in found["rewards"][0]["warnings"])


def test_a_reward_that_hangs_is_counted_and_its_row_judged_wrong(pods: Run) -> None:
    _, found, _ = pods("rows.jsonl", "--reward", "checked_rewards:slow", "--timeout", "0.3", "--json")
    [slow] = found["rewards"]
    assert slow["num_invalid"] == {"timeout": 1}
    assert slow["first_reason"] == "reward 'checked_rewards:slow' took longer than 0.3 s and was stopped"
    assert slow["agreement"]["recall"] == pytest.approx(2 / 3)
    assert slow["milliseconds"]["max"] >= 300


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [("hangs", "timeout", "took longer than 0.5 s and was stopped"), ("exits", "died", "died (exit code 3)")],
)
def test_a_call_of_trl_s_form_that_comes_to_no_end_spoils_its_rows_and_not_the_command(
    pods: Run, folder: Path, name: str, kind: str, reason: str
) -> None:
    reward = f"checked_rewards:{name}"
    (folder / "own.toml").write_text(
        f'[task]\ncorrect = "{reward}"\nrewards = {{ "{reward}" = 1 }}\nbatch_timeout_seconds = 0.5\n'
    )
    code, found, _ = pods("rows.jsonl", "--config", "own.toml", "--json")
    [check] = found["rewards"]
    assert (code, check["form"], check["num_invalid"]) == (1, "batch", {kind: len(ROWS)})
    assert reason in check["first_reason"] and "no completion got a value" in found["problems"][0]


def test_what_a_reward_prints_is_no_part_of_the_result(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stored = read_completions(folder / "rows.jsonl")
    [check] = check_rewards({"checked_rewards:noisy": 1.0}, None, stored)
    said = capfd.readouterr()
    assert (check.problems, check.warnings, check.num_distinct, said.out) == ([], [], 4, "")
    assert "imported" in said.err and "by Python" in said.err and "by native code" in said.err


def test_what_a_known_reward_cannot_judge_within_the_limit_is_shown_as_wrong(
    pods: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "checked_rewards:slow"
    for module in ("workers.dispatcher", "panel"):
        monkeypatch.setattr(f"podsrl.score.{module}.SLOW", frozenset({name}))
    (folder / "own.toml").write_text(
        f'[task]\ncorrect = "{name}"\nrewards = {{ "{name}" = 1 }}\nreward_timeout_seconds = 0.3\n'
    )
    write(folder / "short.jsonl", [*ROWS[:2], ROWS[3]])
    code, found, _ = pods("short.jsonl", "--config", "own.toml", "--json")
    [check] = found["rewards"]
    assert (code, check["num_stopped"], check["num_invalid"], check["num_changed"]) == (0, 1, {}, 0)
    assert check["mean"] == pytest.approx(2 / 3)
    [warning] = check["warnings"]
    assert warning.startswith("1 of 3 completions were stopped at the limit and counted as wrong; first: ")
    assert "took longer than 0.3 s" in warning


def test_columns_reach_functions_of_the_batch_form(folder: Path) -> None:
    stored = read_completions(write(folder / "levels.jsonl", [{**row, "level": 2} for row in ROWS]))
    [check] = check_rewards({"checked_rewards:lengths": 1.0}, None, stored)
    assert (check.form, check.broken, check.agreement) == ("batch", None, None)
    assert check.mean == pytest.approx(sum(2 * len(row["completion"]) for row in ROWS) / len(ROWS))


def test_at_most_five_disagreements_are_shown_and_all_counted(folder: Path) -> None:
    stored = read_completions(write(folder / "many.jsonl", [{**ROWS[1], "label": True}] * 9))
    [check] = check_rewards({"boxed_correct": 1.0}, "boxed_correct", stored, num_workers=1)
    assert check.agreement is not None
    assert (check.agreement.num_disagreements, len(check.agreement.disagreements)) == (9, NUM_SHOWN)
    assert (check.agreement.precision, check.agreement.recall) == (None, 0.0)


def test_a_run_s_recorded_groups_are_read_with_its_own_verdicts_as_labels(folder: Path) -> None:
    of_all = {"reward": 0.0, "parts": {}, "num_tokens": 3, "finish_reason": "stop"}
    of_all |= {"kept": True, "drop_reason": None, "advantage": 0.0}
    rollouts = [
        {"index": 0, "text": "Answer: 12.", "is_correct": True, "invalid_reason": None, **of_all},
        {"index": 1, "text": "Answer: 13.", "is_correct": False, "invalid_reason": None, **of_all},
        {"index": 2, "text": "Answer: 12.", "is_correct": False, "invalid_reason": "it raised", **of_all},
        {"index": 3, "text": "Answer:", "is_correct": False, "invalid_reason": None, **of_all, "reward": None},
    ]
    task = {"id": "7+5", "prompt": [{"role": "user", "content": "7+5?"}], "answer": "12", "columns": {"level": 2}}
    group = {"step": 1, "group": "s0/7+5", "task": task, "rollouts": rollouts}
    stored = read_completions(write(folder / "groups.jsonl", [group]))
    assert [one.label for one in stored] == [True, False, None, None]
    assert stored[0].task is stored[1].task and stored[0].task.answer == "12"
    assert (*map(dict, stored[0].task.prompt),) == (*task["prompt"],) and dict(stored[0].task.columns) == {"level": 2}
    correct, lengths = check_rewards({"correct": 1.0, "checked_rewards:lengths": 1.0}, "correct", stored, num_workers=1)
    assert correct.agreement is not None and correct.agreement.accuracy == 1.0
    assert (correct.mean, lengths.broken) == (0.5, None)
    del task["columns"]
    with pytest.warns(UserWarning, match=r"groups.jsonl:1: an older log, without the data's columns"):
        read_completions(write(folder / "groups.jsonl", [group]))


def test_a_config_names_the_rewards_or_its_task_set_does(pods: Run, folder: Path) -> None:
    (folder / "own.toml").write_text('[task]\ncorrect = "correct"\nrewards = { format = 0.5 }\n')
    _, found, _ = pods("rows.jsonl", "--config", "own.toml", "--json")
    assert [(one["name"], one["weight"]) for one in found["rewards"]] == [("format", 0.5), ("correct", 0.0)]
    _, found, _ = pods("rows.jsonl", "--config", "pods", "--json")
    assert [(one["name"], one["weight"]) for one in found["rewards"]] == [("correct", 1.0), ("format", 0.1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows.jsonl"], "wants either --reward NAME=WEIGHT (perhaps several) or --config CONFIG"),
        (["rows.jsonl", "--reward", "correct", "--config", "pods"], "wants either --reward"),
        (["none.jsonl", "--reward", "correct"], "FILE = 'none.jsonl': no such file"),
        (["rows.jsonl", "--reward", "corect"], "--reward = 'corect' is no reward. Did you mean 'correct'?"),
        (["rows.jsonl", "--reward", "correct=high"], "--reward correct=high: 'high' is no number"),
        (["rows.jsonl", "--reward", "correct", "--correct", "zzz"], "--correct = 'zzz' is no reward"),
        (["rows.jsonl", "--reward", "correct", "--timeout", "0"], "--timeout 0: wanted seconds above 0"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(pods: Run, arguments: list[str], message: str) -> None:
    code, printed, said = pods(*arguments)
    assert (code, printed) == (2, "")
    assert said.startswith("error: ") and message in said


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "x", "answer": 1}, "bad.jsonl:1: no column 'completion'"),
        ({"completion": "x", "answer": 1}, "no column 'prompt'"),
        ({"question": "x", "completion": "x"}, "no column 'answer'"),
        ({"question": "x", "completion": "x", "answer": 1, "label": "yes"}, "column 'label' is"),
        ({"rollouts": [{}], "task": {}}, "not a line of a run's groups.jsonl (ValueError('step is missing'))"),
    ],
)
def test_a_row_that_does_not_fit_is_named(folder: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        read_completions(write(folder / "bad.jsonl", [row]))
    assert message in str(error.value)
