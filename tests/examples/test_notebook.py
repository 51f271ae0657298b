"""The notebooks run: their cells as a kernel runs them, in the module `__main__`, with what each of them shows."""

from __future__ import annotations

import ast
import json
import os
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import children
from podsrl.config.files import recipe_names

EXAMPLES = Path(__file__).parents[2] / "examples"
FIRST, REAL = "07_notebook.ipynb", "08_real_model.ipynb"
SMALL = """
extends = "pods"
task.rewards = { correct = 1.0, format = 0.1 }
"""


def cells(name: str) -> Iterator[dict[str, Any]]:
    for cell in json.loads((EXAMPLES / name).read_text())["cells"]:
        yield {**cell, "source": "".join(cell["source"])}


def shown(value: Any) -> str:
    """As a notebook shows it."""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell, of Python or of commands, and show its last value, where that is an expression."""
    if source.startswith("!"):
        return "".join(run_command(line.removeprefix("!"), names) for line in source.splitlines())
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "a cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return ""
    return shown(eval(compile(ast.Expression(last.value), "a cell", "eval"), names))


def run_command(line: str, names: dict[str, Any]) -> str:
    """Run `pods`, with the values of the kernel in place of {…}, and return what it prints."""
    pods, *words = shlex.split(eval(f"f{line!r}", names))
    assert pods == "pods"
    done = children.run([sys.executable, "-m", "podsrl.cli", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel's module, in a folder of its own."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("podsrl.cli.progress.errors", Console(stderr=True, force_jupyter=True))
    return module


@pytest.mark.parametrize("name", [FIRST, REAL])
def test_a_notebook_holds_no_output(name: str) -> None:
    code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
    assert code and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_every_cell_runs_and_shows_what_its_text_says(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = [run_cell(cell["source"], vars(main)) for cell in cells(FIRST) if cell["cell_type"] == "code"]
    said = capsys.readouterr().out
    names, _, run, _, group, accuracy, page, kept, _ = outputs
    assert "'train'" in names and run.count("<img") == 2
    assert group.count("✓") == 8 and group.count("<tr>") == 33  # a heading and 32 rollouts, of which 8 were kept
    assert accuracy.startswith("Accuracy(") and Path(main.run.report()).is_file() and "report.html" in page
    assert kept == "[0, 1]"
    assert main.run.curves()["eval/accuracy"][-1] > 0.5  # it has learned
    assert "\rtraining" in said and said.splitlines()[-1].endswith("Did you mean 'select.num_kept'?")
    assert "warning: reward '__main__:brief' runs in the main process" in said


def test_the_notebook_of_a_real_model_runs_with_a_tiny_one(main: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, network, *rest = (cell for cell in cells(REAL) if cell["cell_type"] == "code")
    assert parameters["metadata"] == {"tags": ["parameters"]} and network["metadata"] == {"tags": ["network"]}
    run_cell(parameters["source"], vars(main))
    assert main.RECIPE in recipe_names()
    Path("small.toml").write_text(SMALL)
    main.MODEL, main.RECIPE = "builtin:arithmetic", "small.toml"
    main.MINUTES, main.TOKENS, main.MEASURE = 1 / 60, 24, 2
    sources = [cell["source"] for cell in rest]
    drive, doctor, config, reward, plan, dry_run, run, group, accuracies, page, longer = sources
    with monkeypatch.context() as colab:
        mounted: list[str] = []
        colab.setitem(
            sys.modules, "google.colab", types.SimpleNamespace(drive=types.SimpleNamespace(mount=mounted.append))
        )
        colab.setattr(os, "chdir", mounted.append)
        run_cell(drive, vars(main))
        assert mounted == ["/content/drive", "/content/drive/MyDrive"]
    run_cell(drive, vars(main))  # elsewhere it changes nothing
    assert "torch" in run_cell(doctor, vars(main))
    assert "num_rollouts=16" in run_cell(config, vars(main))
    assert run_cell(reward, vars(main)).count(", [], [") == 2  # of two rewards neither has a problem
    assert run_cell(plan, vars(main)).startswith("('--rollouts.num_rollouts=")
    assert "memory" in run_cell(dry_run, vars(main))
    assert run_cell(run, vars(main)).count("<img") == 2
    num_rollouts = main.found.best.num_rollouts
    assert run_cell(group, vars(main)).count("<tr>") == num_rollouts + 1
    assert run_cell(accuracies, vars(main)).count("128 questions") == 2
    assert run_cell(page, vars(main)).startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    num_steps = len(main.run.curves()["step"])
    run_cell(run, vars(main))  # as after a disconnect: nothing is left to do
    assert len(main.run.curves()["step"]) == num_steps
    main.MINUTES = (main.run.curves()["seconds/train_elapsed"][-1] + 0.5) / 120  # however long its first step took
    run_cell(longer, vars(main))
    assert len(main.run.curves()["step"]) > num_steps
