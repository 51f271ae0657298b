"""The notebooks run: their cells as a kernel runs them, in the module `__main__`, with what each of them shows."""

from __future__ import annotations

import ast
import json
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
task.num_eval = 8
rollouts = { num_prompts = 1, num_rollouts = 8, max_new_tokens = 16 }
select.num_kept = 4
"""
ARMS = """
baseline = "grpo"
[base]
extends = "small.toml"
[arms.grpo]
select = { rule = "keep_all", num_kept = 8 }
[arms.pods]
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


def test_the_notebook_of_a_real_model_runs_with_a_tiny_one(main: Any) -> None:
    parameters, network, *rest = (cell for cell in cells(REAL) if cell["cell_type"] == "code")
    assert parameters["metadata"] == {"tags": ["parameters"]} and network["metadata"] == {"tags": ["network"]}
    run_cell(parameters["source"], vars(main))
    assert {main.RECIPE, main.ARMS} <= {*recipe_names()}
    assert network["source"].splitlines()[-1] == "!pods models smollm2-135m"
    Path("small.toml").write_text(SMALL)
    Path("arms.toml").write_text(ARMS)
    main.RECIPE, main.ARMS, main.SECONDS = "small.toml", "arms.toml", 1
    run, first, last, table, page = (run_cell(cell["source"], vars(main)) for cell in rest)
    assert run.count("<img") == 2 and first.count("<tr>") == last.count("<tr>") == 9  # a heading and 8 rollouts
    assert "8 → 8" in table and "8 → 4" in table
    assert page.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and page.endswith('height="900"></iframe>')
