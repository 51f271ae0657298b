"""Flags as people type them, in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.core import TyperGroup

from loops import each
from podsrl.cli.flags import join_flags
from podsrl.cli.main import app
from podsrl.config.load import apply_overrides
from podsrl.config.options import SCHEMAS
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError

Pods = Callable[..., tuple[int, str, str]]
OWN = {"--out": True, "-o": True, "--json": False, "--help": False}


def join(*words: str, schemas: Sequence[Any] = (RunConfig,)) -> list[str]:
    return join_flags(words, OWN, schemas)


@each(
    ("words", "joined"),
    [
        (["--select.num_kept", "8"], ["--select.num_kept=8"]),
        (["--select.num_kept=8"], ["--select.num_kept=8"]),
        (["--optim.lr", "-1"], ["--optim.lr=-1"]),
        (["--optim.lr", "-1e-5"], ["--optim.lr=-1e-5"]),
        (["--task.path", ""], ["--task.path="]),
        (["--task.path", "a=b"], ["--task.path=a=b"]),
        (["--task.system_prompt", "-brief"], ["--task.system_prompt=-brief"]),
        (["--task.system_prompt=--brief"], ["--task.system_prompt=--brief"]),
        (["--task.rewards.correct", "1"], ["--task.rewards.correct=1"]),
        (["--optim.betas", "[0.9, 0.95]"], ["--optim.betas=[0.9, 0.95]"]),
        (["--seed", "3", "pods"], ["--seed=3", "pods"]),
        (["--model.gradient_checkpointing"], ["--model.gradient_checkpointing=true"]),
        (["--model.gradient_checkpointing", "pods"], ["--model.gradient_checkpointing=true", "pods"]),
        (["--model.gradient_checkpointing", "False", "pods"], ["--model.gradient_checkpointing=False", "pods"]),
        (["--model.gradient_checkpointing", "--seed=1"], ["--model.gradient_checkpointing=true", "--seed=1"]),
        (["--task.chat", "no"], ["--task.chat=no"]),
        (["--out", "--seed", "--seed", "1"], ["--out", "--seed", "--seed=1"]),  # an option's own value is not looked at
        (["--out=x", "pods"], ["--out=x", "pods"]),
        (["-o", "x", "--json", "pods"], ["-o", "x", "--json", "pods"]),
        (["pods", "--", "--seed", "1"], ["pods", "--", "--seed", "1"]),
    ],
)
def test_a_flag_and_its_value_become_one_word(words: list[str], joined: list[str]) -> None:
    assert join(*words) == joined


@each(
    ("words", "wanted"),
    [
        (["--optim.lr"], "--optim.lr: wanted a value"),
        (["--optim.lr", "--seed=1"], "--optim.lr: wanted a value"),
        (["--optim.lr", "-o", "x"], "--optim.lr: wanted a value"),
        (["--optim.lr", "--json"], "--optim.lr: wanted a value"),
        (["--task.system_prompt", "--brief"], "needs the ="),
        (["--otu", "x"], "Did you mean '--out'"),
        (["--jsn"], "Did you mean '--json'"),
        (["--num_generation", "8"], "'rollouts.num_rollouts' (TRL: num_generations)"),
        (["--output_dir", "x"], "Did you mean '--out'"),
        (["--zzz"], "unknown key 'zzz'"),
        (["--epsilon", "0.1"], "Did you mean 'loss.clip_low' (TRL: epsilon"),
        (["--step", "10"], "Did you mean '--stop.steps'"),
        (["--num_rollout", "8"], "Did you mean '--rollouts.num_rollouts'"),
        (["--verbose"], "unknown key 'verbose'"),
    ],
)
def test_a_flag_without_value_or_without_meaning_is_named(words: list[str], wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        join(*words)
    assert wanted in str(caught.value) and "\n" not in str(caught.value)


def test_each_command_has_keys_of_its_own() -> None:
    both = (RunConfig, CompareConfig)
    switch = "model.load_in_4bit"
    for prefix, schemas in (("", both), ("base.", both), ("arms.pods.", both), ("arms.a-1.", (CompareConfig,))):
        assert join(f"--{prefix}{switch}", "a", schemas=schemas) == [f"--{prefix}{switch}=true", "a"]
        assert join(f"--{prefix}optim.lr", "1", schemas=schemas) == [f"--{prefix}optim.lr=1"]
    assert join("--num_seeds", "2", schemas=(CompareConfig,)) == ["--num_seeds=2"]
    assert join("--careful", "0.1", "out", schemas=(SCHEMAS["pretrain"],)) == ["--careful=0.1", "out"]
    with pytest.raises(UsageError, match="num_seeds"):
        join("--num_seeds", "2")
    for prefix in ("base", "arms.pods"):
        with pytest.raises(UsageError, match=rf"--{prefix}.optim.speed: .*Known: .*lr"):
            join(f"--{prefix}.optim.speed", "1", schemas=(CompareConfig,))


VALUES = {
    "seed": st.integers(0, 99).map(str),
    "optim.lr": st.floats(1e-6, 1).map(repr),
    "rollouts.top_k": st.integers(-9, 9).map(str),
    "model.path": st.text("abc-=/ .[\"'", min_size=1).filter(lambda text: not text.startswith("--") and text != "-o"),
}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    keys=st.lists(st.sampled_from([*VALUES]), unique=True),
    has_switch=st.booleans(),
    own=st.lists(st.sampled_from(["--out", "-o"]), max_size=1),
)
def test_any_order_and_either_form_set_the_same_values(data: Any, keys: list[str], has_switch: bool, own: Any) -> None:
    values = {key: data.draw(VALUES[key], key) for key in keys}
    pieces = [["pods"], *([name, "folder"] for name in own), *([["--model.load_in_4bit"]] if has_switch else [])]
    for key, value in values.items():
        is_apart = data.draw(st.booleans(), f"{key} apart") and not value.startswith("-o")
        pieces.append([f"--{key}", value] if is_apart else [f"--{key}={value}"])
    words = [word for piece in data.draw(st.permutations(pieces), "order") for word in piece]
    joined = join(*words)
    wanted = {f"--{key}={value}" for key, value in values.items()}
    wanted |= {"--model.load_in_4bit=true"} if has_switch else set()
    assert {word for word in joined if word.startswith("--") and "=" in word} == wanted
    assert [word for word in joined if not word.startswith("-")] == [
        word for word in words if word in ("pods", "folder")
    ]
    tree = apply_overrides({}, [word for word in joined if word.startswith("--") and "=" in word])
    assert set(tree) == {key.partition(".")[0] for key in keys} | ({"model"} if has_switch else set())


# --- through the whole command line ---


@pytest.mark.parametrize("command", ["train", "launch", "demo", "compare"])
def test_out_has_a_short_form(command: str, pods: Pods) -> None:
    code, printed, _ = pods(command, "--help")
    assert code == 0 and "-o" in printed.split()


def test_help_fits_eighty_columns_with_an_example_before_the_options(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    whole = typer.main.get_command(app)
    assert isinstance(whole, TyperGroup)
    for command in ("", *whole.commands):
        code, printed, _ = pods(*command.split(), "--help")
        lines = [line.rstrip("│ ") for line in printed.splitlines()]
        assert code == 0 and max(map(len, printed.splitlines())) <= 80, command
        assert not [line for line in lines if line.endswith("…")], command  # what is cut to fit its column
        example = next(place for place, line in enumerate(lines) if line.startswith(f"   pods {command}"))
        assert lines.index(" Examples") < example < next(i for i, line in enumerate(lines) if "─ Options ─" in line)


def test_without_a_command_there_is_help(pods: Pods) -> None:
    _, printed, errors = pods()
    assert "Train language models" in printed + errors and "config" in printed + errors
