"""`extends`: a config that changes another one, alone and as an arm of a comparison."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from podsrl.compare.runs import plan
from podsrl.config.files import read_changes, read_tree
from podsrl.config.load import build, dump, load_config
from podsrl.config.schema import AboutConfig, CompareConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.run.saving.changes import forbidden_changes

Pods = Callable[..., tuple[int, str, str]]


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)


def test_flags_win_over_a_file_and_that_over_what_it_extends(tmp_path: Path) -> None:
    write(
        tmp_path,
        top='extends = "middle.toml"\n[rollouts]\nnum_prompts = 3\n',
        middle='extends = "mixed"\n[rollouts]\nnum_prompts = 5\nnum_rollouts = 16\n[optim]\nlr = 1e-3\n',
    )
    config = load_config(tmp_path / "top.toml", ["--optim.lr=2e-3"])
    assert (config.rollouts.num_prompts, config.rollouts.num_rollouts, config.optim.lr) == (3, 16, 2e-3)
    assert config.task == load_config("mixed").task and config.rollouts.max_new_tokens == 48
    assert read_changes(tmp_path / "top.toml") == {
        "rollouts": {"num_prompts": 3, "num_rollouts": 16},
        "optim": {"lr": 1e-3},
    }
    assert read_changes("mixed") == read_tree("mixed")


def test_a_file_beside_the_file_wins_over_one_in_the_working_folder_and_over_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, pods="seed = 1\n")
    write(tmp_path / "in", top='extends = "pods.toml"\n', pods="seed = 2\n")
    (tmp_path / "in" / "pods").write_text("seed = 3\n")
    write(tmp_path / "in", named='extends = "pods"\n')
    monkeypatch.chdir(tmp_path)
    assert load_config("in/top.toml").seed == 2 and load_config("in/named.toml").seed == 3
    (tmp_path / "in" / "pods.toml").unlink()
    assert load_config("in/top.toml").seed == 1


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ('extends = "b.toml"', 'extends = "a.toml"', "remove one of the two"),
        ('extends = "a.toml"', "", "remove one of the two"),
        ('extends = "../in/b.toml"', 'extends = "../in/a.toml"', "remove one of the two"),
        ('extends = "c.toml"', "", "c.toml: no such file, and no such recipe"),
        ('extends = "mixd"', "", "Did you mean 'mixed'?"),
        ("extends = 3", "", "extends = 3; wanted a recipe's name, or a file"),
        ("extends = false", "", "extends = False; wanted a recipe's name, or a file"),
        ('extends = ""', "", "extends = ''; wanted a recipe's name, or a file"),
        (f'extends = "{5000 * "x"}"', "", "too long for a path"),
        ('extends = "b.toml"', "seed = ", "b.toml: not valid TOML"),
    ],
)
def test_what_cannot_be_extended_is_one_line(pods: Pods, tmp_path: Path, first: str, second: str, message: str) -> None:
    write(tmp_path / "in", a=first, b=second)
    code, _, errors = pods("train", "in/a.toml", "--dry-run")
    assert code == 2 and message in errors and errors.count("\n") == 1 and "a.toml" in errors


def test_pods_config_prints_the_whole_config_without_the_key(pods: Pods, tmp_path: Path) -> None:
    write(tmp_path, top='extends = "mixed"\nseed = 7\n')
    code, said, _ = pods("config", "--resolved", "top.toml")
    assert code == 0 and "extends" not in tomllib.loads(said)
    assert build(RunConfig, tomllib.loads(said), "printed") == load_config(tmp_path / "top.toml")


def arms(tmp_path: Path, text: str) -> dict[str, RunConfig]:
    """Arm -> its config, of a comparison with these arms on the mixed task."""
    write(
        tmp_path,
        own='extends = "root.toml"\n[select]\nnum_kept = 4\n',
        root="[optim]\nlr = 9.0\n[model]\npath = 'elsewhere'\n",
        grown=f'extends = "{tmp_path / "own.toml"}"\n[rollouts]\nnum_rollouts = 32\n',
        arms='baseline = "a"\nnum_seeds = 1\n[base]\nextends = "mixed"\neval.every_seconds = 2\n' + text,
    )
    config = build(CompareConfig, read_tree(tmp_path / "arms.toml"), "arms.toml")
    return {member.arm: member.config for member in plan(config, tmp_path / "out")}


def test_an_arm_takes_what_its_recipe_changes_and_not_the_one_at_its_root(tmp_path: Path) -> None:
    grown = tmp_path / "grown.toml"
    found = arms(tmp_path, f'[arms.a]\n[arms.b]\nextends = "{grown}"\nrollouts.num_prompts = 4\n')
    assert found["b"].select.num_kept == 4 and found["b"].rollouts.num_rollouts == 32
    assert found["b"].rollouts.num_prompts == 4 and found["a"].rollouts.num_prompts == 16
    assert (
        found["b"].optim.lr == found["a"].optim.lr == load_config("mixed").optim.lr
        and found["b"].model == found["a"].model
    )


def test_an_arm_of_a_recipe_that_extends_nothing_takes_all_of_it_and_must_share_what_arms_share(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"arm 'b' differs from 'a' in .*model\.path"):
        arms(tmp_path, '[arms.a]\n[arms.b]\nextends = "pods"\n')
    with pytest.raises(UsageError, match="arm 'b': extends = 3"):
        arms(tmp_path, "[arms.a]\n[arms.b]\nextends = 3\n")


def test_about_decides_nothing(tmp_path: Path) -> None:
    config = load_config("systems/pods")
    other = config.model_copy(update={"about": AboutConfig(name="another")})
    assert forbidden_changes(config.model_dump(mode="json"), other.model_dump(mode="json")) == []
    found = arms(tmp_path, '[arms.a]\nabout.name = "one"\n[arms.b]\nabout.name = "two"\n')
    assert {config.about.name for config in found.values()} == {"one", "two"}
    for arm, config in found.items():  # a run that was started before its recipe described itself in other words
        folder = tmp_path / "out" / "runs" / f"{arm}-seed0"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(dump(config.model_copy(update={"about": AboutConfig()})))
    arms(tmp_path, '[arms.a]\nabout.name = "one"\n[arms.b]\nabout.name = "two"\n')
    with pytest.raises(UsageError, match=r"optim\.lr"):
        arms(tmp_path, "[arms.a]\noptim.lr = 1.0\n[arms.b]\n")


def test_a_runs_config_is_complete(pods: Pods, tmp_path: Path) -> None:
    write(
        tmp_path, top='extends = "systems/grpo"\n[stop]\nsteps = 1\n[task]\nnum_eval = 8\n[rollouts]\nnum_prompts = 2\n'
    )
    code, _, errors = pods("train", "top.toml", "--out", "run")
    assert code == 0, errors
    for file in tmp_path.glob("*.toml"):
        file.unlink()
    text = (tmp_path / "run" / "config.toml").read_text()
    config = build(RunConfig, tomllib.loads(text), "run")
    assert "extends" not in tomllib.loads(text)
    assert config.model.path == "builtin:arithmetic-mixed" and config.about.name == "GRPO"
    code, _, errors = pods("train", "--resume", "run", "--stop.steps=2")
    assert code == 0, errors


def test_a_missing_recipe_names_the_nearest_or_the_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'systems/dars'"):
        read_tree("systems/darss")
    known = r"Known: auto, code, columns, demo, .*paper/…, pods, smol, smol-arms, steps, systems, systems/…\.$"
    with pytest.raises(UsageError, match=known):
        read_tree(tmp_path / "nope.toml")
