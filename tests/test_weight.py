"""Weight above a budget fails, and `--lower` only lowers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "weight"


def test_what_is_above_its_budget_is_named_and_no_budget_is_raised(tmp_path: Path) -> None:
    files = {"src/podsrl/lib/a.py": 201, "src/podsrl/b.py": 100, "tests/c.py": 1, "docs/d.md": 100, "docs/new.py": 900}
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a word\n" * lines)
    budgets = tmp_path / ".ci" / "weights"
    budgets.parent.mkdir()
    shutil.copy(SCRIPT, budgets.parent)
    for words in (["init", "-q"], ["add", "src", "tests", "docs"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)

    def weigh(*words: str) -> tuple[int, list[str]]:
        done = subprocess.run([budgets.with_name("weight"), *words], capture_output=True, text=True, check=False)
        return done.returncode, [line.split()[0] for line in done.stdout.splitlines() if "too heavy" in line]

    assert weigh("--lower") == (0, [])
    text = "src/podsrl/*.py 100\nsrc/podsrl/lib 300\ntests 100\nwords of the pages 200\n"
    assert budgets.read_text() == text
    (tmp_path / "src/podsrl/b.py").write_text("\n" * 101)
    (tmp_path / "tests/not_tracked.py").write_text("\n" * 1000)
    assert weigh() == weigh("--lower") == (1, ["src/podsrl/*.py"])
    assert budgets.read_text() == text
    (tmp_path / "src/podsrl/b.py").write_text("")
    (tmp_path / "src/podsrl/lib/a.py").write_text("\n" * 200)
    assert weigh("--lower") == (0, []) and "src/podsrl/lib 200\n" in budgets.read_text()
    assert weigh("--raise")[0] == 1
