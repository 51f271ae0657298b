"""The commands of docs/generators.md do what the page says, as far as two cores can: small steps, the built-in model,
and servers that speak vLLM's routes around the built-in engine."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_server import serving

import children
from pages import ROOT, blocks
from podsrl.policy import model_folder
from small_options import SMALL

PAGE = ROOT / "docs" / "generators.md"
COMMANDS = [
    command
    for block in blocks(PAGE.read_text())
    if block.mark.endswith(Path(__file__).name)
    for command in block.commands
    if command.startswith("pods ")
]


def run(command: str, urls: str) -> children.CompletedProcess[str]:
    """Run a command of the page with addresses of this machine."""
    words = []
    for word in shlex.split(command, comments=True)[1:]:
        if word.startswith("--model.path"):
            continue
        word = "pods" if word == "my.toml" else word
        words.append(f"--rollouts.generator=vllm+{urls}" if word.startswith("--rollouts.generator=vllm+") else word)
    where = () if "--out" in words else ("--out", "runs/mine")
    command_line = [sys.executable, "-m", "podsrl.cli", *words, *SMALL, "--stop.steps=2", "--model.device=cpu", *where]
    return children.run(command_line, capture_output=True, text=True, timeout=300)


@pytest.fixture
def servers() -> Iterator[list[str]]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = model_folder("builtin:arithmetic")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with ExitStack() as stack:
        yield [stack.enter_context(serving(model, tokenizer, Path(folder))).url for _ in range(2)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_trains(
    command: str, servers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "scale.ray" in command and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    monkeypatch.chdir(tmp_path)
    done = run(command, ",".join(servers[: 1 + command.count(",http")]))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "runs" / "mine" / "metrics.jsonl").read_text().splitlines()]
    lags = [line["rollouts/lag"] for line in lines if "rollouts/lag" in line]
    assert lags == ([0, 1] if "order.ahead" in command else [0, 0])
