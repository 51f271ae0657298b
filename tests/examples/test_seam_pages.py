"""The mistakes that the pages of the seams show end a command with the line that stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pages import ROOT, blocks

SHOWN = [
    (page, command, line)
    for page in ("tasks", "rewards", "own-generator")
    for block in blocks((ROOT / "docs" / f"{page}.md").read_text())
    if block.kind == "text"
    for command, line in re.findall(r"^\$ pods (.*)\n(.+)$", block.text, re.MULTILINE)
]


@pytest.mark.parametrize(("page", "command", "line"), SHOWN, ids=[command.split(":")[-1] for _, command, _ in SHOWN])
def test_a_mistake_ends_with_the_line_of_the_page(
    page: str,
    command: str,
    line: str,
    tmp_path: Path,
    pods: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for block in blocks((ROOT / "docs" / f"{page}.md").read_text()):
        if block.file and block.file.startswith("wrong_"):
            (tmp_path / block.file).write_text(block.text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the processes of rewards
    code, _, err = pods(*shlex.split(command))
    assert code != 0 and "Traceback" not in err
    assert re.fullmatch(".*".join(map(re.escape, line.split("…"))), err.strip().splitlines()[-1]), err
