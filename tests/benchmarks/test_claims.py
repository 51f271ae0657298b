"""`python -m benchmarks claims` and its likes: which runs are made, and what is summed up, by hand-written numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.claims import ClaimRun, draw, plan_of, summarize, table, turns
from benchmarks.claims_stale import claims, gain, num_fallen
from benchmarks.claims_stale import table as stale_table
from benchmarks.paired import Json
from benchmarks.runs import Log, first_at
from benchmarks.turns import table as turns_table
from benchmarks.worlds import STALE, STORIES, WORLDS
from podsrl.compare.systems import system_names

ARMS, RATES, TARGET, BASELINE = STORIES.arms, STORIES.rates, STORIES.target, STORIES.baseline
PODS = "PODS 64 → 16"


def record(
    steps: int | None, last: float | None = None, *, world: str = "stories", tokens: int = 100, trained: int = 100
) -> Json:
    """Of a run that is at the target after so many steps of a CPU second, evaluated after each; None: never, in 400.

    Then one more evaluation has the accuracy `last`, if there is one.
    """
    end = 400 if steps is None else steps
    count = range(end + 1 + (last is not None))
    each = {"step": 1, "tokens": tokens, "trained": trained, "decode_steps": 10, "rollouts": 128}
    points: Json = {
        name: [number * i for i in count] for name, number in {**each, "seconds": 2, "cpu_seconds": 1}.items()
    }
    own = WORLDS[world]
    points["accuracy"] = [0.25] * end + [own.target if steps else 0.25] + ([] if last is None else [last])
    return {
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in own.marks.targets},
        "limits": {"accuracy": 1.0, "steps": own.most_steps, "cpu_seconds": own.cpu_seconds},
        "end": "limit",
        "commit": "abc",
        "load": 0.5,
    }


def result_of(made: Any, arms: Any, world: str = "stories") -> Json:
    """The summary of all runs of these arms, of which `made` gives each one's record."""
    plan, log, tuning = plan_of(world), Log(None), Log(None)
    plan = replace(plan, runs=[run for run in plan.runs if run.arm in arms])
    while (found := plan.next(log, tuning)) is not None:
        run, limits, into, _ = found
        into.add(run, {**made(run), **({} if into is log else {"limits": {"steps": limits.steps}})})
    return summarize(plan.records(log, tuning), tuning, world)


def full(arms: dict[str, tuple[int, int, int]]) -> Json:
    """Of these arms: steps, generated and trained tokens per step at the best rate, which is the last."""

    def made(run: ClaimRun) -> Json:
        steps, tokens, trained = arms[run.arm]
        return record(steps + 3 * (run.rate != RATES[-1]) + run.seed % 2, tokens=tokens, trained=trained)

    return result_of(made, arms)


def test_each_arm_is_tuned_on_seeds_that_count_for_nothing_else() -> None:
    result = full({BASELINE: (10, 100, 100)})
    assert {run["seed"] for run in result["tuning"]}.isdisjoint(STORIES.seeds)
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
    assert "| 16 → 64 | never | never | never | never |" in table(result)
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
    assert len(costs.lines) == 4 * 3 and len(curves.lines) == 3 * len(STORIES.seeds)
    [row] = [line for line in table(result).splitlines() if line.startswith("| GRPO 4 ")]
    assert "–, 40, 40" in row


def test_advantages_of_turns_need_no_tuning_and_a_sentence_says_what_the_ratios_say() -> None:
    result = result_of(
        lambda run: record(
            100 + run.seed if run.arm == "GRPO" else (50 + run.seed if run.seed else None), world="columns"
        ),
        ("GRPO", "GiGPO"),
        "columns",
    )
    assert result["tuning"] == [] and result["num_runs"] == result["num_wanted"] == 10
    over = result["arms"]["GiGPO"]["over"]["0.9"]["step"]
    assert over["bound"] == "≤" and over["ratios"][:2] == [0.25, pytest.approx(101 / 51, abs=1e-4)]
    assert result["arms"]["GiGPO"]["to"]["0.9"]["step"] == [None, 51, 52, 53, 54]
    assert "GiGPO against GRPO: not told apart by steps, not told apart by generated tokens" in turns_table(result)


NAIVE, VCPO = "naive, 32 old", "VCPO, 32 old"
ENDS = {
    "GRPO 8": (20, 0.82),
    "DOTS-RR": (10, 0.82),
    "naive, 8 old": (20, 0.7),
    "decoupled, 8 old": (20, 0.75),
    NAIVE: (20, 0.3),
    VCPO: (20, 0.75),
}


def stale(ends: dict[str, tuple[int, float]]) -> Json:
    """Of runs on stale tokens: steps to 80 %, and accuracy at the end of seed 0; the other seeds have less."""
    return result_of(
        lambda run: record(ends[run.arm][0], ends[run.arm][1] - 0.01 * (run.seed % 100), world="stale"), ends, "stale"
    )


def test_claims_are_judged_on_sooner_points_and_collapse() -> None:
    result = stale(ENDS)
    assert result["arms"][NAIVE]["last"] == pytest.approx([0.3, 0.29, 0.28])
    assert result["arms"][NAIVE]["highest"] == [0.8] * 3 and result["arms"][NAIVE]["num_steps"] == [21] * 3
    lines = claims(result["arms"], "0.8")
    assert [line.count(": seen, ") + line.count(": seen; ") for line in lines] == [1, 1, 1]
    assert "CPU seconds 2.00×" in lines[0]
    assert "+5.0 points at the end (+5.0 to +5.0)" in lines[1]
    assert "0 of 3 runs against 3 of 3 end below half" in lines[2] and "+45.0 points" in lines[2]


def test_what_is_less_than_claimed_is_not_seen() -> None:
    less = {**ENDS, "DOTS-RR": (18, 0.82), "decoupled, 8 old": (20, 0.71), NAIVE: (20, 0.5)}
    lines = claims(stale(less)["arms"], "0.8")
    assert all("not seen" in line for line in lines) and len(lines) == 3
    text = stale_table(stale({arm: ENDS[arm] for arm in ("GRPO 8", NAIVE)}))
    assert "80, 80, 80 % | 30, 29, 28 % | 29.0 % |" in text and "6 of 24 runs are made" in text


def test_points_are_paired_by_seed() -> None:
    own, other = {"seeds": [0, 2], "last": [0.8, 0.7]}, {"seeds": [0, 1, 2], "last": [0.7, 0.1, 0.5]}
    mean, low, high = gain(own, other)
    assert mean == pytest.approx(15) and (low, high) == pytest.approx((15 - 12.7062 * 5, 15 + 12.7062 * 5), abs=1e-3)
    assert gain(own, {"seeds": [], "last": []}) == (0.0, -math.inf, math.inf)
    assert num_fallen({"last": [0.4, 0.39], "highest": [0.8, 0.8]}) == 1


def test_runs_go_on_behind_the_last_accuracy_and_those_that_tune_end_there() -> None:
    plan, run = plan_of("stale"), ClaimRun(arm="GRPO 8", rate=1e-4, seed=0, world="stale")
    _, tunes = plan.tuned(run, Log(None))
    assert tunes is not None and (tunes[1].accuracy, tunes[1].steps) == (0.8, STALE.steps)
    bounds = plan.limits(run, Log(None), Log(None))
    assert (bounds.accuracy, bounds.steps) == (1.0, STALE.most_steps)
