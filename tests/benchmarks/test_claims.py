"""`python -m benchmarks claims`: which runs are made, and what is summed up of them, by hand-written numbers."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.claims import ClaimRun, draw, next_run, spent, summarize, table, turns
from benchmarks.when_pods_helps.cells import Log
from benchmarks.when_pods_helps.harness import first_at
from benchmarks.worlds import SEEDS, STORIES, WORLDS
from podsrl.compare.systems import system_names

ARMS, MARKS, RATES, TARGET, BASELINE = STORIES.arms, STORIES.marks, STORIES.rates, STORIES.target, STORIES.baseline
PODS = "PODS 64 → 16"


def record(steps: int, *, tokens: int = 100, trained: int = 100) -> dict[str, Any]:
    """Of a run that is at the target after so many steps, and evaluated after each."""
    count = range(steps + 1)
    points = {
        name: [number * i for i in count] for name, number in (("step", 1), ("tokens", tokens), ("trained", trained))
    }
    points |= {"seconds": [2.0 * i for i in count], "cpu_seconds": [1.0 * i for i in count]}
    points |= {
        "decode_steps": [10 * i for i in count],
        "rollouts": [128 * i for i in count],
        "accuracy": [0.25] * steps + [TARGET],
    }
    return {
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in MARKS.targets},
        "limits": {"steps": 400},
        "commit": "abc",
        "load": 0.5,
    }


def full(arms: dict[str, tuple[int, int, int]]) -> tuple[Log, Log]:
    """The logs of all runs of these arms: steps, generated and trained tokens per step at the best rate, the last."""
    log, tuning = Log(None), Log(None)
    while (found := next_run(list(arms), log, tuning)) is not None:
        run, _, into, _ = found
        steps, tokens, trained = arms[run.arm]
        into.add(run, record(steps + 3 * (run.rate != RATES[-1]) + run.seed % 2, tokens=tokens, trained=trained))
    return log, tuning


def test_what_a_price_makes_of_tokens() -> None:
    place = {"step": 3, "tokens": 1000, "trained": 400}
    assert [spent(place, clock) for clock in ("step", "at 0.3", "at 2.3")] == [3, 700, 2700]


def test_each_arm_is_tuned_on_seeds_that_count_for_nothing_else() -> None:
    log, tuning = full({BASELINE: (10, 100, 100)})
    assert {run["seed"] for run in tuning.records.values()}.isdisjoint(SEEDS)
    assert [(run["rate"], run["seed"]) for run in log.records.values()] == [(RATES[-1], seed) for seed in SEEDS]


def test_a_cost_is_compared_seed_by_seed() -> None:
    result = summarize(*full({BASELINE: (10, 100, 100), PODS: (5, 400, 100)}))
    assert (result["num_runs"], result["num_wanted"]) == (6, len(ARMS) * 3)
    assert "over" in result["arms"][BASELINE] and result["arms"][BASELINE]["over"] == {}
    pods = result["arms"][PODS]
    assert pods["to"][f"{TARGET:g}"]["step"] == [5, 6, 5] and pods["start"] == 0.25
    over = pods["over"][f"{TARGET:g}"]
    assert over["step"]["ratios"] == [2.0, round(11 / 6, 4), 2.0]
    # a step of GRPO costs 130 at g = 0.3, one of PODS 220
    assert over["at 0.3"]["ratios"][0] == pytest.approx(10 * 130 / (5 * 220), abs=1e-4)


def test_a_large_group_is_the_cheaper_one_from_a_price_of_a_decode_step_on() -> None:
    result = summarize(*full({BASELINE: (10, 400, 400), "GRPO 4": (30, 100, 50), "GRPO 64": (10, 1600, 1600)}))
    # to the target at g = 0.3: 10.33 steps of 400 + 0.3 · 400 against 30.33 of 50 + 0.3 · 100; ten decode steps each
    costs = {n: (steps * each, 10 * steps) for n, steps, each in ((4, 91 / 3, 80), (16, 31 / 3, 520))}
    turned = (costs[16][0] - costs[4][0]) / (costs[4][1] - costs[16][1])
    assert result["turns"]["4 → 16"]["at 0.3"] == round(turned, 1) == 14.7
    assert result["turns"]["16 → 64"]["at 0.3"] is None  # as many steps
    assert "| 16 → 64 | never | never | never | never |" in table(result)
    result["arms"]["GRPO 16"]["to"][f"{TARGET:g}"]["decode_steps"][1] = None
    assert turns({n: result["arms"][f"GRPO {n}"]["to"][f"{TARGET:g}"] for n in (4, 16)}) == {}


def test_every_arm_has_a_config_of_its_own() -> None:
    configs = {arm: ClaimRun(arm=arm, rate=1e-3, seed=7).config() for arm in ARMS}
    assert len({config.model_dump_json() for config in configs.values()}) == len(ARMS)
    assert {(config.seed, config.optim.lr, config.threads) for config in configs.values()} == {(7, 1e-3, 1)}
    assert (configs["PODS 128 → 8"].rollouts.num_rollouts, configs["PODS 128 → 8"].select.num_kept) == (128, 8)
    assert configs["DAPO"].budget.enough == "mixed" and configs["DAPO"].rollouts.num_rollouts == 16


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
    log, tuning = full({BASELINE: (10, 100, 100), "GRPO 4": (40, 25, 25), PODS: (5, 400, 100)})
    for found in [found for found in log.records.values() if found["arm"] == "GRPO 4"][:1]:
        found["reached"][f"{TARGET:g}"] = None
    result = {**summarize(log, tuning), "hardware": "abacus"}
    steps, costs, curves = draw(result).axes
    whole = {line.get_label(): line.get_xydata().tolist() for line in steps.lines if line.get_linestyle() == "-"}
    assert whole[f"to {TARGET:.0%}"] == [[16, 10]] and whole["to 50%"] == [[4, 40], [16, 10]]
    assert len(costs.lines) == 4 * 3 and len(curves.lines) == 3 * len(SEEDS)
    [row] = [line for line in table(result).splitlines() if line.startswith("| GRPO 4 ")]
    assert "–, 41, 40" in row
