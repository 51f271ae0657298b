"""`--allow-changes` reaches the resume, alone and through `pods launch`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from podsrl.cli.main import app
from podsrl.config.load import dump, load_config
from podsrl.errors import UsageError
from podsrl.scale.launch import End

FLAG = "--allow-changes"


@pytest.fixture
def run(tmp_path: Path) -> str:
    (tmp_path / "config.toml").write_text(dump(load_config("pods", ["stop.steps=1"])))
    return str(tmp_path)


@pytest.mark.parametrize("given", [[], [FLAG]])
def test_the_flag_reaches_the_resume(run: str, given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: dict[str, Any] = {}
    monkeypatch.setattr("podsrl.run.session.resume", lambda path, overrides, **options: heard.update(options))
    result = CliRunner().invoke(app, ["train", "--resume", run, "--plain", *given])
    assert result.exception is None, result.output
    assert heard["allow_changes"] == (FLAG in given)


def test_a_finished_run_says_so_and_how_it_goes_on(pods: Callable[..., tuple[int, str, str]]) -> None:
    small = ("rollouts.num_prompts=1", "rollouts.num_rollouts=4", "select.num_kept=2", "task.num_eval=2", "threads=1")
    assert pods("train", "pods", "--out", "run", "--stop.steps=1", *(f"--{option}" for option in small))[0] == 0
    code, out, _ = pods("train", "--resume", "run")
    assert code == 0
    assert "1 step " in out and "pods train --resume run --stop.steps=2" in out and "pods report run" in out


@pytest.mark.parametrize("given", [[], [FLAG]])
def test_a_launcher_hands_it_on_to_its_processes(run: str, given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def launch(command: list[str], num_processes: int, logs: Path) -> End:
        commands.append(command)
        return End(0, 0)

    monkeypatch.setattr("podsrl.scale.launch.launch", launch)
    monkeypatch.setattr("podsrl.cli.launch._check", lambda *_: None)
    result = CliRunner().invoke(app, ["launch", "--processes", "2", "--resume", run, "--plain", *given])
    assert result.exception is None, result.output
    [command] = commands
    assert command[command.index("podsrl.cli") + 1 :] == ["train", "--resume", run, *given, "--plain"]


@pytest.mark.parametrize("verb", [["train"], ["launch", "--processes", "2"]])
def test_a_new_run_has_nothing_to_go_on_from(verb: list[str]) -> None:
    result = CliRunner().invoke(app, [*verb, "pods", FLAG])
    assert isinstance(result.exception, UsageError) and FLAG in str(result.exception)
