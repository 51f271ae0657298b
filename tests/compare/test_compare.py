"""A comparison: what is planned, what is refused, and a whole small one through the command line."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import children
from podsrl.cli.compare import _advice
from podsrl.cli.compare_result import shown
from podsrl.compare.measure import measure
from podsrl.compare.runs import Member, open_folder, plan
from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build, dump
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError
from podsrl.lib.logs import read_lines
from podsrl.run.before.fit import fit
from podsrl.run.before.settle import settle


def demo_config(*overrides: str) -> CompareConfig:
    """Of three arms of the demo."""
    tree = read_tree("demo")
    del tree["arms"]["auto"]
    return build(CompareConfig, apply_overrides(tree, overrides), "demo")


def test_runs_go_seed_by_seed_in_turning_order_and_an_arm_changes_only_what_it_says(tmp_path: Path) -> None:
    members = plan(demo_config("num_seeds=2", "first_seed=5"), tmp_path)
    assert [member.path.name for member in members] == [
        *("grpo-seed5", "grpo_ga-seed5", "pods-seed5"),
        *("grpo_ga-seed6", "pods-seed6", "grpo-seed6"),  # turned by one
    ]
    sizes = {m.arm: (m.config.rollouts.num_rollouts, m.config.select.num_kept) for m in members}
    assert sizes == {"grpo": (16, 16), "grpo_ga": (64, 64), "pods": (64, 16)}
    assert {m.config.task.digits for m in members} == {2} and {m.config.seed for m in members} == {5, 6}


def test_arms_with_dots_in_their_names_keep_files_apart(tmp_path: Path) -> None:
    tree = read_tree("demo")
    config = build(CompareConfig, {**tree, "arms": {**tree["arms"], "a@0.5": {}, "a@0.6": {}}}, "demo")
    members = plan(config, tmp_path)
    assert len({member.log for member in members}) == len(members) == 6 * config.num_seeds
    with pytest.raises(UsageError, match="arms"):
        build(CompareConfig, {**tree, "arms": {**tree["arms"], "../a": {}}}, "demo")


def test_unequal_times_or_questions_are_refused(tmp_path: Path) -> None:
    for override, named in {
        "arms.pods.stop.seconds=99": "differ",
        "arms.pods.task.digits=3": r"task\.digits \(2 -> 3\)",
        "arms.pods.rollouts.max_prompt_tokens=17": r"rollouts\.max_prompt_tokens \(512 -> 17\); put these in base",
        "arms.pods.rollouts.stop_strings=['4']": r"rollouts\.stop_strings",
        "arms.pods.options.arithmetic.kind=1": r"options\.arithmetic",
        "arms.pods.systems=['podsrl.systems.sapo:Swarm']": "knows nothing of other runs, .*: leave it out",
        "base.seed=3": "first_seed",
        "base.eval.every_seconds=0": r"eval\.every_seconds",
    }.items():
        with pytest.raises(UsageError, match=named):
            plan(demo_config(override), tmp_path)


def test_a_run_with_the_choices_made_for_auto_is_the_run_that_was_asked_for(tmp_path: Path) -> None:
    config = demo_config("base.model.dtype=auto", "base.rollouts.generator=auto", "base.model.device=cpu")
    member = plan(config, tmp_path)[0]
    member.path.mkdir(parents=True)
    (member.path / "config.toml").write_text(dump(settle(member.config)[0]))
    assert plan(config, tmp_path)[0].config == member.config
    with pytest.raises(UsageError, match=r"model.dtype \(float32 -> bfloat16\)"):
        plan(demo_config("base.model.dtype=bfloat16", "base.model.device=cpu"), tmp_path)


def test_a_run_with_sizes_that_fit_a_small_machine_is_the_run_that_was_asked_for(tmp_path: Path) -> None:
    config = demo_config("base.rollouts.num_prompts=4096", "base.model.device=cpu")
    member = plan(config, tmp_path)[0]
    fitted, lines = fit(member.config, longest_prompt=0, num_eval=None, num_bytes=2 << 30)
    assert lines and fitted != member.config
    member.path.mkdir(parents=True)
    (member.path / "config.toml").write_text(dump(fitted))
    assert plan(config, tmp_path)[0].config == member.config
    with pytest.raises(UsageError, match=r"optim\.lr"):
        plan(demo_config("base.rollouts.num_prompts=4096", "base.model.device=cpu", "arms.grpo.optim.lr=1"), tmp_path)


def test_a_folder_keeps_one_comparison(tmp_path: Path) -> None:
    open_folder(demo_config(), tmp_path)
    open_folder(demo_config("num_seeds=9", "jobs=1"), tmp_path)
    with pytest.raises(UsageError, match=r"base\.task\.digits \(2 -> 3\)"):
        open_folder(demo_config("base.task.digits=3"), tmp_path)


def hand_written(config: CompareConfig, folder: Path) -> list[Member]:
    """Finished runs: GA is at its best (80 %) at 30 s, PODS reaches 0.99 of that at 15 s, GRPO never."""
    members = plan(config, folder)
    accuracies = {"grpo": [0.0, 0.3, 0.5, 0.6], "grpo_ga": [0.0, 0.5, 0.8, 0.8], "pods": [0.0, 0.8, 0.8, 0.9]}
    times = {"grpo": [0, 10, 20, 40], "grpo_ga": [0, 10, 30, 40], "pods": [0, 15, 30, 40]}
    stages = {f"seconds/{name}": 0.1 for name in ("generate", "score", "select", "update", "sync", "record")}
    for member in members:
        member.path.mkdir(parents=True)
        lines = [{"step": 1, "seconds/total": 0.7, "seconds/train_elapsed": 0.7, **stages}]
        for second, accuracy in zip(times[member.arm], accuracies[member.arm], strict=True):
            lines.append({"step": second, "eval/accuracy": accuracy, "seconds/train_elapsed": float(second)})
        (member.path / "finished.json").write_text('{"hardware": "an abacus"}')
        (member.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn": ')
    return members


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"seconds/total": 0.7', '"seconds/total": "x"', "line 1: seconds/total = 'x', wanted a number"),
        ('"seconds/score": 0.1, ', "", "line 1: seconds/score = None"),
        ('"eval/accuracy": 0.8', '"eval/accuracy": NaN', "line 3: eval/accuracy = nan"),
        ('"seconds/train_elapsed": 15.0', '"seconds/train_elapsed": true', "line 3: seconds/train_elapsed = True"),
        ('"seconds/total"', '"x"', "holds no step"),
    ],
)
def test_a_log_whose_numbers_are_none_is_named_with_its_line(tmp_path: Path, old: str, new: str, reason: str) -> None:
    config = demo_config("num_seeds=1", "base.stop.seconds=40", "base.eval.every_seconds=5")
    members = hand_written(config, tmp_path)
    log = next(member for member in members if member.arm == "pods").path / "metrics.jsonl"
    log.write_text(log.read_text().replace(old, new, 1))
    with pytest.raises(UsageError, match=re.escape(str(log)) + ".*" + re.escape(reason)):
        measure(config, members, tmp_path)


def test_a_run_that_has_lost_its_first_evaluation_has_no_accuracy_at_the_start(tmp_path: Path) -> None:
    config = demo_config("num_seeds=1", "base.stop.seconds=40", "base.eval.every_seconds=5")
    members = hand_written(config, tmp_path)
    assert measure(config, members, tmp_path)["start_accuracy"] == {"grpo": 0.0, "grpo_ga": 0.0, "pods": 0.0}
    log = next(member for member in members if member.arm == "pods").path / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], *lines[2:]]))
    assert measure(config, members, tmp_path)["start_accuracy"] == {"grpo": 0.0, "grpo_ga": 0.0, "pods": None}


def test_speed_ups_come_from_the_runs_own_logs(tmp_path: Path) -> None:
    """Two seeds written by hand."""
    target = ("baseline=grpo_ga", "fraction=0.99")
    config = demo_config("num_seeds=2", "base.stop.seconds=40", "base.eval.every_seconds=5", *target)
    members = hand_written(config, tmp_path)
    result = measure(config, members, tmp_path)
    assert result["speedup"]["pods"]["point"] == 2.0
    assert result["speedup"]["grpo"]["point"] is None and result["speedup"]["grpo"]["share_unreached"] == 1.0
    assert result["speedup"]["grpo_ga"]["point"] == 1.0
    assert result["hardware"] == "an abacus" and result["grid_seconds"] == {
        "grpo": [10.0, 20.0, 40.0],
        "grpo_ga": [10.0, 30.0, 40.0],
        "pods": [15.0, 30.0, 40.0],
    }
    assert result["mean_accuracy"]["pods"] == pytest.approx([0.8, 0.8, 0.9])
    assert set(result["speedup_over"]) == {"grpo", "grpo_ga", "pods"}
    assert result["speedup_over"][config.baseline] == result["speedup"]
    assert {arm: over[arm]["point"] for arm, over in result["speedup_over"].items()} == dict.fromkeys(config.arms, 1.0)
    assert result["seconds_to"]["0.8"]["pods"] == 15.0 and result["seconds_to"]["0.95"]["pods"] is None
    assert result["stage_seconds"]["pods"]["other"] == pytest.approx(0.1)
    assert json.loads((tmp_path / "compare.json").read_text()) == result


def of_no_learning(members: list[Member], arms: tuple[str, ...]) -> None:
    """Three of 256 right at the end and two at the start, all wrong in the newest steps."""
    counts = {"rollouts/all": 8, "accuracy/all": 0.0, "groups/all": 1, "groups/zero_signal": 1}
    for member in members:
        log = member.path / "metrics.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()[:-1]]
        for line in lines:
            line |= counts if "seconds/total" in line else {"eval/accuracy_sem": 0.006}
            if member.arm in arms and "eval/accuracy" in line:
                line["eval/accuracy"] = 0.008 if line["step"] == 0 else 0.012
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_where_no_arm_has_learned_there_is_no_speed_up_but_what_to_do(tmp_path: Path) -> None:
    config = demo_config("base.stop.seconds=60", "base.eval.every_seconds=5")
    members = hand_written(config, tmp_path)
    of_no_learning(members, ("grpo", "grpo_ga", "pods"))
    result = measure(config, members, tmp_path)
    assert result["learned"] == dict.fromkeys(config.arms, False)
    assert result["not_learned"] == "no arm has learned within 60 s: a step of grpo took 0.7 s"
    assert {found["point"] for over in result["speedup_over"].values() for found in over.values()} == {None}
    assert all(found["saving"]["point"] is None for cost in result["costs"].values() for found in cost.values())
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(shown(result, _advice(result, "demo", ["pods", "demo", "--num_seeds=2", "--base.stop.seconds=60"])))
    text = console.export_text()
    assert "×" not in text and "grpo has not learned: all answers are wrong" in text
    assert text.strip().endswith(
        "no arm has learned within 60 s: a step of grpo took 0.7 s, 0.16 s where the demo was made; give each arm "
        "5 min: pods demo --num_seeds=2 --base.stop.seconds=300"
    )


def test_a_baseline_that_has_not_learned_is_the_measure_of_nothing(tmp_path: Path) -> None:
    config = demo_config("base.stop.seconds=60", "base.eval.every_seconds=5")
    members = hand_written(config, tmp_path)
    of_no_learning(members, ("grpo",))
    result = measure(config, members, tmp_path)
    assert result["learned"] == {"grpo": False, "grpo_ga": True, "pods": True}
    assert "pods ended at 90%" in result["not_learned"] and result["speedup"]["pods"]["point"] is None
    assert result["speedup_over"]["grpo_ga"]["pods"]["point"] == 2.0


def test_an_arm_that_learns_nothing_is_a_result_and_ends_no_comparison(tmp_path: Path) -> None:
    assert {member.config.stop.without_signal for member in plan(demo_config(), tmp_path)} == {0}
    assert {m.config.stop.without_signal for m in plan(demo_config("base.stop.without_signal=9"), tmp_path)} == {9}


def test_what_is_printed_has_the_times_and_the_gain_over_each_other_arm(tmp_path: Path) -> None:
    config = demo_config("baseline=grpo_ga", "fraction=0.99", "base.stop.seconds=40", "base.eval.every_seconds=5")
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(shown(measure(config, hand_written(config, tmp_path), tmp_path)))
    text = console.export_text()
    times = next(line for line in text.splitlines() if "pods" in line and " s " in line)
    assert [cell.strip() for cell in times.strip(" │").split("│")[1:]] == ["15.0 s", "15.0 s", "40.0 s", "not reached"]
    assert "pods reaches 99 % of the best accuracy of grpo 2.67×" in text and "of grpo_ga 2.00×" in text


def test_the_demo_runs_whole_and_a_second_call_finds_it_finished(
    tmp_path: Path, pods: Callable[..., tuple[int, str, str]]
) -> None:
    command = [sys.executable, "-m", "podsrl.cli", "demo", "--quick", "--json", "--out", str(tmp_path / "demo")]
    first = children.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout)
    assert set(result["speedup"]) == {"grpo", "grpo_ga", "pods", "auto"}
    assert all(steps >= 1 for arm in result["steps"].values() for steps in arm)
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "<svg" in page and "pods" in page
    assert json.loads(pods(*command[3:])[1]) == result


def test_a_comparison_killed_goes_on_and_each_run_is_one_whole_log(tmp_path: Path) -> None:
    """SIGTERM to the comparison reaches its runs, which save themselves; the same command then finishes them.

    Those that wait for their next slice do so, too.
    """
    options = ["--slice_seconds=0.5", "--base.stop.seconds=2", "--base.eval.every_seconds=1", "--base.task.num_eval=32"]
    options += ["--num_seeds=1"]
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "podsrl.cli", "compare", "demo", *options, "--json", "--out", str(out)]
    first = children.Popen(command, stdout=children.DEVNULL, stderr=children.DEVNULL)
    log = out / "runs" / "grpo-seed0" / "metrics.jsonl"
    while first.poll() is None and not (log.exists() and len(log.read_text().splitlines()) > 3):
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 143
    second = children.run(command, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    for folder in (out / "runs").glob("*-seed0"):
        steps = [line["step"] for line in read_lines(folder / "metrics.jsonl") if "seconds/total" in line]
        assert steps == list(range(1, len(steps) + 1)) and steps, folder
