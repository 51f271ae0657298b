"""The Python blocks of docs/from-trl.md run, one after the other, as they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pages import ROOT, blocks

PAGE = (ROOT / "docs" / "from-trl.md").read_text()


def test_the_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    threads = torch.get_num_threads()
    names: dict[str, object] = {"__name__": "page"}
    try:
        texts = [block.text for block in blocks(PAGE) if block.kind == "python"]
        for text in texts:
            exec(compile(text, "docs/from-trl.md", "exec"), names)
    finally:
        torch.set_num_threads(threads)
    assert len(texts) == 3 and {"MyTrainer", "weights"} <= set(names)


def test_the_commands_of_the_page_do_what_it_says(pods: Callable[..., tuple[int, str, str]]) -> None:
    [made] = re.findall(r"(?m)^pods (config .*) > mine.toml", PAGE)
    code, config, _ = pods(*made.split())
    Path("mine.toml").write_text(config)
    assert (code, pods("train", "mine.toml", "--dry-run")[0]) == (0, 0)
    [asked] = re.findall(r"(?m)^pods (config num_generations)$", PAGE)
    code, said, _ = pods(*asked.split())
    assert code == 0 and "rollouts.num_rollouts" in said
