"""The README's Python blocks run as they stand, and print what their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def block_with(text: str) -> str:
    [found] = [block for block in BLOCKS if text in block]
    return found


def test_the_selector_prints_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    block = block_with("max_variance(rewards, 4)")
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == block.partition("# ")[2].strip()


@pytest.mark.slow
def test_the_trainer_takes_two_steps(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block_with("training_step(trainer)"), "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(line.endswith("[16, 16]") for line in lines)
