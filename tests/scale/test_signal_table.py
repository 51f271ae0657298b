"""A signal to the whole process group of a run, at each place of it (docs/long-runs.md)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from kill_anything import SMALL
from killing import Run
from signalled import PLACES

from waiting import wait_for

GENERATORS = {
    "engine": (),
    "child": ("--scale.generators=1",),
    "Ray": ("--scale.generators=1", "--scale.ray=local"),
    "server": ("--rollouts.generator=vllm+{url}",),
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from engine_server import serving
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from podsrl.policy import model_folder

    folder = model_folder("builtin:arithmetic")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with serving(model, tokenizer, Path(folder)) as server:
        yield server.url


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_a_signal_to_all_is_for_the_trainer_alone(
    generator: str, place: str, number: signal.Signals, tmp_path: Path, request: Any
) -> None:
    if generator == "Ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    address = request.getfixturevalue("url") if generator == "server" else ""
    options = [option.format(url=address) for option in GENERATORS[generator]]
    words = ["train", "pods", "--out", str(tmp_path / "run"), *SMALL, *options, "--plain"]
    run = Run([place, str(int(number)), *words], tmp_path / "run", module="signalled")
    code = run.process.wait(timeout=500)
    wait_for(lambda: not run.left() + run.left_in_shared_memory(), str(run.left()))
    run.temporary.rmdir()
    newest = max([path.name for path in (tmp_path / "run").glob("checkpoints/step-*")], default="")
    assert code == CODES[number], run.text
    assert sum(line.startswith("interrupted") for line in run.text.splitlines()) == 1, run.text
    assert newest == ("" if place == "loading" else "step-00000002"), run.text
    assert "Traceback" not in run.text
