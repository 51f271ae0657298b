"""`python -m benchmarks claims-stale`: what is trained on is as old as it says, and corrected as in the recipes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from benchmarks.claims import ClaimRun
from benchmarks.lagged import Lagged
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
