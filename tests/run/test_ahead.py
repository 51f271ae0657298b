"""Steps that are generated ahead: against a loop by hand that keeps the older weights, and against runs that were
stopped, evaluated and saved in between."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from beside import Beside
from podsrl.errors import CheckpointError, LostGenerator, PodsError, UsageError
from podsrl.generate import Engine
from podsrl.lib.seeds import derive
from podsrl.run.due import Due
from podsrl.run.evaluate import evaluate
from podsrl.run.loop import train
from podsrl.run.metrics import step_metrics
from podsrl.run.saving.folder import RunFolder
from podsrl.run.step.desk import new_group, request_id
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.tasks.stream import Stream
from podsrl.types import Open, Rollout, Way
from runs import EXTRA, assert_same_weights, config_of, newest, timeless

OPTIONS = (
    *("stop.steps=6", "rollouts.generator=beside:beside"),
    *('task.rewards={"light_rewards:varied" = 1.0}', "task.correct=light_rewards:varied"),
)
WAYS = {
    "one epoch": (),
    "two epochs": ("optim.num_epochs=2", "select.rule=random"),
    "lora": ("lora.rank=4", "lora.dropout=0.1"),
    "decoupled": ("optim.num_epochs=2", "correct.proximal=step_start", "correct.weight=mask", "correct.cap=1.01"),
}
ROUNDS = ("systems=small_parts:Twice",)


def trainer_of(*overrides: str, ahead: int = 1) -> Trainer:
    return Trainer(config_of(*OPTIONS, f"order.ahead={ahead}", *overrides))


def lines_of(trainer: Trainer, steps: int, between: Callable[[], Any] = lambda: None) -> list[dict[str, Any]]:
    lines = []
    for _ in range(steps):
        lines.append(timeless(step_metrics(training_step(trainer))))
        between()
    return lines


# --- what it computes ---


@pytest.mark.parametrize("way", ["two epochs", "one epoch", "lora"])
def test_a_loop_by_hand_that_keeps_the_older_weights_gives_the_same_numbers(way: str) -> None:
    options = tuple(option for option in WAYS[way] if "dropout" not in option)
    trainer, hand = trainer_of(*options), trainer_of(*options, ahead=0)
    data = Stream(len(hand.tasks.train), derive(hand.config.seed, "data"), 0)
    num_epochs = hand.config.optim.num_epochs
    kept: list[dict[str, torch.Tensor]] = []
    for step in range(4):
        weights = hand.policy.sampled_weights()
        named = weights.named_parameters() if isinstance(weights, torch.nn.Module) else weights
        kept.append({name: tensor.detach().clone() for name, tensor in named})
        before = max(step - 1, 0)
        hand.engine.load_weights(kept[before].items(), before * num_epochs)
        wanted = []
        for place, index in enumerate(data.draw(2)):
            task = hand.tasks.train[index]
            group = replace(new_group(request_id(step, place, task.id), task), index=index, step=step)
            wanted.append(Open(group=group, ways=(Way(count=8),)))
        groups = hand.desk.answer(wanted, hand.sampling)
        selections = hand.choose(groups)
        update = hand.update(hand.make_batch(hand.credit(groups, selections)))
        hand.progress = replace(hand.progress, step=step + 1)

        result = training_step(trainer)
        assert result.groups == tuple(groups) and result.selections == tuple(selections)
        assert result.update == update
        line = step_metrics(result)
        assert line["rollouts/lag"] == line["rollouts/lag_max"] == (num_epochs if step else 0)
    assert_same_weights(trainer, hand)
    assert isinstance(trainer.engine, Beside)
    assert trainer.engine.versions == [num_epochs * version for version in (0, 0, 1, 2, 3)]


def test_the_first_step_is_that_of_a_run_that_generates_and_then_trains() -> None:
    trainers = [trainer_of(), trainer_of(ahead=0)]
    lines = [lines_of(trainer, 3) for trainer in trainers]
    assert lines[0] != lines[1]
    assert lines[0][0] == {**lines[1][0], "sync/weights_digest": lines[0][0]["sync/weights_digest"]}
    assert "seconds/overlapped" not in step_metrics(training_step(trainers[1]))


def test_further_rounds_have_the_newest_weights_and_join_groups_of_older_ones() -> None:
    trainer = trainer_of(*ROUNDS)
    training_step(trainer)
    groups = training_step(trainer).groups
    grown = [group for group in groups if len(group.rollouts) > 8]
    assert grown
    for group in grown:
        assert [r.index for r in group.rollouts] == list(range(len(group.rollouts)))
        assert [r.version for r in group.rollouts] == [0] * 8 + [1] * (len(group.rollouts) - 8)


# --- what happens in between ---


@pytest.mark.parametrize("options", [(), ROUNDS], ids=["one round", "rounds"])
def test_an_evaluation_in_between_changes_nothing(options: tuple[str, ...]) -> None:
    plain, looked = trainer_of(*options), trainer_of(*options)
    results = []
    lines = lines_of(looked, 4, lambda: results.append(evaluate(looked)))
    assert lines == lines_of(plain, 4)
    assert_same_weights(plain, looked)
    versions = looked.engine.versions if isinstance(looked.engine, Beside) else []
    assert options or versions == [0, 0, 1, 1, 2, 2, 3, 3, 4]  # steps, and evaluations of the newest weights


def test_seconds_of_generation_that_an_evaluation_waited_for_count_as_the_next_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a clock that is 1 second later at every reading, a stage takes 1 second whenever it is entered."""
    trainer = trainer_of()
    training_step(trainer)
    readings = count()
    monkeypatch.setattr("podsrl.run.step.clock.time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    results = [training_step(trainer)]
    trainer.settle()
    results.append(training_step(trainer))
    gained = {stage: results[1].seconds[stage] - results[0].seconds[stage] for stage in results[0].seconds}
    assert gained == {**dict.fromkeys(gained, 0.0), "generate": 1.0}  # the new weights are sent once
    for result in results:
        assert sum(result.seconds.values()) <= result.total_seconds


def test_a_step_that_has_begun_and_is_not_what_was_saved_is_never_trained_on(tmp_path: Path) -> None:
    trainer = trainer_of()
    training_step(trainer)
    trainer.save(tmp_path, EXTRA)
    checkpoint = newest(tmp_path)
    file = checkpoint.path / "parts.safetensors"
    whole = load_file(file)
    for name, tensor in whole.items():
        for other in ({}, {name: tensor[:-1]}, {name: tensor + torch.ones((), dtype=tensor.dtype)}):
            save_file({each: value for each, value in whole.items() if each != name} | other, file)
            with pytest.raises(CheckpointError, match=r"parts.safetensors is (damaged|truncated)"):
                newest(tmp_path)
    save_file({**whole, "steps/1/opens": whole["steps/1/opens"] + 1}, file)
    with pytest.raises(CheckpointError, match=r"is damaged: parts.safetensors: .*these bytes are no records"):
        trainer.load(checkpoint)


# --- how a run ends ---


def run_of(trainer: Trainer, path: Path) -> Any:
    folder = RunFolder(path)
    folder.create("")
    try:
        return train(trainer, folder, Due(), on_record=lambda line: None, should_stop=lambda: False)
    finally:
        trainer.close()


def test_no_step_is_begun_that_is_never_trained_and_the_last_weights_are_evaluated(tmp_path: Path) -> None:
    trainer = trainer_of("stop.steps=3")
    assert run_of(trainer, tmp_path / "run") == "finished"
    assert not trainer.desk.rounds
    assert isinstance(trainer.engine, Beside)
    assert trainer.engine.versions == [0, 0, 0, 1, 3]  # evaluations at the ends
    checkpoint, longer = newest(tmp_path / "run" / "checkpoints"), trainer_of("stop.steps=4")
    assert "parts.safetensors" not in [path.name for path in checkpoint.path.iterdir()]
    longer.load(checkpoint)
    assert step_metrics(training_step(longer))["rollouts/lag"] == 0  # drawn by the weights that were loaded


def test_impossible_completions_of_the_engine_end_the_run_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def altered(self: Engine, seconds: float | None = None) -> list[Rollout]:
        return [
            replace(found, logprobs=(math.nan,) * len(found.logprobs)) if found.version == 1 else found
            for found in poll(self, seconds)
        ]

    poll = Engine.poll
    monkeypatch.setattr(Engine, "poll", altered)
    with pytest.raises(PodsError, match=r"rollouts\.generator = 'engine' gave rollout .*nan"):
        run_of(trainer_of("rollouts.generator=engine", ahead=0), tmp_path / "run")
    assert newest(tmp_path / "run" / "checkpoints").state["step"] == 1


@pytest.mark.parametrize(("ahead", "step"), [(1, 3), (0, 4)])
def test_a_generator_that_is_lost_in_flight_ends_the_run_and_the_last_checkpoint_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, step: int
) -> None:
    options = (f"order.ahead={ahead}", "checkpoint.every_steps=3")
    monkeypatch.setattr(Beside, "lost_at", 6)  # what step 5 is to train on; one call is the evaluation's
    with pytest.raises(LostGenerator):
        run_of(trainer_of(*options), tmp_path / "run")
    monkeypatch.setattr(Beside, "lost_at", 0)
    resumed = trainer_of(*options)
    resumed.load(newest(tmp_path / "run" / "checkpoints"))
    assert resumed.progress.step == step
    assert lines_of(resumed, 6 - step) == lines_of(trainer_of(*options), 6)[step:]


# --- what is refused ---


def test_a_trainer_that_cannot_be_made_closes_its_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Beside] = []
    monkeypatch.setattr(Beside, "close", lambda self: closed.append(self))
    monkeypatch.setattr(Beside, "abilities", frozenset())
    with pytest.raises(UsageError, match=r"order\.ahead"):
        trainer_of()
    assert len(closed) == 1


def test_a_generator_of_ones_own_without_the_ability_is_refused() -> None:
    with pytest.raises(UsageError, match=r"order\.ahead = 1.*Engine lacks the ability 'beside'"):
        trainer_of("rollouts.generator=podsrl.generate.kinds:new_engine")
