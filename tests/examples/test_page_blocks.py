"""Every block of README and docs/*.md runs, in the order of the page, or says why not (tests/pages.py has the rules).

A page has one folder and one namespace. What a line `print(...)  # text` prints is compared with the text. Commands of
`pods` run in this process, with fewer steps and rollouts where they would take long; what they read and the page does
not make (`my.toml`, `runs/mine`, `answers.jsonl`) comes from a small run of the recipe `pods`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from loops import each
from pages import DOCS, ROOT, SHELL, SHOWN, Block, blocks
from podsrl.config.load import load_config

Pods = Callable[..., tuple[int, str, str]]
SMALL = {
    "rollouts.num_prompts": "2",
    "rollouts.num_rollouts": "16",
    "select.num_kept": "4",
    "rollouts.max_new_tokens": "24",
    "task.num_eval": "8",
    "eval.every_seconds": "0",
    "stop.seconds": "0",
    "stop.steps": "1",
    "model.device": "cpu",
}
LONGER = {"stop.steps": "2", "stop.seconds": "0"}
"""For a resumed run."""
SMALLER = {
    "train": SMALL,
    "eval": {"num-questions": "4", "samples": "2"},
    "plan": {"measure": "1"},
    "compare": {"num_seeds": "1", "base.stop.seconds": "1", "base.task.num_eval": "8"},
}
"""Command -> flags that replace those of the page or are added."""
REPLACED = ("stop.", "num-questions", "samples")
"""Flags of the page that give way; others stand."""
INSTALLS = "pip install "
"""Begins commands that no test runs: CI installs the project in a clean environment."""
SAY_WHY = "say why in the line before it: <!-- not run: … -->"
NUMBERS = count()
PREPARED = ("my.toml", "runs/mine", "answers.jsonl")


def smaller(words: list[str]) -> list[str]:
    """The words of a `pods` command, made short."""
    flags = SMALLER.get(words[0], {})
    if "--resume" in words:
        flags = LONGER
    if words[0] == "train" and ("--dry-run" in words or "--help" in words):
        return words
    kept, words = [], [*words]
    while words:
        word = words.pop(0)
        name, sign, _ = word.removeprefix("--").partition("=")
        if not (word.startswith("--") and name in flags and name.startswith(REPLACED)):
            kept.append(word)
        elif not sign and words and not words[0].startswith("-"):
            words.pop(0)
    if kept[0] == "train" and not {"--resume", "--out"} & {*kept}:
        kept += ["--out", f"runs/{next(NUMBERS)}"]  # the name by default has the time in seconds
    given = {word.removeprefix("--").partition("=")[0] for word in kept if word.startswith("--")}
    return [*kept, *(f"--{name}={value}" for name, value in flags.items() if name not in given)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what a page's reader has and the page does not make; filled when first needed."""
    yield tmp_path_factory.mktemp("prepared")


def prepare(word: str, folder: Path, prepared: Path, pods: Pods) -> None:
    """Put a file or run into the folder that a command reads, and no block made."""
    name = next((name for name in PREPARED if word == name or word.startswith(f"{name}/")), None)
    if name is None or (folder / name).exists():
        return
    source = prepared / name
    if not source.exists():
        made = {
            "my.toml": ["config", "--resolved", "pods"],
            "runs/mine": ["train", "pods", "--out", str(source)],
            "answers.jsonl": ["eval", "pods", "--out", str(source)],
        }[name]
        code, out, err = pods(*smaller(made))
        assert code == 0, err
        if name == "my.toml":
            source.write_text(out)
    (folder / name).parent.mkdir(exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)


def run_command(command: str, folder: Path, prepared: Path, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command, comments=True)
    promised = re.search(r"#.*exit code (\d)", command)
    assert "--live" not in words, f"{command}: serves until Ctrl-C; {SAY_WHY}"
    if command.startswith(INSTALLS):
        return
    if words[0] == "export":
        for name, _, value in (word.partition("=") for word in words[1:]):
            monkeypatch.setenv(name, value.replace("$PWD", str(folder)))
        return
    if words[0] == "pods":
        *words, sign, file = words if words[-2:-1] == [">"] else [*words, "", ""]
        for before, word in pairwise(words):
            if before not in ("--out", "-o"):
                prepare(word, folder, prepared, pods)
        code, out, err = pods(*smaller(words[1:]))
        if sign:
            (folder / file).write_text(out)
    else:
        env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        ended = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=300)
        code, err = ended.returncode, ended.stderr
    assert code == (int(promised[1]) if promised else 0), f"{command}\n{err}"


def forget_modules(folder: Path) -> None:
    """A later block may add to a file, and another page may have a file of the same name."""
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def write_file(block: Block, folder: Path) -> None:
    assert block.file is not None
    with (folder / block.file).open("a") as file:
        file.write(block.text + "\n")
    if block.kind == "python":
        forget_modules(folder)
        exec(compile(block.text, block.file, "exec"), {"__name__": block.file.removesuffix(".py")})


def fits(promised: str, printed: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in promised.split("…")), printed) is not None


def run_python(block: Block, page: Path, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's line
    capsys.readouterr()
    exec(compile(code, str(page), "exec"), names)
    printed = capsys.readouterr().out.strip().splitlines()
    promised = [line.strip() for line in re.findall(r"(?m)^ *print\(.*\)  # (.*)$", block.text)]
    for line in promised:
        assert any(fits(line, other) for other in printed), (line, printed)
    if promised and block.text.count("print(") == len(promised):
        for other in printed:
            assert any(fits(line, other) for line in promised), (other, promised)


def unmarked(page: Path) -> list[Block]:
    return [block for block in blocks(page.read_text()) if not block.is_marked and block.kind not in SHOWN]


@each("page", DOCS)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    text = page.read_text()
    assert text.count("\n```") == 2 * len(blocks(text)), "a block that does not begin and end at the margin"
    for block in blocks(text):
        where = f"{page.name}, line {block.line}"
        is_known = block.kind in (*SHELL, *SHOWN, "python", "toml")
        assert is_known or block.is_marked, f"{where}: a block of another language; {SAY_WHY}"
        if block.mark.startswith("run by "):
            test = ROOT / block.mark.removeprefix("run by ")
            assert test.is_file() and page.name in test.read_text(), f"{where}: {test} does not read this page"
        if block.kind in SHELL and not block.is_marked:
            assert block.commands, f"{where}: no command; a block that shows something is ```text"
            for command in block.commands:
                can_run = command.startswith(("pods ", "python ", "export ", INSTALLS)) and "--live" not in command
                assert can_run, f"{where}: {command!r} does not run here; {SAY_WHY}"


@pytest.mark.parametrize("page", [page for page in DOCS if unmarked(page)], ids=lambda page: page.name)
def test_the_blocks_run(
    page: Path,
    tmp_path: Path,
    prepared: Path,
    pods: Pods,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(tmp_path)]))
    names: dict[str, Any] = {"__name__": "page"}
    missing = set()
    try:
        for block in unmarked(page):
            if block.needs and find_spec(block.needs) is None:
                missing.add(block.needs)
                continue
            if block.file:
                write_file(block, tmp_path)
            elif block.kind == "python":
                run_python(block, page, names, capsys)
            elif block.kind == "toml":
                (tmp_path / "part.toml").write_text(block.text)
                load_config(tmp_path / "part.toml")
            for command in block.commands:
                run_command(command, tmp_path, prepared, pods, monkeypatch)
    finally:
        forget_modules(tmp_path)
    if missing:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}; the page's other blocks ran")


def test_a_mark_belongs_to_the_block_below_it_or_to_the_whole_page() -> None:
    python = "<!-- needs trl -->\n```python\nx\n```\n"
    page = python + "\n<!-- a note -->\n\n```\npods train \\\n  pods  # so\nexport A=b\n```\n"
    first, second = blocks(page)
    assert (first.needs, first.is_marked, second.mark, second.line) == ("trl", False, "", 9)
    assert second.commands == ["pods train \\\n  pods  # so", "export A=b"]
    [first, second] = blocks(f"{page}<!-- all run by tests/x.py -->\n")
    assert (first.needs, second.mark, second.is_marked) == ("trl", "run by tests/x.py", True)


def test_blocks_that_name_a_file_are_that_file() -> None:
    page = "```python\n# my_rule.py    pods train pods --select.rule=my_rule:pick\nx\n```\n```toml\n# seed = 3\n```\n"
    rule, part = blocks(page)
    assert (rule.file, rule.commands) == ("my_rule.py", ["pods train pods --select.rule=my_rule:pick"])
    assert (part.file, part.commands) == (None, [])


def test_what_is_printed_is_compared_with_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = (Block("python", f"print([1, 2.5])  # [{one}, …]\n", "", 1) for one in (1, 2))
    run_python(right, ROOT / "README.md", {}, capsys)
    with pytest.raises(AssertionError):
        run_python(wrong, ROOT / "README.md", {}, capsys)
