"""`pods compare` as a person runs it: what it refuses in one line, and the example of its help and of the docs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import children

PAGE = Path(__file__).parents[2] / "docs" / "comparing.md"
Pods = Callable[..., tuple[int, str, str]]


def example() -> str:
    """The file of arms on the docs' page."""
    return PAGE.read_text().split("```toml\n")[1].split("```")[0]


def refusal(pods: Pods, *arguments: str) -> str:
    code, _, errors = pods("compare", *arguments)
    assert code == 2 and errors.startswith("error: ") and errors.count("\n") == 1, errors
    return errors


def test_folders_of_runs_are_sent_to_the_report_by_name(pods: Pods, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert "pods report runs/a runs/b" in refusal(pods, "runs/a", "runs/b", "--json")
    assert "pods report runs/a\n" in refusal(pods, "runs/a")


def paced(monkeypatch: pytest.MonkeyPatch, step_seconds: float) -> list[list[str]]:
    """A machine on which a step takes so long; what the demo would then run."""
    monkeypatch.setattr("podsrl.plan.probe.measure_pace", lambda config: step_seconds)
    monkeypatch.setattr("podsrl.lib.machine.num_cores", lambda: 2)
    ran: list[list[str]] = []
    monkeypatch.setattr("podsrl.cli.compare._compare", lambda source, overrides, *rest: ran.append(list(overrides)))
    return ran


@pytest.mark.parametrize(("step_seconds", "seconds"), [(0.1, 60), (0.5, 240), (0.3, 120)])
def test_the_demo_takes_the_seconds_that_two_measured_steps_ask_for(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, step_seconds: float, seconds: int
) -> None:
    ran = paced(monkeypatch, step_seconds)
    code, _, errors = pods("demo", "--jobs=1")
    assert code == 0 and ran[0][-1] == f"--base.stop.seconds={seconds}", errors
    assert pods("demo", "--base.stop.seconds=7")[0] == 0 and "--base.stop.seconds=7" in ran[1], "nothing is measured"


def test_the_docs_example_runs(tmp_path: Path) -> None:
    (tmp_path / "my-arms.toml").write_text(example())
    options = ["--num_seeds=1", "--base.stop.seconds=2", "--base.eval.every_seconds=1", "--base.task.num_eval=16"]
    command = [sys.executable, "-m", "podsrl.cli", "compare", "my-arms.toml", *options, "--json", "--out", "out"]
    done = children.run(command, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {arm: (facts["num_rollouts"], facts["num_kept"]) for arm, facts in result["arms"].items()} == {
        "grpo": (16, 16),
        "pods": (64, 16),
    }
    assert result["baseline"] == "grpo" and result["fraction"] == 0.99
    page = PAGE.read_text()
    written = {
        path.name.replace("grpo", "ARM").replace("pods", "ARM").replace("seed0", "seedS")
        for path in [*(tmp_path / "out").iterdir(), *(tmp_path / "out" / "runs").iterdir()]
    } - {"runs"}
    assert written and all(name in page for name in written), written
    assert "held-out accuracy" in done.stderr and "\r" not in done.stderr
