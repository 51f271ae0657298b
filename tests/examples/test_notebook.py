"""The notebook runs: its cells as a kernel runs them, in the module `__main__`, with what each of them shows."""

from __future__ import annotations

import ast
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

NOTEBOOK = Path(__file__).parents[2] / "examples" / "07_notebook.ipynb"


def cells() -> Iterator[dict[str, Any]]:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        yield {**cell, "source": "".join(cell["source"])}


def shown(value: Any) -> str:
    """As a notebook shows it."""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell and show its last value, where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    if not isinstance(last, ast.Expr):
        return ""
    return shown(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names))


def test_the_notebook_holds_no_output() -> None:
    assert all(
        not cell["outputs"] and cell["execution_count"] is None for cell in cells() if cell["cell_type"] == "code"
    )


def test_every_cell_runs_and_shows_what_its_text_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("podsrl.cli.progress.errors", Console(stderr=True, force_jupyter=True))
    outputs = [run_cell(cell["source"], vars(main)) for cell in cells() if cell["cell_type"] == "code"]
    said = capsys.readouterr().out
    names, _, run, _, group, accuracy, page, kept, _ = outputs
    assert "'train'" in names and run.count("<img") == 2
    assert group.count("✓") == 8 and group.count("<tr>") == 33  # a heading and 32 rollouts, of which 8 were kept
    assert accuracy.startswith("Accuracy(") and Path(main.run.report()).is_file() and "report.html" in page
    assert kept == "[0, 1]"
    assert main.run.curves()["eval/accuracy"][-1] > 0.5  # it has learned
    assert "\rtraining" in said and said.splitlines()[-1].endswith("Did you mean 'select.num_kept'?")
    assert "warning: reward '__main__:brief' runs in the main process" in said
