"""benchmarks/engine_gpu.py, first_engine.py and figure1.py at toy size."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.models import fixed_workload, shaped_model

ROOT = Path(__file__).parent.parent.parent


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_floor_by_hand() -> None:
    model: Any = shaped_model("s128")
    work = fixed_workload(4, num_prompts=2, prompt_tokens=6, new_tokens=20)
    # a step reads all weights but the embedding, and 8 rows of 16 tokens; a token has key and value, 4 layers of 32
    weights = 4 * (model.num_parameters() - 64 * 128)
    cache = 8 * 16 * (2 * 4 * 32 * 4)
    assert load("engine/gpu").floor_rate(model, work, 1e9) == pytest.approx(8 * 1e9 / (weights + cache))


@pytest.mark.slow
def test_the_gpu_measurement_runs_at_toy_size() -> None:
    script = load("engine/gpu")
    words = "--device cpu --dtype float32 --shapes s128 --rollouts 4 --curve 2 8 --prompt-tokens 5 --new-tokens 4"
    result = json.loads(json.dumps(script.main(script.parse([*words.split(), "--repeats", "1"]))))
    facts = result["s128"]
    assert set(facts["rollouts"]) == {"4"} and set(facts["curve"]) == {"2", "4", "8"}
    assert facts["curve_ratio"] == pytest.approx(facts["curve"]["8"] / facts["curve"]["2"])
    assert 0 < facts["rollouts"]["4"]["share_of_floor"]["podsrl"] < 1


@pytest.mark.slow
def test_an_engine_in_a_process_of_its_own_answers_with_the_tokens_of_this_one(tmp_path: Path) -> None:
    script = load("engine/first")
    model = shaped_model("s128")
    model.save_pretrained(tmp_path)
    job = {"folder": str(tmp_path), "max_new_tokens": 8, "stops": [1], "requests": [["a", [5, 6, 7], 3]]}
    here = script._answer(script._engine(str(tmp_path)), job)
    with script.worker(ROOT / "src") as process:
        found = script.compare(process, process, job, 2)
        assert script.ask(process, job)["digest"] == here["digest"]
    assert found["tokens"] == {"first": here["tokens"], "today": here["tokens"]}
    assert found["are_tokens_the_same"] and found["speedup"]["min"] > 0


@pytest.mark.slow
def test_a_worker_with_other_sources_than_asked_for_refuses(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "engine" / "first.py"), "--worker", str(tmp_path)]
    found = subprocess.run(command, input="", capture_output=True, text=True)
    assert found.returncode == 1 and "PYTHONPATH was overruled" in found.stderr


@pytest.mark.slow
def test_figure_1_is_measured_and_drawn_at_toy_size(tmp_path: Path) -> None:
    script = load("figure1")
    words = "--device cpu --dtype float32 --shape s128 --rollouts 2 4 --prompt-tokens 5 --new-tokens 4 --repeats 1"
    result = json.loads(json.dumps(script.main(script.parse(words.split()))))
    assert [result["generation"][n]["tokens"] for n in ("2", "4")] == [8, 16]
    assert all(result["update"][n]["seconds"] > 0 for n in ("2", "4"))
    script.draw(result, tmp_path / "figure1.png")
    assert (tmp_path / "figure1.png").stat().st_size > 10_000
