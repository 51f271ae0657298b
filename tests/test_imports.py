"""The shape of the source: which part may import which, and in which order they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from loops import each

SOURCE = Path(__file__).parents[1] / "src" / "podsrl"
FILES = sorted(SOURCE.rglob("*.py"))
STAGES = {"tasks", "control", "generate", "score", "select", "update", "sync"}
LIGHT = {"config", "cli", "types", "errors"}
SHARED = {"types", "errors", "lib", "config"}
"""What a stage may import besides itself; of config its sections, whose defaults stand there alone."""
HEAVY = {"torch", "transformers", "numpy"}
FLOORS = (
    {"errors"},
    {"lib", "types"},
    {"config", "records", *STAGES, "policy"},
    {"systems"},
    {"scale"},
    {"run"},
    {"compare", "evaluation"},
    {"tools", "plan", "report"},
    {"integrations"},
    {"cli"},
    {"api"},
)
"""The parts of the package from the ground up: a part imports from lower floors, and from its own without a circle."""
ROOMS = ("before", "saving", "step")
"""The rooms of run/: each imports from those before it, and what stands beside them from all."""


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


@cache
def own_parts(path: Path) -> frozenset[str]:
    """Which parts of this package a file imports."""
    names = [name.split(".") for name in imported(ast.parse(path.read_text()))]
    return frozenset(parts[1] for parts in names if parts[0] == "podsrl")


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


@each("path", [path for path in FILES if part_of(path) in STAGES], few=33)
def test_a_stage_imports_what_is_shared_and_itself(path: Path) -> None:
    assert own_parts(path) <= {*SHARED, part_of(path)}


@each("path", [path for path in FILES if part_of(path) == "lib"])
def test_what_stages_share_imports_errors_and_itself(path: Path) -> None:
    assert own_parts(path) <= {"errors", "lib"}


@each("path", [path for path in FILES if part_of(path) in LIGHT])
def test_config_and_command_line_import_nothing_heavy_when_loaded(path: Path) -> None:
    at_import = without_function_bodies(ast.parse(path.read_text()))
    assert not {name.split(".")[0] for name in imported(at_import)} & HEAVY


def imports_between_parts() -> dict[str, set[str]]:
    """Each part of the package, and the other parts that it imports."""
    edges: dict[str, set[str]] = {}
    for path in FILES:
        edges.setdefault(part_of(path), set()).update(own_parts(path) - {part_of(path)})
    return edges


def circle_in(edges: dict[str, set[str]]) -> list[str]:
    """One circle of imports, or nothing."""

    def follow(way: list[str]) -> list[str]:
        for part in sorted(edges.get(way[-1], ())):
            if part in way:
                return [*way[way.index(part) :], part]
            if circle := follow([*way, part]):
                return circle
        return []

    return next((circle for part in sorted(edges) if (circle := follow([part]))), [])


def test_no_folders_import_each_other_in_a_circle() -> None:
    edges = {part: others for part, others in imports_between_parts().items() if part != "__init__"}
    assert circle_in(edges) == []


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_a_part_imports_from_lower_floors_only() -> None:
    floor = {part: height for height, parts in enumerate(FLOORS) for part in parts}
    edges = {part: others for part, others in imports_between_parts().items() if part not in {"__init__", "__main__"}}
    upward = [(part, other) for part, others in edges.items() for other in others if floor[other] > floor[part]]
    assert upward == []


@each("path", [path for path in FILES if path.relative_to(SOURCE).parts[:-2] == ("run",) and path.parts[-2] in ROOMS])
def test_a_room_of_a_run_imports_from_the_rooms_before_it(path: Path) -> None:
    names = [name.split(".") for name in imported(ast.parse(path.read_text())) if name.startswith("podsrl.run.")]
    assert {parts[2] for parts in names} <= set(ROOMS[: ROOMS.index(path.parts[-2]) + 1])


def test_the_checks_see_what_they_look_for() -> None:
    tree = ast.parse(
        "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from d import e\nclass X:\n    import g"
    )
    assert sorted(imported(tree)) == ["a.b", "c", "d.e", "g"]
    assert sorted(imported(without_function_bodies(tree))) == ["a.b", "g"]


@pytest.mark.parametrize("name", ["vllm", "ray", "trl"])
def test_no_folder_of_the_tests_has_the_name_of_a_package(name: str) -> None:
    """pytest puts folders of tests on the path, where libraries would find it instead of the package."""
    assert [path for path in Path(__file__).parent.rglob(name) if path.is_dir()] == []
