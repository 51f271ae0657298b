"""The shape of the source: which part may import which, and how long a function or a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "podsrl"
FILES = sorted(SOURCE.rglob("*.py"))
STAGES = {"tasks", "control", "generate", "score", "replay", "select", "update", "sync"}
KNOW_EVERY_STAGE = {"run", "bench", "cli", "scale", "integrations"}
LIGHT = {"config", "cli", "types", "errors"}
SHARED = {"types", "errors", "lib", "config"}
"""What a stage may import besides itself; of config its sections, whose defaults stand there alone."""
HEAVY = {"torch", "transformers", "numpy"}
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def part_of(path: Path) -> str:
    """The folder, or the module, right below the package."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything that is imported anywhere in it; "from a import b" gives "a.b"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_parts(path: Path) -> set[str]:
    """Which parts of this package a file imports."""
    names = [name.split(".") for name in imported(ast.parse(path.read_text()))]
    return {parts[1] for parts in names if parts[0] == "podsrl"}


def without_function_bodies(tree: ast.Module) -> ast.Module:
    """What runs when the module is imported; types for checkers only do not."""

    class Strip(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None: ...

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None: ...

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if ast.unparse(node.test).endswith("TYPE_CHECKING") else self.generic_visit(node)

    stripped = Strip().visit(tree)
    assert isinstance(stripped, ast.Module)
    return stripped


def test_the_source_is_where_these_tests_look() -> None:
    assert {"types", "errors", "lib", "generate", "select", "update", "run", "cli"} <= {part_of(path) for path in FILES}


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) in STAGES], ids=name_of)
def test_a_stage_imports_what_is_shared_and_itself(path: Path) -> None:
    assert own_parts(path) <= {*SHARED, part_of(path)}


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) == "lib"], ids=name_of)
def test_what_stages_share_imports_errors_and_itself(path: Path) -> None:
    assert own_parts(path) <= {"errors", "lib"}


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) not in STAGES | KNOW_EVERY_STAGE], ids=name_of)
def test_only_run_bench_and_the_command_line_know_the_stages(path: Path) -> None:
    assert not own_parts(path) & STAGES


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) in LIGHT], ids=name_of)
def test_config_and_command_line_import_nothing_heavy_when_loaded(path: Path) -> None:
    at_import = without_function_bodies(ast.parse(path.read_text()))
    assert not {name.split(".")[0] for name in imported(at_import)} & HEAVY


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno + 1 <= MAX_FUNCTION_LINES, f"{name_of(path)}: {node.name}"


def test_the_checks_see_what_they_look_for() -> None:
    tree = ast.parse(
        "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from d import e\nclass X:\n    import g"
    )
    assert sorted(imported(tree)) == ["a.b", "c", "d.e", "g"]
    assert sorted(imported(without_function_bodies(tree))) == ["a.b", "g"]
