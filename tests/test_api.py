"""The door of Python: the numbers, folders and errors of the commands, with functions in place of their names."""

from __future__ import annotations

import inspect
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import podsrl
import podsrl.compare.runs
import podsrl.plan.search
from podsrl.api import Interrupted, Run, evaluate, train
from podsrl.errors import UsageError
from podsrl.lib.user_function import GIVEN
from podsrl.run.saving.checkpoint import load_newest
from podsrl.run.session import start
from podsrl.tools.check_reward import check_rewards
from podsrl.tools.completions import read_completions
from run_folders import step_line, write_comparison, write_run
from runs import config_of, final_tensors, lines_of, numbers

Pods = Callable[..., tuple[int, str, str]]
SMALL: dict[str, Any] = {
    "rollouts": {"num_prompts": 2, "num_rollouts": 8, "max_new_tokens": 16},
    "select": {"num_kept": 4},
    "task": {"num_eval": 4},
    "eval": {"every_seconds": 0},
    "model": {"matmul": "mkl"},
}


@pytest.fixture(autouse=True)
def nothing_is_left_given() -> Iterator[None]:
    yield
    GIVEN.clear()


def stops(steps: int) -> dict[str, float]:
    return {"steps": steps, "seconds": 0}


def steps_of(run: Run) -> list[dict[str, Any]]:
    return [line for line in numbers(run.folder) if "loss" in line]


def of_length(scale: float) -> Callable[..., float]:
    """A reward that only this process has."""

    def length(task: Any, text: str) -> float:
        return scale * len(text)

    return length


def test_the_first_names_are_shown_with_a_line_each_and_cost_nothing() -> None:
    code = "import sys, podsrl; print(*dir(podsrl)); print({'torch', 'numpy', 'typer', 'pydantic'} & {*sys.modules})"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed == [" ".join(sorted(podsrl.__all__)), "set()"]
    for name in podsrl.__all__:
        assert name in (podsrl.__doc__ or "") and inspect.getdoc(getattr(podsrl, name)), name
    with pytest.raises(AttributeError, match="'trian'"):
        podsrl.trian  # noqa: B018


def test_a_run_has_the_numbers_and_the_config_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("pods", out=tmp_path / "one", stop=stops(2), **SMALL)
    start(config_of("stop.steps=2"), tmp_path / "two", on_record=lambda line: None, say=lambda line: None)
    assert numbers(run.folder) == numbers(tmp_path / "two")
    assert run.config == podsrl.load_config(tmp_path / "two" / "config.toml")
    assert run.resume() is run and "was already finished, after 2 steps" in capsys.readouterr().out
    measured = run.evaluate(out=tmp_path / "answers.jsonl")
    assert measured.accuracy == run.curves()["eval/accuracy"][-1]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == measured.num_samples


def test_a_function_of_this_process_rewards_and_a_resumed_run_is_the_whole_one(tmp_path: Path) -> None:
    rewards = {"correct": 1.0, of_length(0.5): 0.1}
    whole = train("pods", rewards=rewards, out=tmp_path / "whole", stop=stops(2), **SMALL)
    part = train("pods", rewards=rewards, out=tmp_path / "part", stop=stops(1), **SMALL)
    other = train("pods", rewards=[of_length(7.0)], out=tmp_path / "other", stop=stops(1), **SMALL)
    assert part.resume(stop=stops(2)) is part  # with its own function, though the other run's has the same name
    saved = load_newest(part.folder / "checkpoints")
    assert saved and "text of test_api:of_length.<locals>.length (here)" in saved.state["inputs"]["sources"]
    assert steps_of(part) == steps_of(whole)
    assert final_tensors(part.folder) == final_tensors(whole.folder)
    for one in (one for group in whole.groups for one in group.rollouts):
        assert one.reward == pytest.approx(one.is_correct + 0.1 * 0.5 * len(one.text), rel=1e-12)
    assert all(one.reward == 7.0 * len(one.text) for group in other.groups for one in group.rollouts)


def test_another_process_is_told_what_a_resumed_run_lacks(tmp_path: Path, pods: Pods) -> None:
    run = train("pods", rewards=[of_length(1.0)], out=tmp_path / "run", stop=stops(1), **SMALL)
    GIVEN.clear()
    again = Run(run.folder)
    code, _, err = pods("train", "--resume", str(run.folder), "--stop.steps=2")
    assert code == 2 and "define it there again" in err and "of_length.<locals>.length (here)'" in err
    with pytest.raises(UsageError, match="define it there again"):
        again.evaluate()
    with pytest.raises(UsageError, match=r"would change the run's numbers: task\.rewards"):
        again.resume(rewards=[of_length])
    assert len(again.resume(rewards=[of_length(1.0)], stop=stops(2)).curves()["step"]) == 3


def test_an_interrupted_run_stops_after_its_step_and_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    calls = [0]

    def length(task: Any, text: str) -> float:
        calls[0] += 1
        if calls[0] == limit:
            signal.raise_signal(signal.SIGINT)
        return float(len(text))

    limit = 0
    whole = train("pods", rewards=[length], out=tmp_path / "whole", stop=stops(3), **SMALL)
    limit, calls[0] = 15, 0
    with pytest.raises(Interrupted, match=r"podsrl.Run\('.*part'\).resume\(\)") as stopped:
        train("pods", rewards=[length], out=tmp_path / "part", stop=stops(3), **SMALL)
    run = stopped.value.run
    assert 1 <= len(lines_of(run.folder)) < len(lines_of(whole.folder))
    assert stopped.value._render_traceback_() == [str(stopped.value)]
    assert numbers(run.resume().folder) == numbers(whole.folder)


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"selct": {"num_kept": 8}}, ["--selct.num_kept=8"]),
    ({"num_kept": 8}, ["--num_kept=8"]),
    ({"select": {"num_kept": 1}}, ["--select.num_kept=1"]),
    ({"reward_funcs": ["correct"]}, ['--reward_funcs=["correct"]']),
    ({"rewards": ["corect"]}, ["--task.rewards={corect = 1.0}"]),
    ({"rewards": ["math:tau"]}, ['--task.rewards={"math:tau" = 1.0}']),
    ({"rewards": [math.hypot, len]}, ['--task.rewards={"math:hypot" = 1.0, "builtins:len" = 1.0}']),
]


@pytest.mark.parametrize(("changes", "flags"), BAD, ids=str)
def test_a_mistake_is_the_command_s_own_line(
    changes: dict[str, Any], flags: list[str], tmp_path: Path, pods: Pods
) -> None:
    code, _, err = pods("train", "pods", *flags)
    with pytest.raises(UsageError) as refused:
        train("pods", out=tmp_path / "run", **changes)
    assert code == 2 and err.splitlines()[-1] == f"error: {refused.value}"
    assert refused.value._render_traceback_() == [f"UsageError: {refused.value}"]
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_a_missing_config_and_a_missing_run_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "mine", evaluations=[])
    with pytest.raises(UsageError, match="holds a run already"):
        train("pods", out=tmp_path / "mine", **SMALL)
    with pytest.raises(UsageError, match="no such file, and no such recipe"):
        train("mine.toml")
    with pytest.raises(UsageError, match="config 3: wanted a recipe's name"):
        train(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        Run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="an evaluation does not read it"):
        evaluate("pods", select={"num_kept": 8})


def test_curves_are_the_log_by_step_and_the_text_says_how_far_it_is(tmp_path: Path) -> None:
    write_run(tmp_path / "run", evaluations=[(0, 0.0, 0.25), (2, 3.0, 0.5)], steps=[*map(step_line, (1, 2, 3))])
    run = Run(tmp_path / "run")
    curves = run.curves()
    np.testing.assert_array_equal(curves["step"], [0, 1, 2, 3])
    np.testing.assert_array_equal(curves["eval/accuracy"], [0.25, np.nan, 0.5, np.nan])
    np.testing.assert_array_equal(curves["reward/all"], [np.nan, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(curves["seconds/train_elapsed"], [0.0, 1.5, 3.0, 4.5])
    assert repr(run) == f"Run('{tmp_path / 'run'}', stopped, 3 steps, held-out accuracy 25.0% → 50.0%)"
    html = run._repr_html_()
    assert html.startswith("<p>Run(") and html.count("<img") == 2
    assert run.report() == tmp_path / "run" / "report.html" and run.report().is_file()


def test_a_new_run_has_no_curves_yet(tmp_path: Path) -> None:
    write_run(tmp_path / "run", evaluations=[], groups=[])
    (tmp_path / "run" / "metrics.jsonl").unlink()
    run = Run(tmp_path / "run")
    assert run.curves() == {} and run.groups == () and "<img" not in run._repr_html_()
    assert "0 steps" in repr(run)


def test_a_comparison_runs_what_its_command_runs_and_gives_what_its_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(config: Any, folder: Path, num_processes: int = 1) -> dict[str, Any]:
        ran.append(config)
        if config.num_seeds == 9:
            raise typer.Exit(130)
        write_comparison(folder)
        return {}

    monkeypatch.setattr("podsrl.cli.compare.run_comparison", run)
    arms = {"pods": {"select": {"num_kept": 8}}, "mine": {"extends": "pods", "rewards": {len: 2}}}
    found = podsrl.compare("demo", out=tmp_path, num_seeds=2, base={"stop": {"seconds": 4}}, arms=arms)  # type: ignore[arg-type]
    assert found.speedups["pods"].point == 2.0 and (tmp_path / "report.html").exists()
    config = ran[0]
    assert (config.num_seeds, config.baseline, config.base["stop"]) == (2, "grpo", {"steps": 0, "seconds": 4})
    assert config.arms["pods"] == {"rollouts": {"num_rollouts": 64}, "select": {"rule": "max_variance", "num_kept": 8}}
    assert config.arms["mine"] == {"extends": "pods", "task": {"rewards": {"builtins:len": 2}}}
    with pytest.raises(KeyboardInterrupt):
        podsrl.compare({"baseline": "a", "arms": {"a": {}, "b": {}}}, out=tmp_path, num_seeds=9)


def test_a_plan_is_made_of_the_config_with_its_changes_after_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("podsrl.api.measured_plan", lambda config, seconds: asked.append((config, seconds)))
    podsrl.plan("pods", measure=5, select={"num_kept": 8})
    assert asked == [(podsrl.load_config("pods", select={"num_kept": 8}), 5)]


def test_rewards_are_checked_as_by_the_command(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path / "run"))
    brief = of_length(1.0)
    found = podsrl.check_reward(run, {"correct": 1.0, brief: 0.1}, workers=1)
    stored = read_completions(run.folder / "groups.jsonl")
    twin = check_rewards({"correct": 1.0, "test_api:of_length.<locals>.length (here)": 0.1}, "correct", stored)
    assert [{**one.to_json(), "milliseconds": 0} for one in found] == [
        {**one.to_json(), "milliseconds": 0} for one in twin
    ]
    correct, length = found
    assert correct.agreement is not None and length.agreement is None and length.mean == 6.0  # "text 0"
    [other, length] = podsrl.check_reward(run.folder / "groups.jsonl", "correct", correct=brief, timeout=5)
    assert other.agreement is None and length.agreement is not None


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: podsrl.compare("demo", num_seed=1), r"unknown key 'num_seed'\. Did you mean 'num_seeds'\?"),
        (lambda: podsrl.compare("demo", base="grpo"), "config demo: base = 'grpo': "),
        (lambda: podsrl.compare({"arms": {"a": {}}}, baseline="a"), r"arms = \['a'\]: wanted at least two"),
        (lambda: podsrl.plan("pods", measure=0), "measure = 0: wanted seconds above 0"),
        (lambda: podsrl.plan("pods", select={"kept": 8}), "Did you mean 'select.num_kept'"),
        (lambda: podsrl.check_reward("none.jsonl", "correct"), "none.jsonl"),
        (lambda: podsrl.check_reward("none.jsonl", []), r"rewards = \[\]: wanted at least one"),
        (lambda: podsrl.check_reward("a", of_length(1), correct=of_length(2)), "rewards and .*: two functions have"),
        (lambda: podsrl.check_reward("none.jsonl", "correct", timeout=-1), "reward_timeout_seconds = -1"),
    ],
)
def test_a_wrong_argument_of_the_other_calls_is_one_line(call: Callable[[], Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        call()
