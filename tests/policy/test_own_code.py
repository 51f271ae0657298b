"""Python code that comes with a model runs where the user says so in the config, and nowhere else."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policies import edit

import children
from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.policy import load_model, load_tokenizer, outline
from podsrl.tasks import load_tasks
from runs import flags

PLANT = """
import os, pathlib
pathlib.Path(os.environ["PLANTED"]).write_text("ran")
"""
CODE = (
    PLANT
    + """
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

class OwnConfig(Qwen2Config):
    model_type = "own_qwen2"

class OwnModel(Qwen2ForCausalLM):
    config_class = OwnConfig

class OwnTokenizer(Qwen2Tokenizer):
    pass

def generate(model, *args, **options):
    raise NotImplementedError
"""
)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once planted code has run."""
    monkeypatch.setenv("PLANTED", str(tmp_path / "ran"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))  # of processes that start here
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path / "ran"


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "own.py").write_text(CODE)
    return folder


def of_config(folder: Path) -> None:
    edit(folder / "config.json", lambda c: c.update(model_type="own_qwen2", auto_map={"AutoConfig": "own.OwnConfig"}))


def of_model(folder: Path) -> None:
    """Of a family that transformers knows, but not as a language model."""
    own = {"AutoModelForCausalLM": "own.OwnModel"}
    edit(folder / "config.json", lambda c: c.update(model_type="vit", architectures=["OwnModel"], auto_map=own))


def of_both(folder: Path) -> None:
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    edit(folder / "config.json", lambda c: c.update(model_type="own_qwen2", auto_map=own))


def of_known_model(folder: Path) -> None:
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    edit(folder / "config.json", lambda c: c.update(auto_map=own))


def of_tokenizer(folder: Path) -> None:
    edit(folder / "config.json", lambda c: c.update(model_type="vit"))
    own = {"auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}, "tokenizer_class": "OwnTokenizer"}
    edit(folder / "tokenizer_config.json", lambda c: c.update(own))


def of_known_tokenizer(folder: Path) -> None:
    own = {"AutoTokenizer": ["own.OwnTokenizer", None]}
    edit(folder / "tokenizer_config.json", lambda c: c.update(auto_map=own))


def of_generation(folder: Path) -> None:
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(CODE)


def of_processors(folder: Path) -> None:
    own = {"AutoProcessor": "own.OwnTokenizer", "AutoFeatureExtractor": "own.OwnTokenizer"}
    for name in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        (folder / name).write_text(json.dumps({"auto_map": own, "processor_class": "OwnTokenizer"}))


WANT_CODE = (of_config, of_model, of_both, of_tokenizer)
DO_WITHOUT = (of_known_model, of_known_tokenizer, of_generation, of_processors)


@pytest.fixture
def everybody_says_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")


@pytest.mark.parametrize("plant", WANT_CODE)
def test_a_model_that_wants_its_own_code_is_refused_and_the_option_is_named(
    folder: Path, planted: Path, everybody_says_yes: None, plant: Callable[[Path], None]
) -> None:
    plant(folder)
    config = ModelConfig(path=str(folder), device="cpu")
    refused = []
    for load in (load_tokenizer, load_model, outline):
        try:
            load(config)
        except UsageError as error:
            refused.append(str(error))
    assert refused and not planted.exists()
    assert all("\n" not in line for line in refused)
    assert plant is of_tokenizer or any("model.trust_remote_code = true" in line for line in refused)


@pytest.mark.parametrize("plant", DO_WITHOUT)
def test_a_model_that_can_do_without_its_own_code_loads_without_it(
    folder: Path, planted: Path, everybody_says_yes: None, plant: Callable[[Path], None]
) -> None:
    plant(folder)
    config = ModelConfig(path=str(folder), device="cpu")
    assert load_tokenizer(config).eos_token == "<eos>"
    assert type(load_model(config)).__name__ == type(outline(config)).__name__ == "Qwen2ForCausalLM"
    assert not planted.exists()


@pytest.mark.parametrize("plant", [of_both, of_generation])
def test_nor_does_the_code_of_the_base_of_adapters_run(
    folder: Path, planted: Path, everybody_says_yes: None, tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    from peft import LoraConfig, get_peft_model

    base = load_model(ModelConfig(path=str(folder), device="cpu"))
    adapted = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", r=1))
    adapted.save_pretrained(tmp_path / "adapters")
    edit(tmp_path / "adapters" / "adapter_config.json", lambda c: c.update(base_model_name_or_path=str(folder)))
    plant(folder)
    config = ModelConfig(path=str(tmp_path / "adapters"), device="cpu")
    if plant is of_generation:
        assert load_model(config) is not None
    else:
        for load in (load_tokenizer, load_model, outline):
            with pytest.raises(UsageError, match=r"the base that adapter_config.json .*model.trust_remote_code = true"):
                load(config)
    assert not planted.exists()


def test_adapters_that_name_a_module_to_import_are_refused(folder: Path, planted: Path, tmp_path: Path) -> None:
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    (adapters / "adapter_model.safetensors").write_bytes(b"")
    content = {"base_model_name_or_path": str(folder), "megatron_config": {"a": 1}, "megatron_core": "model.own"}
    (adapters / "adapter_config.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="megatron_config"):
        load_model(ModelConfig(path=str(adapters), device="cpu"))
    assert not planted.exists()


@pytest.mark.parametrize("plant", [of_both, of_generation])
def test_the_users_own_option_runs_it_and_a_warning_says_so(
    folder: Path, planted: Path, plant: Callable[[Path], None]
) -> None:
    plant(folder)
    config = ModelConfig(path=str(folder), device="cpu", trust_remote_code=True)
    with pytest.warns(UserWarning, match="Python code that came with .* runs in this process"):
        load_tokenizer(config)
    with pytest.warns(UserWarning, match="runs in this process"):
        model = load_model(config)
    assert planted.read_text() == "ran"
    assert plant is of_generation or type(model).__name__ == "OwnModel"


def test_the_option_says_where_it_changes_nothing(tiny_model_folder: Path) -> None:
    for path in ("builtin:arithmetic", str(tiny_model_folder)):
        with pytest.warns(UserWarning, match=r"trust_remote_code = true changes nothing: .* no Python code of its own"):
            load_tokenizer(ModelConfig(path=path, trust_remote_code=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load_tokenizer(ModelConfig())


def test_a_script_in_a_data_sets_folder_does_not_run(tmp_path: Path, planted: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.py").write_text(PLANT)
    with pytest.raises(UsageError, match=r"task\.path"):
        load_tasks("hub", path=str(tmp_path / "data"), num_eval=1)
    assert not planted.exists()


SIZES = ("rollouts.num_prompts=1", "rollouts.num_rollouts=4", "rollouts.max_new_tokens=4", "select.num_kept=2")
SMALL = flags(*SIZES, "stop.steps=1", "task.num_eval=2")


@pytest.mark.parametrize("command", [["train", "pods", *SMALL], ["train", "pods", "--dry-run"], ["eval"]])
def test_a_yes_on_standard_input_is_no_yes(folder: Path, planted: Path, tmp_path: Path, command: list[str]) -> None:
    of_both(folder)
    what = [str(folder), "--task", "arithmetic"] if command == ["eval"] else [f"--model.path={folder}"]
    source = str(Path(__file__).parents[2] / "src")
    done = children.run(
        [sys.executable, "-m", "podsrl.cli", *command, *what],
        input="y\n" * 9,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 2 and "model.trust_remote_code" in done.stderr, done.stderr
    assert not planted.exists()


def test_a_model_with_code_of_its_own_trains_and_its_run_is_evaluated(folder: Path, planted: Path, pods: Any) -> None:
    of_both(folder)
    trust = "--model.trust_remote_code=true"
    code, out, err = pods("train", "pods", f"--model.path={folder}", trust, *SMALL, "--out=run")
    assert code == 0 and planted.exists(), out + err
    for name in ("run", str(folder)):
        task = [] if name == "run" else ["--task=arithmetic", trust]
        code, out, err = pods("eval", name, "--num-questions=2", *task, "--rollouts.max_new_tokens=4")
        assert code == 0, out + err
