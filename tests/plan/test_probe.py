"""What a plan refuses to measure."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.plan.probe import probing_config, still_trainer


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
    assert probing_config(load_config("pods", ["systems=gdro_prompts,worth,dots_rr"])).systems == (
        "gdro_prompts",
        "dots_rr",
    )


@pytest.mark.parametrize(
    ("section", "option", "value"),
    [("rollouts", "generator", "vllm"), ("scale", "generators", 1), ("order", "ahead", 1)],
)
def test_a_run_that_generates_elsewhere_is_not_planned(section: str, option: str, value: Any) -> None:
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
