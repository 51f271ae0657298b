"""What a run spent its rollouts on: numbers by hand on a folder of two steps and one recorded group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.compare.systems import TROUBLES
from podsrl.config.load import load_config
from podsrl.config.schema import DEFAULT_COSTS
from podsrl.errors import UsageError
from podsrl.report.diagnose import CAUSES, HEALTHY, Diagnosis, Part, _costs, diagnose
from podsrl.report.read import read_run
from podsrl.run.before.exclusions import check_exclusions
from podsrl.run.before.sizes import parts_of
from podsrl.update.advantage import resolve_advantage
from run_folders import CONFIG, group_line, kept, rollout_entry, step_line, write_run
from runs import flags

MIXED = {"groups/mixed": 2, "groups/all_wrong": 0, "rollouts/truncated": 0, "rollouts/invalid": 0}


def of(folder: Path, config: str = CONFIG, **changes: Any) -> Diagnosis:
    return diagnose(read_run(write_run(folder, steps=[step_line(n, **MIXED | changes) for n in (1, 2)], config=config)))


@pytest.mark.parametrize(
    ("changes", "name", "share"),
    [
        ({}, "healthy", 1.0),
        ({"groups/mixed": 1, "groups/all_wrong": 1}, "starved", 0.5),
        ({"groups/mixed": 1}, "solved", 0.5),
        ({"groups/mixed": 0, "groups/all_wrong": 2, "rollouts/truncated": 8}, "over-long", 1.0),
        ({"groups/mixed": 0, "groups/all_wrong": 2, "rollouts/truncated": 8, "rollouts/invalid": 4}, "unscored", 0.5),
        ({"reward/min": 1.0, "reward/max": 1.0, "accuracy/all": 0.25}, "indifferent", 1.0),
        ({"reward/min": 1.0, "reward/max": 1.0, "accuracy/all": 0.25, "rollouts/invalid": 2}, "indifferent", 0.75),
        ({"reward/min": 0.0, "reward/max": 0.0, "accuracy/all": 0.0, "groups/all_wrong": 2}, "starved", 1.0),
        ({"groups/left_out": 6, "groups/mixed": 4, "groups/all_wrong": 4}, "starved", 0.5),
    ],
)
def test_the_verdict_is_the_first_cause_that_is_large_enough(
    tmp_path: Path, changes: dict[str, Any], name: str, share: float
) -> None:
    found = of(tmp_path, **changes)
    assert (found.cause.name, found.shares[name], found.late[name]) == (name, share, share)


def test_chunks_are_no_groups(tmp_path: Path) -> None:
    chunked = CONFIG.replace("num_kept = 2\n", "num_kept = 2\nnum_chunks = 2\n")
    assert of(tmp_path, chunked, **{"groups/all": 4}).shares["solved"] == 0


def test_tokens_and_seconds_are_shares_of_the_whole_run(tmp_path: Path) -> None:
    found = of(tmp_path)
    assert {name: share for name, share in found.tokens.items() if share} == {
        "trained": 0.5,
        "discarded": 0.375,
        "skipped": 0.125,
    }
    assert found.seconds["update"] == pytest.approx(0.4)
    assert (found.lag, found.most_lag) == (None, None)
    recalled = of(tmp_path / "recalled", **{"tokens/generated": 40}).tokens  # the fates have more
    assert sum(recalled.values()) == pytest.approx(1)


def test_groups_by_difficulty_and_rollouts_by_length(tmp_path: Path) -> None:
    found = of(tmp_path)
    assert [each for each in found.by_difficulty if each.count] == [
        Part(name="to 25%", count=1, generated=46, trained=22)
    ]
    assert [(each.name, each.generated, each.trained) for each in found.by_length] == [
        ("10 to 10", 10, 10),
        ("11 to 11", 11, 0),
        ("12 to 12", 12, 12),
        ("13 to 13", 13, 0),
    ]


def test_rollouts_of_several_turns_are_told_apart_by_their_number(tmp_path: Path) -> None:
    """What stands between the turns, or ends the rollout, is given."""
    assert of(tmp_path / "one").by_turns == ()
    rollouts = [
        rollout_entry(0, 1.0, text="one?two", given=[[3, 4]], **kept(1.0)),
        rollout_entry(1, 0.0, text="one?", given=[[3, 4]]),
        rollout_entry(2, 0.0),
    ]
    groups = [group_line(1, rollouts=rollouts)]
    folder = write_run(tmp_path / "several", steps=[step_line(1, **MIXED, **{"turns/max": 2})], groups=groups)
    assert diagnose(read_run(folder)).by_turns == (
        Part(name="1", count=2, generated=23, trained=0),
        Part(name="2", count=1, generated=10, trained=10),
    )


def test_what_parts_would_have_saved(tmp_path: Path) -> None:
    """Rewards 0, none, 1 and 0.1 of 10 to 13 tokens: the first and third decide, and are certain with the third."""
    found = {each.flags[-1]: (each.generated, each.trained) for each in of(tmp_path).savings}
    assert found == {
        "select.rule=keep_all": (1.0, 35 / 46),
        "select.num_kept=2": (1.0, 22 / 46),
        "systems=certain": (33 / 46, 22 / 46),
        "systems=worth": (1.0, 22 / 46),
    }
    assert [each.flags[0] for each in of(tmp_path).savings][3] == "select.rule=max_signal"


def test_costs_are_those_of_the_device_that_the_run_was_on(tmp_path: Path) -> None:
    on_gpu = {"memory/peak_update_bytes": 9}
    for device, own, kind in (
        ("cuda:1", {}, "cuda"),
        ("auto", on_gpu, "cuda"),
        ("auto", {}, "cpu"),
        ("cpu", {}, "cpu"),
    ):
        config = CONFIG.replace("[model]", f'[model]\ndevice = "{device}"')
        run = read_run(write_run(tmp_path / f"{device}{len(own)}", steps=[step_line(1, **own)], config=config))
        assert _costs(run) == DEFAULT_COSTS[kind]


def test_a_run_without_groups_or_rewards_has_no_savings(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, steps=[step_line(1, **MIXED)], groups=[]))
    assert (diagnose(run).savings, diagnose(run).num_groups) == ((), 0)


def test_a_run_without_a_step_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no step"):
        diagnose(read_run(write_run(tmp_path, steps=[], evaluations=[])))


def test_what_the_run_has_is_not_advised(tmp_path: Path) -> None:
    assert [flags for _, flags in of(tmp_path).parts] == [
        ("systems=worth", "select.rule=max_signal"),
        ("order.ahead=1",),
    ]


def test_advice_keeps_the_systems_of_the_run(tmp_path: Path) -> None:
    [_, flags] = of(tmp_path, f'systems = ["gigpo", "mixed"]\n{CONFIG}').parts[0]
    assert flags == ("systems=gigpo,mixed,worth", "select.rule=max_signal")


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"groups/mixed": 0, "groups/all_wrong": 2}, ["systems=mixed,reinforce_ada", "systems=dars,mixed"]),
        ({"groups/mixed": 0}, ["systems=dapo", "systems=mixed,dots"]),
    ],
)
def test_the_systems_for_a_trouble_are_those_of_the_table(
    tmp_path: Path, changes: dict[str, Any], flags: list[str]
) -> None:
    """Beside the run's own but for those that decide the same, as "mixed" and DAPO do; the recipe of DARS has both."""
    assert [own for _, own in of(tmp_path, f'systems = ["mixed"]\n{CONFIG}', **changes).parts] == [
        (flag,) for flag in flags
    ]


@pytest.mark.parametrize("cause", [*CAUSES, HEALTHY], ids=lambda cause: cause.name)
def test_what_is_advised_goes_with_a_recipe(cause: Any) -> None:
    for _, parts in cause.advice:
        config = load_config("pods", [part.format(twice=96, quarter=16) for part in parts])
        check_exclusions(config, parts_of(config), resolve_advantage("none"))


def test_a_verdict_that_the_table_names_is_one_of_these() -> None:
    named = [trouble.verdict for trouble in TROUBLES if trouble.verdict]
    assert sorted(named) == ["over-long", "solved", "starved"] and {*named} < {cause.name for cause in CAUSES}


def test_the_command_says_the_verdict_first(tmp_path: Path, pods: Callable[..., tuple[int, str, str]]) -> None:
    folder = write_run(tmp_path / "run", steps=[step_line(1, **MIXED)])
    code, said, _ = pods("diagnose", str(folder))
    assert code == 0 and " is healthy: 100% of the groups" in " ".join(said.split("\n\n")[0].split())
    assert f"pods train {folder}/config.toml --order.ahead=1" in said
    facts = json.loads(pods("diagnose", str(folder), "--json")[1])
    assert facts["verdict"] == "healthy" and facts["savings"][0]["trained"] == 35 / 46
    assert len(facts["try_first"]) == 2


KINDS = {
    "healthy": ("model.path=builtin:arithmetic-mixed", "task.digits=2"),
    "starved": ("model.path=builtin:arithmetic-rare", "task.digits=3"),
    "solved": ("model.path=builtin:arithmetic-mixed", "task.digits=1", "rollouts.temperature=0.05"),
    "over-long": ("model.path=builtin:arithmetic-mixed", "task.digits=2", "rollouts.max_new_tokens=6"),
}
"""Verdict -> what makes a run deserve it."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_run_of_each_kind_is_named_first_with_commands_that_begin(
    kind: str, tmp_path: Path, pods: Callable[..., tuple[int, str, str]]
) -> None:
    sizes = ("rollouts.max_new_tokens=40", "rollouts.num_prompts=8", "task.num_eval=8", "stop.steps=2")
    folder = str(tmp_path / "run")
    assert pods("train", "pods", *flags(*sizes, *KINDS[kind]), "--plain", "--out", folder)[0] == 0
    code, said, _ = pods("diagnose", folder)
    assert code == 0 and f" is {kind}: " in " ".join(said.split("\n\n")[0].split())
    tries = json.loads(pods("diagnose", folder, "--json")[1])["try_first"]
    assert 2 <= len(tries) <= 3
    for command in tries:
        load_config(command.split()[2], command.split()[3:])
