"""A setting of the paper as a comparison of its two recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper.settings import SETTINGS, arm_configs, comparison_of, mark
from podsrl.compare.runs import plan
from podsrl.config.load import load_config
from podsrl.errors import UsageError


@pytest.mark.parametrize("name", SETTINGS)
def test_each_arm_is_its_recipe(name: str, tmp_path: Path) -> None:
    config = comparison_of(name, num_seeds=2)
    baseline = SETTINGS[name].baseline
    assert (config.baseline, config.num_seeds, config.fraction) == (baseline, 2, 0.99)
    arms = arm_configs(config)
    assert arms == {arm: load_config(f"paper/{name}-{arm}") for arm in (baseline, "pods")}
    assert [member.path.name for member in plan(config, tmp_path)] == [
        f"{baseline}-seed0",
        "pods-seed0",
        "pods-seed1",
        f"{baseline}-seed1",
    ]


def test_an_override_changes_both_arms_or_the_one_it_names() -> None:
    overrides = ["--model.path=mine", "--arms.pods.rollouts.num_rollouts=128", "--jobs=2", "--first_seed=7"]
    config = comparison_of("a", num_seeds=1, overrides=overrides)
    arms = arm_configs(config)
    assert {arm.model.path for arm in arms.values()} == {"mine"} and {arm.seed for arm in arms.values()} == {7}
    assert {name: arm.rollouts.num_rollouts for name, arm in arms.items()} == {"grpo": 16, "pods": 128}
    assert config.jobs == 2


def test_an_override_that_one_arm_would_not_see_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--arms\.grpo\.rollouts\.num_rollouts"):
        comparison_of("a", num_seeds=1, overrides=["--rollouts.num_rollouts=8"])
    with pytest.raises(UsageError, match=r"--arms\.pods\.select=…"):
        comparison_of("d", num_seeds=1, overrides=["--select={num_kept = 8}"])


def test_a_folder_reproduces_one_setting(tmp_path: Path) -> None:
    mark(tmp_path / "out", "a")
    mark(tmp_path / "out", "a")
    with pytest.raises(UsageError, match="reproduces setting 'a', not 'b'"):
        mark(tmp_path / "out", "b")
