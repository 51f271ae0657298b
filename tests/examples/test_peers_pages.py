"""The pages and examples for verl, ART, verifiers and reasoning-gym do what they say, with these tools themselves."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pages import ROOT, blocks
from podsrl.config.load import load_config
from podsrl.run.before.data import load_task_set
from podsrl.run.before.sizes import parts_of
from podsrl.tasks import load_tasks


def needs(package: str) -> pytest.MarkDecorator:
    is_there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not is_there, reason=f"{package} is not installed (make test-peers)")


def texts(page: str, kind: str) -> list[str]:
    return [block.text for block in blocks((ROOT / "docs" / page).read_text()) if block.kind == kind]


def printed(script: Path) -> list[str]:
    """What a script prints in a process of its own: verl and ART change libraries when they are imported."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "name", [pytest.param("05_verl.py", marks=needs("verl")), pytest.param("06_art.py", marks=needs("art"))]
)
def test_an_example_prints_what_its_docstring_says(name: str) -> None:
    example = ROOT / "examples" / name
    expected = re.findall(r"(?m)^    (?!python)(.*)$", example.read_text().split('"""')[1])
    assert printed(example)[-2:] == expected


@needs("verl")
@pytest.mark.filterwarnings("ignore")
def test_verl_builds_its_replay_buffer_from_the_page_s_settings() -> None:
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    [settings] = texts("from-verl.md", "yaml")
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        default = compose("ppo_trainer")
    OmegaConf.set_struct(default, False)
    config = OmegaConf.merge(default, OmegaConf.create(settings))
    trainer: Any = SimpleNamespace(config=config, trainer_mode="sync", _add_prompts_to_generate=None)
    assert PPOTrainer._build_replay_buffer(trainer)._choose.num_kept == 16


@needs("art")
def test_art_gathers_as_on_the_page(tmp_path: Path) -> None:
    [code] = texts("from-art.md", "python")
    calls = """
import asyncio, random

async def rollout(scenario):
    return art.Trajectory(messages_and_choices=[], reward=random.random())

for group in asyncio.run(gather(range(3), rollout)):
    print(len(group), group.metrics["num_generated"])
"""
    (tmp_path / "agent.py").write_text(code + calls)
    assert printed(tmp_path / "agent.py") == ["16 64"] * 3


@needs("verifiers")
def test_verifiers_tasksets_of_the_page_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = []
    for block in texts("from-verifiers.md", "python"):
        names.append(block.splitlines()[0].removeprefix("# "))
        Path(names[-1]).write_text(block)
    assert names == ["sums.py", "my_sums.py", "guess.py"]
    games = load_tasks("podsrl.integrations.verifiers:load", path="guess")
    assert (len(games.train), len(games.eval), games.correct) == (8, 2, "environment")
    whole = load_tasks("podsrl.integrations.verifiers:load", path="sums")
    assert (len(whole.train), len(whole.eval)) == (80, 20)
    split = load_tasks("my_sums:load")
    assert split.eval[0].prompt == ({"role": "user", "content": "0+0="},)
    assert (len(split.train), len(split.eval)) == (80, 20)


@needs("reasoning_gym")
def test_the_configs_on_generated_tasks_name_sets_that_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in texts("generated-tasks.md", "toml"):
        if name := re.match(r"# (\w+\.toml)", block):
            Path(name[1]).write_text(block)
    found = {path.stem: load_config(path.name) for path in Path().glob("*.toml")}
    tasks = {name: load_task_set(config.task, config.options) for name, config in found.items()}
    assert found.keys() == {"my_gym", "my_levels"} and not tasks["my_gym"].chat
    asked = parts_of(found["my_levels"])
    asked.check("check_tasks", tasks["my_levels"].train)
