"""`python -m benchmarks claims` and its likes: which runs are made, and what is summed up, by hand-written numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.claims import SEEDS, ClaimRun, draw, plan_of, summarize, table, turns
from benchmarks.paired import Json
from benchmarks.runs import Limits, Log, first_at
from benchmarks.worlds import STORIES, WORLDS
from podsrl.compare.systems import system_names

ARMS, RATES, TARGET, BASELINE = STORIES.arms, STORIES.rates, STORIES.target, STORIES.baseline
PODS = "PODS 64 → 16"


def record(steps: int | None, *, tokens: int = 100, trained: int = 100) -> Json:
    """Of a run that is at the target after so many steps of a CPU second, evaluated after each; None: never, in 400."""
    end = 400 if steps is None else steps
    count = range(end + 1)
    each = {"step": 1, "tokens": tokens, "trained": trained, "decode_steps": 10, "rollouts": 128}
    points: Json = {
        name: [number * i for i in count] for name, number in {**each, "seconds": 2, "cpu_seconds": 1}.items()
    }
    points["accuracy"] = [0.25] * end + [TARGET if steps else 0.25]
    return {
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in STORIES.marks.targets},
        "limits": {"accuracy": 1.0, "steps": Limits().steps, "cpu_seconds": STORIES.cpu_seconds},
        "end": "limit",
        "commit": "abc",
        "load": 0.5,
    }


def result_of(made: Any, arms: Any) -> Json:
    """The summary of all runs of these arms, of which `made` gives each one's record."""
    plan, log, tuning = plan_of("stories"), Log(None), Log(None)
    plan = replace(plan, runs=[run for run in plan.runs if run.arm in arms])
    while (found := plan.next(log, tuning)) is not None:
        run, limits, into, _ = found
        into.add(run, {**made(run), **({} if into is log else {"limits": {"steps": limits.steps}})})
    return summarize(plan.records(log, tuning), tuning)


def full(arms: dict[str, tuple[int, int, int]]) -> Json:
    """Of these arms: steps, generated and trained tokens per step at the best rate, which is the last."""

    def made(run: ClaimRun) -> Json:
        steps, tokens, trained = arms[run.arm]
        return record(steps + 3 * (run.rate != RATES[-1]) + run.seed % 2, tokens=tokens, trained=trained)

    return result_of(made, arms)


def test_each_arm_is_tuned_on_seeds_that_count_for_nothing_else() -> None:
    result = full({BASELINE: (10, 100, 100)})
    assert {run["seed"] for run in result["tuning"]}.isdisjoint(SEEDS)
    assert (result["arms"][BASELINE]["rate"], result["arms"][BASELINE]["seeds"]) == (RATES[-1], [0, 1, 2])


def test_a_cost_is_compared_seed_by_seed() -> None:
    result = full({BASELINE: (10, 100, 100), PODS: (5, 400, 100)})
    assert (result["num_runs"], result["num_wanted"]) == (6, len(ARMS) * 3)
    assert "over" in result["arms"][BASELINE] and result["arms"][BASELINE]["over"] == {}
    pods = result["arms"][PODS]
    assert pods["to"][f"{TARGET:g}"]["step"] == [5, 6, 5] and pods["start"] == 0.25
    over = pods["over"][f"{TARGET:g}"]
    assert over["step"]["ratios"] == [2.0, round(11 / 6, 4), 2.0]
    # a step of GRPO costs 130 at g = 0.3, one of PODS 220
    assert over["at 0.3"]["ratios"][0] == pytest.approx(10 * 130 / (5 * 220), abs=1e-4)


def test_a_large_group_is_the_cheaper_one_from_a_price_of_a_decode_step_on() -> None:
    result = full({BASELINE: (10, 400, 400), "GRPO 4": (30, 100, 50), "GRPO 64": (10, 1600, 1600)})
    # to the target at g = 0.3: 10.33 steps of 400 + 0.3 · 400 against 30.33 of 50 + 0.3 · 100; ten decode steps each
    costs = {n: (steps * each, 10 * steps) for n, steps, each in ((4, 91 / 3, 80), (16, 31 / 3, 520))}
    turned = (costs[16][0] - costs[4][0]) / (costs[4][1] - costs[16][1])
    assert result["turns"]["4 → 16"]["at 0.3"] == round(turned, 1) == 14.7
    assert result["turns"]["16 → 64"]["at 0.3"] is None  # as many steps
    assert "; 16 → 64: never to never." in table(result)
    result["arms"]["GRPO 16"]["to"][f"{TARGET:g}"]["decode_steps"][1] = None
    assert turns({n: result["arms"][f"GRPO {n}"]["to"][f"{TARGET:g}"] for n in (4, 16)}) == {}


def test_every_arm_of_every_world_has_a_config_of_its_own_and_every_claim_an_arm() -> None:
    for name, world in WORLDS.items():
        configs = [ClaimRun(arm=arm, rate=1e-3, seed=7, world=name).config() for arm in world.arms]
        assert len({config.model_dump_json() for config in configs}) == len(world.arms)
        assert world.claims.keys() < world.arms.keys() and world.baseline not in world.claims
        assert {arm.system for arm in world.arms.values() if arm.system} <= {*system_names()}


def test_a_run_is_known_by_the_same_key_in_every_world() -> None:
    stored = '{"arm": "GRPO 16", "rate": 0.0003, "seed": 1}'
    assert {ClaimRun(arm=BASELINE, rate=3e-4, seed=1, world=name).key for name in WORLDS} == {stored}


def test_what_was_not_reached_is_drawn_and_told() -> None:
    steps_of = {BASELINE: 10, "GRPO 4": 40, PODS: 5}
    missed = ClaimRun(arm="GRPO 4", rate=RATES[0], seed=0)
    result = {
        **result_of(lambda run: record(None if run == missed else steps_of[run.arm]), steps_of),
        "hardware": "abacus",
    }
    steps, costs, curves = draw(result).axes
    whole = {line.get_label(): line.get_xydata().tolist() for line in steps.lines if line.get_linestyle() == "-"}
    assert whole[f"to {TARGET:.0%}"] == whole["to 50%"] == [[16, 10]]
    assert len(costs.lines) == 4 * 3 and len(curves.lines) == 3 * len(SEEDS)
    assert "No clear difference, with their steps: GRPO 4 (–, 40, 40)" in table(result)


def test_what_is_clear_is_told_arm_by_arm_and_the_rest_in_one_line() -> None:
    steps_of = {BASELINE: 10, PODS: 5, "DARS": 10}
    result = result_of(lambda run: record(steps_of[run.arm]), steps_of)
    text = table(result)
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- No clear difference, with their steps: DARS (10, 10, 10).",
        f"- Claims of papers that were seen: {PODS} (1.7 to 3 times sooner).",
        "- Claims of papers that were not seen: DARS.",
    ]
    [row] = [line for line in text.splitlines() if line.startswith(f"| {PODS} |")]
    assert row.startswith(f"| {PODS} | 5, 5, 5 | steps 2.00× (") and row.endswith(") | – |")
    assert [clock in row for clock in ("generated tokens 2.00×", "g = 1 2.00×", "rollouts", "g = 2.3")] == [
        True
    ] * 2 + [False] * 2
    alone = table(result_of(lambda run: record(10), [BASELINE]))
    assert alone == f"3 of {3 * len(ARMS)} runs are made, all of {BASELINE}."
