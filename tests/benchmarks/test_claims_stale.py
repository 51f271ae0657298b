"""`python -m benchmarks claims-stale`: what is trained on is as old as it says; what is made of hand-written runs."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import pytest

from benchmarks.claims import ClaimRun, next_run, summarize
from benchmarks.claims_stale import POINTS, SOONER, SURVIVES, claims, gain, num_fallen, table
from benchmarks.lagged import Lagged
from benchmarks.when_pods_helps.cells import Log
from benchmarks.when_pods_helps.harness import first_at
from benchmarks.worlds import STALE
from made import group_of
from podsrl.config.load import load_config
from podsrl.control import View
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step
from podsrl.tasks.stream import Stream
from podsrl.types import Group
from runs import EXTRA, newest

LAGGED = "benchmarks.lagged:Lagged"
NAIVE, VCPO = "naive, 32 old", "VCPO, 32 old"


def view(step: int) -> View:
    return View(step=step, num_prompts=2, num_rollouts=2, num_train=9, seed=0, stream=Stream(9, 0, 0))


def met(step: int, count: int = 2, *, is_trained: bool = True) -> list[Group]:
    return [group_of(f"s{step}/{place}", 0.0, 1.0, step=step, is_trained=is_trained) for place in range(count)]


def ids(groups: Any) -> list[str]:
    return [group.id for group in groups]


def test_groups_wait_for_so_many_steps_and_go() -> None:
    lagged, given = Lagged(steps=3), []
    for step in range(6):
        given.append(ids(lagged.groups(view(step))))
        assert given[-1] == ids(lagged.groups(view(step)))
        assert lagged.keep(view(step).after(met(step))) == ()
        lagged.learn(met(step, 1 + step % 2))
    assert given == [[], [], [], ["s0/0"], ["s1/0", "s1/1"], ["s2/0"]]


def test_probes_do_not_wait_and_a_step_without_groups_gives_none() -> None:
    lagged = Lagged(steps=1)
    lagged.learn(met(0, 1, is_trained=False))
    assert ids(lagged.groups(view(1))) == []
    lagged.learn([*met(1, 1), *met(1, 1, is_trained=False)])
    assert ids(lagged.groups(view(2))) == ["s1/0"]


def test_what_waits_is_its_whole_state() -> None:
    lagged, again = Lagged(steps=3), Lagged(steps=3)
    for step, count in enumerate((2, 0, 1)):
        lagged.learn(met(step, count))
    assert ids(lagged.state()["groups"]) == ["s0/0", "s0/1", "s2/0"] and lagged.state()["sizes"] == [2, 0, 1]
    again.restore(lagged.state())
    for step in range(3, 8):
        assert ids(again.groups(view(step))) == ids(lagged.groups(view(step)))
        for each in (lagged, again):
            each.learn(met(step))


def test_a_run_trains_on_what_is_exactly_so_old_and_a_resumed_one_too(tmp_path: Any) -> None:
    changes = [f'replay.groups="{LAGGED}"', f'budget.keep="{LAGGED}"', f'options={{"{LAGGED}" = {{steps = 2}}}}']
    small = ["rollouts.num_prompts=4", "rollouts.num_rollouts=8", "select.num_kept=8", "rollouts.max_new_tokens=24"]
    config = load_config("mixed", [*small, *changes, 'model.device="cpu"', "threads=1"])
    steps, lags = [], []
    with closing(Trainer(config)) as trainer:
        for step in range(6):
            if step == 3:
                trainer.save(tmp_path, dict(EXTRA))
            result = training_step(trainer)
            metrics = step_metrics(result)
            steps.append([group.step for group in result.groups])
            lags.append((metrics["rollouts/lag"], metrics["rollouts/lag_max"], metrics["version"]))
            assert (metrics["rollouts/all"], metrics["rollouts/left_out"]) == (0, 32)
    assert steps == [[], [], [0] * 4, [1] * 4, [2] * 4, [3] * 4]
    assert lags == [(None, None, 0), (None, None, 0), (0.0, 0, 1), (1.0, 1, 2), (2.0, 2, 3), (2.0, 2, 4)]

    with closing(Trainer(config)) as resumed:
        resumed.load(newest(tmp_path))
        assert [[group.step for group in training_step(resumed).groups] for _ in range(3)] == steps[3:]


def test_arms_correct_as_the_recipes_do() -> None:
    configs = {arm: ClaimRun(arm=arm, rate=1e-4, seed=0, world="stale").config() for arm in STALE.arms}
    areal, ewma = (load_config(f"systems/{name}") for name in ("areal", "ppo_ewma"))
    vcpo = configs[VCPO]
    assert configs["decoupled, 8 old"].correct == areal.correct
    assert configs["EWMA, 8 old"].correct == ewma.correct
    assert (vcpo.loss.advantage, vcpo.loss.clip) == ("leave_one_out", "none")
    assert (vcpo.correct.proximal, vcpo.correct.weight) == ("step_start", "sequence")
    assert (vcpo.correct.cap, vcpo.correct.rate) == (8.0, "effective")
    assert configs["interpolated, 8 old"].correct == areal.correct.model_copy(update={"proximal": "interpolated"})
    assert {configs[arm].correct for arm in ("naive, 8 old", NAIVE)} == {configs["GRPO 8"].correct}
    assert configs["DOTS-RR"].replay.groups == "fifo"
    for arm, config in configs.items():
        age = arm.rpartition(", ")[2].removesuffix(" old")
        assert config.options.get(LAGGED, {"steps": None})["steps"] == (int(age) if age.isdigit() else None)
        assert (config.optim.num_updates, config.rollouts.num_rollouts, config.steps.is_ahead) == (1, 8, False)


def test_every_claim_is_of_arms() -> None:
    named = [SOONER[0], *(name for arm, other, *_ in POINTS for name in (arm, other)), *SURVIVES[0]]
    assert {*named} == {*STALE.arms} - {"GRPO 8"} and {*STALE.claims} == {SOONER[0]}


def test_runs_go_on_behind_the_last_accuracy_and_those_that_tune_end_there() -> None:
    log, tuning = Log(None), Log(None)
    bounds = set()
    while (found := next_run(["GRPO 8"], log, tuning, "stale")) is not None:
        run, limits, into, _ = found
        bounds.add((into is log, limits.accuracy, limits.steps if into is log else 0))
        into.add(run, record(5, 0.8))
    assert bounds == {(False, 0.8, 0), (True, 1.0, STALE.most_steps)}


def record(steps: int, last: float) -> dict[str, Any]:
    """Of a run that is at 80 % after so many steps of 2 CPU seconds, and at `last` after one more."""
    count = range(steps + 2)
    names = ("step", "seconds", "rollouts", "tokens", "trained", "decode_steps")
    points: dict[str, Any] = {name: [*count] for name in names}
    points |= {"cpu_seconds": [2.0 * i for i in count], "accuracy": [0.25] * steps + [0.8, last]}
    return {
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in STALE.marks.targets},
        "limits": {"steps": 150},
        "commit": "abc",
        "load": 0.5,
    }


def result_of(ends: dict[str, tuple[int, float]]) -> Any:
    """The summary of all runs of these arms: steps to 80 %, and accuracy at the end of seed 0; others have less."""
    log, tuning = Log(None), Log(None)
    while (found := next_run([*ends], log, tuning, "stale")) is not None:
        run, _, into, _ = found
        steps, last = ends[run.arm]
        into.add(run, record(steps, last - 0.01 * run.seed if into is log else last))
    return summarize(log, tuning, "stale")


ENDS = {
    "GRPO 8": (20, 0.82),
    "DOTS-RR": (10, 0.82),
    "naive, 8 old": (20, 0.7),
    "decoupled, 8 old": (20, 0.75),
    NAIVE: (20, 0.3),
    VCPO: (20, 0.75),
}


def test_claims_are_judged_on_sooner_points_and_collapse() -> None:
    result = result_of(ENDS)
    assert result["arms"][NAIVE]["last"] == pytest.approx([0.3, 0.29, 0.28])
    assert result["arms"][NAIVE]["highest"] == [0.8] * 3 and result["arms"][NAIVE]["num_steps"] == [21] * 3
    lines = claims(result["arms"], "0.8")
    assert [line.count(": seen, ") + line.count(": seen; ") for line in lines] == [1, 1, 1]
    assert "CPU seconds 2.00×" in lines[0]
    assert "+5.0 points at the end (+5.0 to +5.0)" in lines[1]
    assert "0 of 3 runs against 3 of 3 end below half" in lines[2] and "+45.0 points" in lines[2]


def test_what_is_less_than_claimed_is_not_seen() -> None:
    lines = claims(
        result_of({**ENDS, "DOTS-RR": (18, 0.82), "decoupled, 8 old": (20, 0.71), NAIVE: (20, 0.5)})["arms"], "0.8"
    )
    assert all("not seen" in line for line in lines) and len(lines) == 3
    assert "CPU seconds 1.11×" in lines[0] and "+1.0 points" in lines[1]


def test_a_table_has_a_row_per_arm_that_is_made_and_says_what_is_missing() -> None:
    text = table(result_of({arm: ENDS[arm] for arm in ("GRPO 8", NAIVE)}))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 3 and "80, 80, 80 % | 30, 29, 28 % | 29.0 % |" in rows[2]
    assert "6 of 24 runs are made" in text and "The claim" not in text


def test_points_are_paired_by_seed() -> None:
    own, other = {"seeds": [0, 2], "last": [0.8, 0.7]}, {"seeds": [0, 1, 2], "last": [0.7, 0.1, 0.5]}
    mean, low, high = gain(own, other)
    assert mean == pytest.approx(15) and (low, high) == pytest.approx((15 - 12.7062 * 5, 15 + 12.7062 * 5), abs=1e-3)
    assert gain(own, {"seeds": [], "last": []}) == (0.0, -math.inf, math.inf)
    assert num_fallen({"last": [0.4, 0.39], "highest": [0.8, 0.8]}) == 1
