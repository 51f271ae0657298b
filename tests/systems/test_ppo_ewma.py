"""PPO-EWMA and VCPO in whole runs: a resumed one goes on as before, and neutral settings change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.run.before.checks import check_processes
from podsrl.run.step.trainer import Trainer
from runs import assert_same_weights, config_of
from tests.systems.whole_steps import WAYS_TO_STEP, check_resumed, lines, steps

STEPS = (
    "optim.num_minibatches=2",
    "optim.lr=1e-3",
    "rollouts.num_prompts=6",
    "rollouts.max_new_tokens=24",
    "select.num_kept=8",
)
EWMA = ("correct.proximal=average", "correct.window=4", "correct.weight=mask", "correct.reset=0.5")
VCPO = (
    *("correct.proximal=step_start", "correct.weight=sequence", "correct.cap=8", "correct.rate=effective"),
    *("loss.clip=none", "loss.advantage=leave_one_out"),
)


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*STEPS, *overrides, recipe="mixed"))


@pytest.mark.parametrize("parts", WAYS_TO_STEP)
@pytest.mark.parametrize("system", [EWMA, VCPO])
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_stopped(
    tmp_path: Path, system: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    wanted = check_resumed(lambda: trainer_of(*system, *parts), tmp_path)
    assert all("capped_fraction" in line for line in wanted) and any(line["tokens/trained"] for line in wanted)


def test_an_average_of_one_version_is_the_start_of_the_step_bit_for_bit() -> None:
    plain, newest = (trainer_of(f"correct.proximal={name}") for name in ("step_start", "average"))
    newest.learner.updater.average._decay = 0.0
    assert lines(steps(newest, 3)) == lines(steps(plain, 3))
    assert_same_weights(newest, plain)


def test_an_average_changes_what_is_learned() -> None:
    plain, older = (trainer_of(f"correct.proximal={name}") for name in ("step_start", "average"))
    for trainer in (plain, older):
        steps(trainer, 3)
    with pytest.raises(AssertionError):
        assert_same_weights(older, plain)


def test_the_learning_rate_that_is_logged_is_the_one_that_was_taken() -> None:
    trainer = trainer_of(*VCPO, "optim.lr=1e-2")
    found = lines(steps(trainer, 3))
    assert all(0 < line["lr"] <= 1e-2 for line in found) and min(line["lr"] for line in found) < 1e-2


def test_weights_in_pieces_have_no_average() -> None:
    config = config_of("correct.proximal=average", "scale.strategy=fsdp2")
    with pytest.raises(UsageError, match=r"'fsdp2' shares out weights, which correct\.proximal = 'average' cannot"):
        check_processes(config, 2)
