"""The Python blocks of docs/from-trl.md run, one after the other, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs" / "from-trl.md").read_text()


@pytest.mark.slow
def test_the_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    threads = torch.get_num_threads()
    names: dict[str, object] = {"__name__": "page"}
    try:
        blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
        for block in blocks:
            exec(compile(block, "docs/from-trl.md", "exec"), names)
    finally:
        torch.set_num_threads(threads)
    assert len(blocks) == 3 and {"MyTrainer", "weights"} <= set(names)
