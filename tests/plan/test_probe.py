"""What a plan refuses to measure."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.plan.probe import _take_step, probing_config, seen_groups, still_trainer
from podsrl.types import group_of_rewards


def of_groups(groups: Any, selections: Any) -> Any: ...


@pytest.mark.parametrize("moment", ["enough", "questions", "rollouts", "guide", "keep", "look", "wait", "repair"])
def test_a_system_with_other_rollouts_is_refused_before_the_model_loads(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ModuleType("my")
    own.Own = type("Own", (), {moment: lambda self, *arguments: ()})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my", own)
    config = load_config("pods", ["systems=worth,my:Own", "model.path=/nowhere"])
    with pytest.raises(UsageError, match=rf"^{moment} of systems = 'my:Own': .* --systems="), still_trainer(config):
        pass


def test_a_system_that_only_reads_rollouts_is_planned() -> None:
    config = load_config("pods", ["systems=gdro_prompts,worth,dots_rr"])
    assert probing_config(config).systems == ("gdro_prompts", "dots_rr")


def test_what_a_step_did_not_draw_does_not_count() -> None:
    sizes = ("rollouts.num_prompts=4", "task.digits=[1,2]", "select.num_kept=4")
    with still_trainer(load_config("mixed", ["systems=dots_rr", *sizes])) as trainer:
        assert [len(_take_step(trainer, trainer.config, 8).groups) for _ in range(2)] == [4, 4]
    group = group_of_rewards("", [0.0, 1.0])
    heard = replace(group.rollouts[0], token_ids=(5, 6, 7), logprobs=(-1.0, 0.0, -1.0), given=((1, 2),))
    assert seen_groups([replace(group, rollouts=(heard,))])[0].lengths.tolist() == [2]


@pytest.mark.parametrize(
    ("section", "option", "value"),
    [
        *(("rollouts", "generator", "vllm"), ("scale", "generators", 1), ("order", "ahead", 1)),
        *(("select", "rule", "drop_surplus"), ("loss", "advantage", f"{__name__}:of_groups")),
    ],
)
def test_what_the_model_of_the_plan_does_not_know_is_refused_before_it_measures(
    section: str, option: str, value: Any
) -> None:
    config = RunConfig.model_validate({section: {option: value}})
    with pytest.raises(UsageError, match=rf"{section}\.{option} = .*--{section}\.{option}="):
        probing_config(config)


def test_max_variance_and_equal_groups_stand_for_what_decides_by_costs() -> None:
    config = load_config("auto", ["select.options.overhead=9", "options.worth.rows=3"])
    probing = probing_config(config)
    assert (probing.select.rule, probing.select.options, probing.systems) == ("max_variance", {}, ())
    assert probing.options == {}


def test_costs_of_another_model_do_not_keep_a_plan_from_measuring_them_again() -> None:
    measured = ["costs.group_ms=3", "costs.rollout_ms=0.5", "costs.row_ms=2", "costs.model=a/b"]
    assert probing_config(load_config("auto", measured)).costs is None
