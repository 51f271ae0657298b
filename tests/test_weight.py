"""Weight above a budget fails, and `--lower` only lowers."""

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "weight"


def test_what_is_above_its_budget_is_named_and_no_budget_is_raised(tmp_path: Path) -> None:
    budgets = tmp_path / ".ci" / "weights"
    for name, lines in {"src/podsrl/lib/a.py": 201, "src/podsrl/b.py": 100, "docs/d.md": 100, ".ci/a": 1}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a word\n" * lines)
    shutil.copy(SCRIPT, budgets.parent)
    subprocess.run("git init -q && git add .", shell=True, cwd=tmp_path, check=True)
    (tmp_path / "src/podsrl/not_tracked.py").write_text("\n" * 1000)

    def weigh(*words: str) -> tuple[int, list[str]]:
        done = subprocess.run([budgets.with_name("weight"), *words], capture_output=True, text=True)
        return done.returncode, [line.split()[0] for line in done.stdout.splitlines() if "too heavy" in line]

    assert weigh("--lower") == (0, [])
    assert budgets.read_text() == "src/podsrl/*.py 100\nsrc/podsrl/lib 300\nwords of the pages 200\n"
    (tmp_path / "src/podsrl/b.py").write_text("\n" * 101)
    (tmp_path / "src/podsrl/lib/a.py").write_text("\n" * 200)
    assert weigh() == weigh("--lower") == (1, ["src/podsrl/*.py"])
    (tmp_path / "src/podsrl/b.py").write_text("")
    assert weigh("--lower") == (0, [])
    assert budgets.read_text() == "src/podsrl/*.py 0\nsrc/podsrl/lib 200\nwords of the pages 200\n"
