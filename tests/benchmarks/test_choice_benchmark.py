"""`python -m benchmarks choice`: what its arms differ in, the mask's advantages, and ratios by hand-written runs."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from benchmarks.cells import Cell
from benchmarks.choice import (
    ARMS,
    AT,
    LINES,
    MASK,
    NOTHING,
    OF_ALL,
    PODS,
    RANDOM,
    SAME,
    SEEDS,
    TIES,
    TUNED,
    cell,
    cells,
    masked,
    of_all,
    page,
    summarize,
    tuned,
)
from benchmarks.our_arm import OurArm
from benchmarks.paired import Json
from benchmarks.runs import MARKS, Log, best_rate, first_at
from podsrl.config.schema import RunConfig
from podsrl.types import Group, Selection, group_of_rewards


def selection(group: Group, kept: list[int]) -> Selection:
    rest = {i: "not_selected" for i in range(len(group.rollouts)) if i not in kept}
    return Selection(group_id=group.id, kept=tuple(kept), dropped=rest)  # type: ignore[arg-type]


def flat(tree: Json, above: str = "") -> dict[str, Any]:
    """Option -> value."""
    found = {}
    for name, value in tree.items():
        own = f"{above}{name}"
        found.update(flat(value, f"{own}.") if isinstance(value, dict) else {own: value})
    return found


def changes(config: RunConfig) -> Json:
    """What a config has otherwise than that of PODS."""
    base, own = (flat(each.model_dump(mode="json")) for each in (cell(PODS, 30, SAME).config(), config))
    return {name: value for name, value in own.items() if base[name] != value}


def test_the_arms_differ_in_what_they_say_and_in_nothing_else() -> None:
    everything = {"select.num_kept": 64, "select.rule": "keep_all"}
    assert {name: changes(cell(name, 30, SAME).config()) for name in ARMS} == {
        PODS: {},
        MASK: {**everything, "loss.advantage": "benchmarks.choice:masked"},
        RANDOM: {"select.rule": "random"},
        OF_ALL: {"loss.advantage": "benchmarks.choice:of_all"},
        "GRPO 16": {"rollouts.num_rollouts": 16, "select.rule": "keep_all"},
        "GRPO 64": everything,
        **{name: {"select.ties": name.removeprefix("ties: ")} for name in TIES},
    }


def test_every_seed_has_every_arm_before_the_next_one_and_another_arm_is_first() -> None:
    found = [each for each in cells() if each.rate == TUNED]
    of_seeds = [found[i : i + len(ARMS)] for i in range(0, len(found), len(ARMS))]
    assert [{each.seed for each in own} for own in of_seeds] == [{seed} for seed in SEEDS]
    assert all(len({each.arm for each in own}) == len(ARMS) for own in of_seeds)
    assert len({own[0].arm for own in of_seeds[: len(ARMS)]}) == len(ARMS)
    assert [each.at(SAME) for each in found] == [each for each in cells() if each.rate == SAME]


def test_an_order_of_equals_is_tuned_as_pods_and_the_mask_as_its_cheap_twin() -> None:
    log = Log(None)
    assert tuned(cell("GRPO 64", 30), log) == (3e-4, None)
    found = [tuned(cell(name, 30), log)[1] for name in (PODS, MASK, OF_ALL, *TIES)]
    arms = (PODS, OF_ALL, OF_ALL, PODS, PODS, PODS)
    assert [run[0] for run in found if run] == [cell(name, 100, 3e-4) for name in arms]
    assert tuned(cell(PODS, 30, SAME), log) == (SAME, None)


def test_advantages_of_all_by_hand() -> None:
    """Of 1, 0, 0, 0 the mean is 1/4 and the standard deviation (ddof 1) 1/2; of two kept 1, 0 PODS makes ± 0.71."""
    group = group_of_rewards("q", [1.0, 0.0, 0.0, float("nan"), 0.0])
    [found] = of_all([group], [selection(group, [0, 4])])
    assert found.tolist() == pytest.approx([0.75 / 0.5001, -0.25 / 0.5001])
    same = group_of_rewards("q", [1.0, 1.0])
    assert of_all([same], [selection(same, [0, 1])])[0].tolist() == [0.0, 0.0]


def test_the_mask_keeps_the_rows_of_pods_and_leaves_the_others_next_to_nothing() -> None:
    """18 rollouts, nine of them right: eight of each count, with (1/2) / √(9 / 34)."""
    mixed, same = group_of_rewards("q", [1.0, 0.0] * 9), group_of_rewards("r", [0.0] * 18)
    groups = [mixed, same]
    found = masked(groups, [selection(each, [*range(18)]) for each in groups])
    one = 0.5 / ((9 / 34) ** 0.5 + 1e-4)
    assert found[0].tolist() == pytest.approx([one, -one] * 8 + [NOTHING] * 2)
    assert found[1].tolist() == [NOTHING] * 18


def test_the_mask_trains_every_row_and_its_gradient_is_that_of_the_rows_that_count() -> None:
    """A mean over 20 rows per prompt, where 16 count, is 16/20 of the mean over these."""
    seen = {}
    for name in (MASK, OF_ALL):
        own = cell(name, 30, SAME).config()
        few = own.rollouts.model_copy(update={"num_rollouts": 20})
        kept = own.select.model_copy(update={"num_kept": min(own.select.num_kept, 20)})
        with closing(OurArm(own.model_copy(update={"rollouts": few, "select": kept}))) as arm:
            arm.step()
            seen[name] = arm.metrics
    of_mask, of_kept = seen[MASK], seen[OF_ALL]
    assert of_mask["tokens/trained"] == of_mask["tokens/generated"] == of_kept["tokens/generated"]
    assert 0 < of_kept["tokens/trained"] < of_mask["tokens/trained"] * 0.9
    assert of_mask["grad_norm"] == pytest.approx(0.8 * of_kept["grad_norm"], rel=1e-4)


def record(cpu_seconds: float, steps: int, trained: int, *, is_reached: bool = True) -> Json:
    """A run after which nine of ten are right, or seven."""
    points: dict[str, list[Any]] = {
        "step": [0, steps],
        "cpu_seconds": [0, cpu_seconds],
        "trained": [0, trained],
        "accuracy": [0.04, 0.9 if is_reached else 0.7],
    }
    reached = {f"{target:g}": first_at(points, target) for target in MARKS.targets}
    stages = {"generate": 0.1, "update": 0.2}
    return {"points": points, "reached": reached, "stages": stages, "rate": 3e-4, "commit": "abc", "load": 0.5}


def test_ratios_and_verdicts_by_hand() -> None:
    """The mask takes twice the seconds of PODS and four times the tokens in as many steps; GRPO 16 never gets there."""
    made = {cell(PODS, seed, rate): record(4.0, 20, 1000) for seed in SEEDS for rate in AT}
    made |= {cell(MASK, seed): record(8.0, 20, 4000) for seed in SEEDS}
    made |= {cell("GRPO 16", seed): record(2.0, 20, 1000, is_reached=False) for seed in SEEDS}
    made |= {cell(RANDOM, seed): record(4.0, 20, 1000) for seed in SEEDS[:3]}
    made |= {cell(RANDOM, seed, SAME): record(4.4, 22, 1100) for seed in SEEDS}
    tuning = Log(None)
    tuning.add(cell(PODS, 100, 3e-4), record(4.0, 23, 1000))
    tuning.add(cell(PODS, 101, 3e-4), record(4.0, 60, 1000, is_reached=False))
    result = json.loads(json.dumps(summarize(made, tuning)))
    own, same = result["lines"].values()
    rows = {row["question"]: row for row in own}
    assert [*rows] == ["the choice", "update and centring", "PODS beside GRPO 16"] and len(rows) < len(LINES)
    ratios = {clock: each["ratio"] for clock, each in rows["update and centring"]["times"]["0.9"].items()}
    assert ratios == pytest.approx({"cpu_seconds": 2.0, "step": 1.0, "trained": 4.0})
    assert [row["question"] for row in same] == ["the choice"]
    assert same[0]["times"]["0.9"]["step"]["ratio"] == pytest.approx(1.1)
    verdicts = [line.split(" | ")[-1].strip("| ") for line in page(result).splitlines() if line.startswith("| the ch")]
    assert verdicts == ["none: 3 of 12 seeds", "dearer, by less than 1.25×"]
    assert result["arms"]["GRPO 16"]["at"][0]["to"]["0.9"]["step"] == [None] * 12
    assert result["arms"][PODS]["tuning"] == {"0.0003": [23.0, None]} and result["arms"][MASK]["tuning"] == {}
    assert "| 0 of 12 |" in page(result)


def test_a_tuning_run_that_ended_sooner_than_it_may_now_is_made_again() -> None:
    """The first rate needs 20 steps on each of two seeds; the other one was given up after 5 of the 40 that it has."""

    def new(rate: float, seed: int) -> Cell:
        return cell(PODS, seed, rate)

    log = Log(None)
    for seed in (100, 101):
        log.add(new(3e-4, seed), {**record(4.0, 20, 1000), "limits": {"steps": 100}})
    log.add(new(6e-4, 100), {**record(1.0, 5, 250, is_reached=False), "limits": {"steps": 5}})
    assert best_rate(new, (3e-4, 6e-4), log, 0.9, 100, (100, 101)) == (3e-4, (new(6e-4, 100), 40))
    log.add(new(6e-4, 100), {**record(8.0, 40, 2000, is_reached=False), "limits": {"steps": 40}})
    assert best_rate(new, (3e-4, 6e-4), log, 0.9, 100, (100, 101)) == (3e-4, None)
