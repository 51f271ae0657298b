"""Run and compare folders become records: numbers by hand, torn lines, resumed runs, missing files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.report.comparison import is_comparison, read_comparison
from podsrl.report.html import write_report
from podsrl.report.read import read_run
from run_folders import group_line, step_line, write_comparison, write_run


def test_steps_and_evaluations_are_kept_apart(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert run.series("step").tolist() == [1, 2]
    assert run.series("reward/all").tolist() == [0.25, 0.5]
    seconds, accuracies = run.accuracy_curve()
    assert seconds.tolist() == [0.0, 1.5, 3.0]
    assert accuracies.tolist() == [0.1, 0.3, 0.5]
    assert run.num_damaged_lines == 0


def test_stage_seconds_are_means_and_the_rest_is_other(tmp_path: Path) -> None:
    steps = [step_line(1), step_line(2, **{"seconds/generate": 0.7, "seconds/total": 1.9})]
    seconds = read_run(write_run(tmp_path / "run", steps=steps)).stage_seconds()
    assert list(seconds) == ["generate", "score", "select", "update", "sync", "other"]
    assert seconds["generate"] == pytest.approx(0.6)
    assert seconds["update"] == pytest.approx(0.6)
    # Totals are 1.5 and 1.9; the named stages take 1.3 and 1.5.
    assert seconds["other"] == pytest.approx(0.3)


def test_what_waits_for_several_steps_is_postponed_once(tmp_path: Path) -> None:
    """Of 9 tokens that wait after the first step 4 still wait after the second, beside 3 new ones."""
    run = write_run(tmp_path / "run", steps=[step_line(step) for step in (1, 2)])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    waiting = iter([{"tokens/postponed": 9}, {"tokens/postponed": 7, "tokens/resumed": 9}])
    told = [{**line, **next(waiting)} if "tokens/generated" in line else line for line in lines]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in told))
    assert read_run(run).tokens()["postponed"] == 7


def test_the_token_ledger_sums_over_steps(tmp_path: Path) -> None:
    tokens = read_run(write_run(tmp_path / "run")).tokens()
    assert tokens == {
        "prompt": 24,
        "generated": 160,
        "trained": 80,
        "discarded": 60,
        "skipped": 20,
        "pruned": 0,
        "postponed": 0,
    }


@pytest.mark.parametrize(
    "tail", ['{"step": 3, "seconds/gen', '{"step": 3}\n{"st', "[1, 2]", '{"loss": 1.0}\n', "\xff\xfe"]
)
def test_a_line_that_a_kill_tore_is_skipped_and_counted(tmp_path: Path, tail: str) -> None:
    run = read_run(write_run(tmp_path / "run", tail=tail))
    assert run.series("reward/all")[:2].tolist() == [0.25, 0.5]
    assert run.num_damaged_lines == 1


@pytest.mark.parametrize("line", ["[1, 2]", "\xff\xfe", '{"step": 3, "seconds/gen{"step": 3}', "null"])
@pytest.mark.parametrize("log", ["metrics.jsonl", "groups.jsonl"])
def test_a_whole_line_that_is_broken_is_named(tmp_path: Path, log: str, line: str) -> None:
    file = write_run(tmp_path / "run") / log
    whole = file.read_text()
    file.write_text(f"{whole}{line}\n{whole}")
    number = whole.count("\n") + 1
    with pytest.raises(UsageError, match=rf"{log}, line {number}: wanted a JSON object, got .*; the log is damaged"):
        read_run(tmp_path / "run")


def test_what_a_resume_went_on_with_knowingly_is_shown(tmp_path: Path) -> None:
    plain = read_run(write_run(tmp_path / "plain"))
    note = {"step": 2, "seconds/train_elapsed": 3.0, "note": "the data changed: <b>"}
    folder = write_run(tmp_path / "run", tail=json.dumps(note) + "\n")
    run = read_run(folder)
    assert (plain.notes, run.notes) == ([], ["after step 2: the data changed: <b>"])
    assert (run.steps, run.evaluations, run.num_damaged_lines) == (plain.steps, plain.evaluations, 0)
    page = write_report([folder], tmp_path / "report.html").read_text()
    assert "run, after step 2: the data changed: &lt;b&gt;." in page


def test_a_torn_group_is_counted_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    whole = json.dumps(group_line(2))
    with (folder / "groups.jsonl").open("a") as file:
        file.write(whole + "\n" + '{"step": 3, "group": "x"}\n' + whole[:50])
    run = read_run(folder)
    assert [group.step for group in run.groups] == [1, 2]
    assert run.num_damaged_lines == 2


def test_a_resumed_run_replaces_what_it_makes_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=[], evaluations=[])
    lines = [
        {"step": 0, "eval/accuracy": 0.1, "seconds/train_elapsed": 0.0},
        step_line(1),
        step_line(2, loss=1.0),
        step_line(3, loss=1.0),
        {"step": 3, "eval/accuracy": 0.9, "seconds/train_elapsed": 9.0},
        step_line(2, loss=5.0),  # killed after step 3, resumed from step 1
        {"step": 2, "eval/accuracy": 0.4, "seconds/train_elapsed": 3.0},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    run = read_run(folder)
    assert run.series("step").tolist() == [1, 2]
    assert run.series("loss").tolist() == [0.0, 5.0]
    assert run.accuracy_curve()[1].tolist() == [0.1, 0.4]


def test_groups_of_a_voided_step_are_dropped(tmp_path: Path) -> None:
    groups = [group_line(1), group_line(2, "old"), group_line(3, "old"), group_line(2, "old", task=_task("new"))]
    run = read_run(write_run(tmp_path / "run", groups=groups))
    assert [(group.step, group.task_id) for group in run.groups] == [(1, "7+5"), (2, "new")]


def _task(name: str) -> dict[str, str]:
    return {"id": name, "prompt": "p", "answer": "a"}


def test_a_run_without_recorded_groups_is_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "groups.jsonl").unlink()
    assert read_run(folder).groups == ()


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        read_run(tmp_path / "nowhere")
    folder = write_run(tmp_path / "run")
    (folder / "config.toml").unlink()
    with pytest.raises(UsageError, match=r"run has no config\.toml"):
        read_run(folder)


def test_a_comparison_brings_its_runs_by_arm(tmp_path: Path) -> None:
    comparison = read_comparison(write_comparison(tmp_path / "cmp"))
    assert (comparison.baseline, comparison.fraction, comparison.hardware) == ("grpo", 0.99, "a laptop, 2 cores")
    assert comparison.seeds == {"grpo": (3, 4), "pods": (3, 4)}
    assert comparison.runs["pods"][1].accuracy_curve()[1] == pytest.approx([0.15, 0.85, 0.95])
    assert comparison.speedups["pods"].point == 2.0
    assert comparison.speedups["pods"].share_unreached == 0.125
    assert is_comparison(tmp_path / "cmp")
    assert not is_comparison(write_run(tmp_path / "run"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "none"}, "is not a comparison"),
        ({"arms": {"grpo": {"seeds": [3], "runs": ["runs/9"]}}}, "9 is not a folder"),
        ({"speedup": {"pods": {}}}, "is not a comparison"),
        ({"fraction": "much"}, "is not a comparison"),
        ({"arms": None}, "is not a comparison"),
    ],
)
def test_a_malformed_comparison_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = write_comparison(tmp_path / "cmp") / "compare.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UsageError, match=message):
        read_comparison(tmp_path / "cmp")


@pytest.mark.parametrize("text", ["seed = = 3", "a = " + "[" * 5000, "a = " + "9" * 5000, "a = [", b"a = '\xff'"])
def test_a_config_that_cannot_be_read_is_a_one_line_error(tmp_path: Path, text: str | bytes) -> None:
    run = write_run(tmp_path / "run")
    (run / "config.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=r"config\.toml is not TOML"):
        read_run(run)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"baseline": "grpo", "arms": {"grp', "9" * 5000, '{"baseline": 1, "arms": {"a": 3}}', "NaN"],
)
def test_a_comparison_that_cannot_be_read_is_a_one_line_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "compare.json").write_text(text)
    with pytest.raises(UsageError, match=r"compare\.json"):
        read_comparison(tmp_path)


@pytest.mark.parametrize("number", ["9" * 400, "1e400", "1e308", "-1e308", "-" + "9" * 400])
def test_a_number_beyond_all_bounds_is_infinite_in_metrics_and_damage_in_groups(tmp_path: Path, number: str) -> None:
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as log:
        log.write(f'{{"step": 3, "seconds/train_elapsed": 4.0, "eval/accuracy": {number}}}\n')
        log.write(f'{{"step": {number}}}\n')
    groups = (run / "groups.jsonl").read_text().splitlines()
    other = json.loads(groups[-1])
    other["rollouts"][0]["reward"] = 0.125
    (run / "groups.jsonl").write_text("\n".join([*groups, json.dumps(other).replace("0.125", number)]) + "\n")
    found = read_run(run)
    assert found.evaluations[-1]["eval/accuracy"] == math.copysign(math.inf, float(number))
    assert found.num_damaged_lines == 2
    write_report([run], tmp_path / "report.html")
