"""Every example runs, says what its docstring promises, and the loop without the library is the loop with it."""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from podsrl import select

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALLEST = ["--steps", "2", "--num-rollouts", "8", "--num-kept", "4"]


def run(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Start an example as `python examples/NAME ARGUMENTS` does, and return what it prints."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    return capsys.readouterr().out


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name[:2]}", EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def promised_lines(name: str) -> list[str]:
    """The indented lines after "Expected output" in an example's docstring."""
    docstring = load(name).__doc__ or ""
    return [line[4:] for line in docstring.partition("Expected output")[2].splitlines() if line.startswith("    ")]


def test_no_example_is_left_untested() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "01_select.py",
        "02_loop_from_scratch.py",
        "03_loop_with_podsrl.py",
        "04_trl.py",
        "05_verl.py",  # in test_peers_pages.py
        "06_art.py",
    ]


def test_select_prints_what_its_docstring_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("01_select.py", [], monkeypatch, capsys).splitlines() == promised_lines("01_select.py")


@pytest.mark.parametrize("name", ["02_loop_from_scratch.py", "03_loop_with_podsrl.py"])
def test_loop_runs_in_its_smallest_form(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(name, SMALLEST, monkeypatch, capsys).splitlines()
    assert [line.split()[:2] for line in lines] == [["step", "1"], ["step", "2"]]
    assert all(float(line.split()[5]) > 0 for line in lines)  # a gradient


def test_loop_starts_as_its_docstring_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = "02_loop_from_scratch.py"
    [printed] = run(name, ["--steps", "1"], monkeypatch, capsys).splitlines()
    promised = promised_lines(name)[0]
    # loss and gradient norm may differ in their last digits on another processor; what was sampled may not
    assert printed.partition("reward")[2] == promised.partition("reward")[2]


def test_loop_refuses_to_keep_more_than_it_generates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("02_loop_from_scratch.py", "03_loop_with_podsrl.py"):
        with pytest.raises(SystemExit):
            run(name, ["--num-rollouts", "8", "--num-kept", "9"], monkeypatch, capsys)


def test_pods_in_trl_runs_in_its_smallest_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl")
    *steps, last = run("04_trl.py", SMALLEST, monkeypatch, capsys).splitlines()
    assert [line.split()[:2] for line in steps] == [["step", "1"], ["step", "2"]]
    assert re.fullmatch(r"accuracy on 256 .*: \d+\.\d% before, \d+\.\d% after", last)


def test_loop_without_the_library_is_the_loop_with_it() -> None:
    with_numbers = {"steps": 2, "num_prompts": 4, "num_rollouts": 32, "num_kept": 8, "lr": 3e-4, "seed": 3}
    model = str(Path(select.__file__).parents[1] / "models" / "arithmetic")
    options = argparse.Namespace(**with_numbers, model=model)
    scratch, library = ([*load(name).train(options)] for name in ("02_loop_from_scratch.py", "03_loop_with_podsrl.py"))
    assert len(scratch) == len(library) == 2
    for plain, ours in zip(scratch, library, strict=True):
        assert plain["answers"] == ours["answers"]
        assert plain["kept"] == ours["kept"]
        assert plain["reward"] == pytest.approx(ours["reward"], rel=1e-12)
        assert plain["accuracy"] == ours["accuracy"]
        # advantages of a group sum to 0, so the loss is a small difference of terms whose size is about 1
        assert plain["loss"] == pytest.approx(ours["loss"], rel=1e-4, abs=1e-6)
        assert plain["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
    assert all(abs(done["loss"]) > 1e-4 for done in scratch)  # so that agreement means something


def test_selection_from_scratch_is_the_library_s() -> None:
    scratch = load("02_loop_from_scratch.py")
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(2, 17))
        m = int(rng.integers(2, n + 1))
        rewards = rng.choice([0.0, 0.1, 1.1], size=n).tolist()
        assert scratch.max_variance(rewards, m) == select.max_variance(rewards, m)
