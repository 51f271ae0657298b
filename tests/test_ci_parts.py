"""A part of CI is left out only where nothing that it reaches has changed since it passed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import parts
from test_imports import imported

ROOT = Path(__file__).parents[1]
FILES = {
    "src/podsrl/__init__.py": '_HOMES = {"Late": "podsrl.lazy.late"}\n',
    "src/podsrl/lazy/__init__.py": "",
    "src/podsrl/lazy/late.py": "",
    "src/podsrl/near.py": "from podsrl.far import (\n    deep,  # a submodule\n)\n",
    "src/podsrl/far/__init__.py": "",
    "src/podsrl/far/deep.py": "",
    "src/podsrl/far/page.css": "",
    "src/podsrl/far/weights/model.bin": "",
    "src/podsrl/elsewhere/__init__.py": "",
    "src/podsrl/elsewhere/page.css": "",
    "src/podsrl/asked.py": "",
    "src/podsrl/not_asked.py": "",
    "src/podsrl/named.py": "",
    "src/podsrl/of_script.py": "",
    "tests/conftest.py": (
        "@pytest.fixture\ndef asked(below):\n    import podsrl.asked\n\n"
        "@pytest.fixture\ndef not_asked():\n    import podsrl.not_asked\n\n"
        "@pytest.fixture(autouse=True)\ndef below():\n    import of_all\n"
    ),
    "tests/of_all.py": "",
    "tests/few/conftest.py": "",
    "tests/few/test_few.py": (
        "import helper\nfrom podsrl import near\nCODE = 'podsrl.named:function'\n"
        "script = Path(__file__).with_name('script.py')\n\ndef test_it(asked: int) -> None: ...\n"
    ),
    "tests/other/helper.py": "",
    "tests/other/script.py": "import podsrl.of_script\n",
    "tests/other/test_other.py": "import podsrl.elsewhere\n",
    "Makefile": "",
}
REACHED = [file for file in FILES if not any(word in file for word in ("elsewhere", "test_other", "/not_asked"))]
Runs = Callable[[], bool]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A small repository, its folder; each call: whether the command of its one part runs now."""
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "PARTS", {"few": ("tests/few/*.py",)})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ALL", "CI_TABLE"):
        monkeypatch.delenv(name, raising=False)

    def run() -> bool:
        assert parts.main("few", ["touch", "ran"]) == 0
        has_run = Path("ran").exists()
        Path("ran").unlink(missing_ok=True)
        return has_run

    return run


def test_it_is_left_out_once_it_has_passed(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert [runs(), runs(), runs()] == [True, False, False]
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "== few runs: it has not passed on this machine"
    assert second == third
    assert (
        f"== few left out: none of the {len(REACHED)} files that it reaches has changed since it passed on 2" in third
    )


@pytest.mark.parametrize("file", REACHED)
def test_it_runs_again_when_a_file_that_it_reaches_changes(
    runs: Runs, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs()
    Path(file).write_text(f"{FILES[file]}# changed\n")
    assert [runs(), runs()] == [True, False]
    assert f"== few runs: 1 of what it reaches changed: {file}\n" in capsys.readouterr().out


@pytest.mark.parametrize("file", sorted({*FILES} - {*REACHED}))
def test_it_does_not_when_another_file_changes(runs: Runs, file: str) -> None:
    runs()
    Path(file).write_text("changed")
    assert not runs()


def test_it_runs_again_when_a_file_goes_or_comes(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs()
    Path("src/podsrl/far/page.css").rename("src/podsrl/far/new.css")
    for name in "abc":
        Path(f"tests/few/test_{name}.py").touch()
    assert [runs(), runs()] == [True, False]
    changed = "5 of what it reaches changed: src/podsrl/far/new.css, src/podsrl/far/page.css, tests/few/test_a.py, …\n"
    assert changed in capsys.readouterr().out


def test_it_runs_again_when_a_test_begins_to_ask_for_a_fixture(runs: Runs) -> None:
    runs()
    Path("tests/few/test_few.py").write_text("@pytest.mark.usefixtures('not_asked')\ndef test_it() -> None: ...\n")
    runs()
    Path("src/podsrl/not_asked.py").write_text("changed")
    assert runs()


def test_it_runs_again_after_it_failed(runs: Runs) -> None:
    assert parts.main("few", ["false"]) == 1
    assert runs()
    Path("Makefile").write_text("changed")
    assert parts.main("few", ["sh", "-c", "exit 7"]) == 7
    assert runs()


def test_what_changes_while_it_runs_counts_as_changed(runs: Runs) -> None:
    command = ["sh", "-c", "echo >> Makefile; touch ran"]
    for _ in range(2):
        assert parts.main("few", command) == 0
        assert Path("ran").exists()
        Path("ran").unlink()


def test_without_its_own_environment_it_is_left_out(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(parts, "OWN_ENVIRONMENT", ("few",))
    monkeypatch.setenv("CI_TABLE", str(tmp_path / "table"))
    assert not runs()
    reason = "left out: there is no .venv-few (make test-few makes it)"
    assert capsys.readouterr().out == f"== few {reason}\n"
    assert (tmp_path / "table").read_text() == f"few\t{reason}\n"
    monkeypatch.setenv("FEW_VENV", "own")
    Path("own/bin").mkdir(parents=True)
    Path("own/bin/pytest").touch()
    assert runs()


@pytest.mark.parametrize(
    ("part", "wanted", "unwanted"),
    [
        (
            "device",
            {"src/podsrl/run/step/trainer.py", "tests/device/pretend.cpp"},
            {"docs/site.py", "README.md"},
        ),
        ("vllm", {"src/podsrl/cli/main.py", "tests/generate/contract.py"}, {"docs/site.py"}),
        ("peers", {"src/podsrl/integrations/art.py", "examples/05_verl.py", "docs/from-verl.md"}, {"docs/engine.md"}),
        ("wheel", {"src/podsrl/py.typed", "README.md", "constraints.txt", ".ci/wheel"}, {"docs/site.py"}),
        ("site", {"docs/site.py", "CONTRIBUTING.md", "mkdocs.yml", "src/podsrl/types.py"}, {"tests/test_docs.py"}),
    ],
)
def test_parts_of_this_repository(
    part: str, wanted: set[str], unwanted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = set(map(str, parts.reached(parts.PARTS[part])))
    if part == "vllm":
        wanted |= {str(path.relative_to(ROOT)) for path in ROOT.glob("src/podsrl/generate/vllm/*.py")}
    assert wanted <= found and not unwanted & found


@pytest.mark.slow
def test_no_import_is_overlooked() -> None:
    for folder in ("src", "tests", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            assert set(imported(ast.parse(text))) <= parts.named(text), path
