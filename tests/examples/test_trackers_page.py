"""The commands and code of docs/trackers.md do what the page says, in small runs."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import children
import tracker_tools
from pages import ROOT, blocks
from podsrl.config.load import build
from podsrl.config.schema import RunConfig
from podsrl.integrations.trackers.table import COLUMNS
from podsrl.run.before.checks import is_installed
from small_options import SMALL

PAGE = (ROOT / "docs" / "trackers.md").read_text()
BLOCKS = blocks(PAGE)
COMMANDS = [command for block in BLOCKS for command in block.commands]
INSTALLED = pytest.mark.skipif(
    not all(map(is_installed, ("wandb", "tensorboard", "trackio", "mlflow"))), reason="a tracker is not installed"
)


def test_the_page_names_what_there_is() -> None:
    (toml,) = [block.text for block in BLOCKS if block.kind == "toml"]
    assert build(RunConfig, tomllib.loads(toml), "of the page").record.trackers == ("wandb", "mlflow")
    columns = PAGE.partition("Its columns are ")[2].partition("\n\n")[0]
    assert list(COLUMNS) == re.findall(r"`(\w+)`", columns)


@INSTALLED
def test_the_commands_of_the_page_track(tmp_path: Path, pods: Callable[..., tuple[int, str, str]]) -> None:
    first, *shared = [shlex.split(line)[1:] for line in COMMANDS if line.startswith("pods train")]
    with tracker_tools.only_here(tmp_path) as patch:
        code, out, err = pods(*first, *SMALL, "--stop.steps=2")
        assert code == 0, err
        (command,) = [line for line in PAGE.splitlines() if line.startswith("| `tensorboard` | `tensorboard ")]
        assert re.findall(r"`(tensorboard --logdir .*?)`", command)[0] in out + err
        (exported,) = [shlex.split(line)[1:] for line in COMMANDS if line.startswith("export ")]
        for name, _, value in (word.partition("=") for word in exported):
            patch.setenv(name, value.replace("$PWD", str(tmp_path)))
        for i, words in enumerate(shared):
            code, _, err = pods(*words, *SMALL, "--stop.steps=2", "--out", f"runs/{i}")
            assert code == 0, err
    databases = list((tmp_path / "tracked").glob("*.db"))
    runs = list((tmp_path / "tracked" / "mlflow").glob("*/*/meta.yaml"))
    assert len(databases) == 1 and len(runs) == len(shared) == 2


@INSTALLED
def test_the_code_of_the_page_tracks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = [block.text for block in BLOCKS if block.kind == "python"]
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tensorboard --logdir runs/python/trackers/tensorboard" in done.stdout + done.stderr
