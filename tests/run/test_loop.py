"""The loop on the built-in model: what one step does, and that n = m is GRPO for every rule."""

from __future__ import annotations

import json
import math
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from made import group_of
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.cpu_time import CpuTime, CpuWatch
from podsrl.run.due import Due
from podsrl.run.loop import record, train
from podsrl.run.metrics import step_metrics
from podsrl.run.saving.folder import RunFolder
from podsrl.run.silence import MAX_INVALID_STEPS, NothingToLearn
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.select import RULES
from podsrl.update import to_samples
from runs import config_of
from small_parts import Twice


def small_config(*overrides: str) -> RunConfig:
    return config_of("task.num_eval=16", "rollouts.max_new_tokens=24", *overrides)


def step_line(trainer: Trainer) -> dict[str, Any]:
    """The metrics of one step."""
    return step_metrics(training_step(trainer))


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def test_a_step_changes_the_weights_and_accounts_for_every_token(tmp_path: Path) -> None:
    trainer = Trainer(small_config())
    before = weights(trainer)
    folder = RunFolder(tmp_path)
    folder.create("")
    line = record(folder, training_step(trainer), num_groups=2)
    assert line["step"] == line["version"] == trainer.engine.version == 1
    assert any(not torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())
    assert line["tokens/generated"] == line["tokens/trained"] + line["tokens/skipped"] + line["tokens/discarded"]
    assert line["tokens/prompt"] == 2 * len("What is 47 + 85?\n")
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == line
    assert len((tmp_path / "groups.jsonl").read_text().splitlines()) == 2


def test_the_seconds_of_a_step_are_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is 1 second later at every reading: two readings for each time a stage is entered, and 1 second of
    the stage itself. A round enters "generate" once, and so does the end of the rounds; four verbs count as "select".

    Processor time has a reading where a step begins and one at its end, and so has what settles between two steps."""
    trainer = Trainer(small_config())
    readings, cpu = count(), count()
    monkeypatch.setattr(CpuWatch, "_now", lambda watch: CpuTime(float(next(cpu)), None))
    monkeypatch.setattr("podsrl.run.step.clock.time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    line = step_line(trainer)
    once = {f"seconds/{stage}": 1.0 for stage in ("score", "update", "sync", "record")}
    expected = {**once, "seconds/generate": 2.0, "seconds/select": 4.0}
    expected |= {"seconds/total": 21.0, "seconds/train_elapsed": 21.0, "seconds/cpu": 1.0, "seconds/cpu_wait": None}
    expected |= {"seconds/tokens_per_second": line["tokens/generated"] / 21}
    assert {name: line[name] for name in line if name.startswith("seconds/")} == expected
    assert training_step(trainer).progress.train_seconds == 42.0
    trainer.settle()
    assert step_line(trainer)["seconds/cpu"] == 2.0


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_written_as_null(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(small_config())
    before, whole = weights(trainer), trainer.learner.forward_backward

    def broken(batch: object) -> object:
        stats = whole(batch)  # type: ignore[arg-type]
        next(trainer.model.parameters()).grad[0] = torch.nan
        return stats

    monkeypatch.setattr(trainer.learner, "forward_backward", broken)
    line = step_line(trainer)
    assert line["grad_norm"] is None and line["updates/skipped"] == 1 and line["version"] == 0
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())


def test_a_systems_own_numbers_are_json_and_no_measured_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, folder, lines = Trainer(small_config("systems=small_parts:Twice")), RunFolder(tmp_path), list[Any]()
    monkeypatch.setattr(Twice, "metrics", lambda self: {"entropy" if lines[1:] else "own": math.nan}, raising=False)
    folder.create("")
    with pytest.raises(UsageError, match="metrics of 'small_parts:Twice': the line of a step has 'entropy' already"):
        train(trainer, folder, Due(), on_record=lines.append, should_stop=bool)
    assert lines[-1]["step"] == 1 and lines[-1]["own"] is None


def test_n_equal_m_is_grpo_bit_for_bit_for_every_rule() -> None:
    """No selection at all, written out by hand against each rule that keeps m: same losses, same weights."""
    config = small_config("rollouts.num_rollouts=8", "select.num_kept=8", "select.rule=keep_all")
    reference = Trainer(config)
    losses = []
    for _ in range(2):
        collected = reference.sample()
        groups = collected.groups
        rewards = torch.tensor(
            [[rollout.reward for rollout in group.rollouts] for group in groups], dtype=torch.float64
        )
        advantages = (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-4)
        advantages[rewards.max(-1).values == rewards.min(-1).values] = 0.0
        selections = reference.choose(groups)
        assert all(selection.kept == tuple(range(8)) for selection in selections)
        batch = reference.make_batch(to_samples(groups, selections, list(advantages.float())))
        assert batch is not None
        losses.append(reference.forward_backward(batch).loss)
        reference.optim_step()
        reference.finish_step(collected)
    for rule in sorted(RULES.keys() - {"max_signal", "drop_surplus"}):
        trainer = Trainer(small_config("rollouts.num_rollouts=8", "select.num_kept=8", f"select.rule={rule}"))
        assert [training_step(trainer).update.stats.loss for _ in range(2)] == losses, rule
        for name, tensor in weights(reference).items():
            assert torch.equal(tensor, weights(trainer)[name]), (rule, name)


@pytest.mark.parametrize(("rule", "kept"), [("max_variance", (3, 4)), ("max_reward", (0, 3)), ("percentile", (0, 1))])
def test_the_rule_that_the_config_names_is_the_one_that_chooses(rule: str, kept: tuple[int, ...]) -> None:
    """Of six rewards: the extremes; the two highest; those at ranks 1 and 4, a quarter and three quarters up."""
    group = group_of("q", 0.9, 0.1, 0.5, 1.0, 0.0, 0.4)
    trainer = Trainer(small_config("rollouts.num_rollouts=6", "select.num_kept=2", f"select.rule={rule}"))
    assert [selection.kept for selection in trainer.choose([group])] == [kept]


def test_groups_are_named_by_their_step_their_place_and_their_task() -> None:
    trainer = Trainer(small_config("rollouts.max_new_tokens=1"))
    trainer.finish_step(trainer.sample())
    later = trainer.sample().groups
    assert [group.id for group in later] == [f"s1/{place}/{group.task.id}" for place, group in enumerate(later)]
    assert [trainer.tasks.train[group.index or 0] for group in later] == [group.task for group in later]


def test_training_on_sixty_four_to_sixteen_lifts_accuracy(tmp_path: Path) -> None:
    """Fifteen steps are enough to see it: about 4 % before, several times that after."""
    trainer = Trainer(
        load_config("pods", ["stop.seconds=0", "stop.steps=15", "eval.every_seconds=0", "task.num_eval=128"])
    )
    records: list[dict[str, float]] = []
    folder = RunFolder(tmp_path)
    folder.create("")
    assert train(trainer, folder, Due(), on_record=records.append, should_stop=lambda: False) == "finished"
    accuracies = [record["eval/accuracy"] for record in records if "eval/accuracy" in record]
    assert len(accuracies) == 2 and accuracies[0] < 0.15 and accuracies[1] > 3 * accuracies[0]


def test_steps_without_a_valid_rollout_change_nothing_and_end_the_run_with_the_reason(tmp_path: Path) -> None:
    trainer = Trainer(small_config('task.rewards={"light_rewards:raises" = 1.0}', "eval.every_seconds=0"))
    assert any("no judge today" in warning for warning in trainer.parts.warnings)
    before = weights(trainer)
    folder = RunFolder(tmp_path)
    folder.create("")
    with pytest.raises(NothingToLearn, match="no judge today"):
        train(trainer, folder, Due(), on_record=lambda record: None, should_stop=lambda: False)
    assert trainer.progress.step == MAX_INVALID_STEPS and trainer.progress.version == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())
    assert [path.name for path in folder.checkpoints.iterdir()] == [f"step-{MAX_INVALID_STEPS:08d}"]


@pytest.mark.parametrize("num_groups", [0, 1])
def test_empty_steps_are_counted_from_the_groups_there_are(num_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system of one's own may ask for fewer groups than the config's number of prompts."""
    options = ("systems=small_budgets:Always", f'options={{"small_budgets:Always" = {{count = {num_groups}}}}}')
    rewards = 'task.rewards={"light_rewards:raises" = 1.0}'
    trainer = Trainer(small_config(rewards, "stop.seconds=0", "stop.steps=5", *options))
    monkeypatch.setattr(trainer, "save", lambda folder, extra: None)
    monkeypatch.setattr("podsrl.run.loop.evaluate", lambda trainer, on_answer, on_look: SimpleNamespace(to_json=dict))
    with pytest.raises(NothingToLearn, match=f"{MAX_INVALID_STEPS} steps in a row"):
        train(trainer, None, Due(), on_record=lambda record: None, should_stop=lambda: False)
    assert trainer.progress.step == MAX_INVALID_STEPS


def one_wrong_shape(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.zeros(len(rewards), num_kept + 1, dtype=torch.int64)


def test_a_rule_that_refuses_or_misses_the_shape_is_found_before_the_model_loads() -> None:
    with pytest.raises(UsageError, match="keep_all"):
        Trainer(small_config("select.rule=keep_all", "model.path=/nowhere"))
    with pytest.raises(UsageError, match=r"'one_wrong_shape' returned the shape \[1, 5\]; wanted \[1, 4\]"):
        Trainer(small_config(f"select.rule={__name__}:one_wrong_shape", "model.path=/nowhere"))


def test_any_number_of_slots_gives_the_same_step() -> None:
    lines = [step_line(Trainer(small_config(f"rollouts.num_slots={slots}"))) for slots in (0, 5)]
    assert lines[0]["reward/all"] == lines[1]["reward/all"]
    assert lines[0]["grad_norm"] == pytest.approx(lines[1]["grad_norm"], rel=1e-4)
    assert lines[0]["tokens/forwarded"] < lines[1]["tokens/forwarded"] < lines[1]["tokens/generated"]


def test_bounded_memory_gives_the_same_step_and_says_what_fits() -> None:
    free = step_line(Trainer(small_config()))
    trainer = Trainer(small_config('rollouts.kv_cache_bytes="100KiB"', "rollouts.scheduler=dynamic+breadth"))
    bound = step_line(trainer)
    assert trainer.config.rollouts.kv_cache_bytes == 102_400
    assert trainer.generation.startswith("hand-written decode step; ")
    assert trainer.generation.endswith("kv_cache_bytes = 102,400)")
    assert bound["reward/all"] == free["reward/all"] and bound["length/all"] == free["length/all"]
    assert bound["memory/peak_generate_bytes"] <= 102_400 < free["memory/peak_generate_bytes"]


def test_stop_strings_end_completions_and_one_that_can_never_come_is_refused_before_the_model_loads() -> None:
    trainer = Trainer(small_config('rollouts.stop_strings=["+"]'))
    rollouts = [rollout for group in trainer.sample().groups for rollout in group.rollouts]
    texts = trainer.tokenizer.batch_decode([rollout.token_ids for rollout in rollouts])
    assert any(text.endswith("+") for text in texts) and not any("+" in text[:-1] for text in texts)
    with pytest.raises(UsageError, match="漢"):
        Trainer(small_config('rollouts.stop_strings=["漢"]'))


def test_memory_for_less_than_one_rollout_and_an_unknown_scheduler_are_refused() -> None:
    with pytest.raises(UsageError, match=r"kv_cache_bytes = 2,000: request '0' alone needs"):
        Trainer(small_config("rollouts.kv_cache_bytes=2000"))
    with pytest.raises(UsageError, match="Did you mean 'continuous'"):
        Trainer(small_config("rollouts.scheduler=continous", "model.path=/nowhere"))


def test_several_epochs_make_several_updates_of_one_batch() -> None:
    line = step_line(Trainer(small_config("optim.num_epochs=3", "rollouts.num_rollouts=32")))
    assert line["version"] == 3 and line["logprob_gap"] > 1e-6


def test_a_kl_penalty_is_zero_at_the_start_and_positive_later() -> None:
    trainer = Trainer(small_config("loss.kl_beta=0.1", "rollouts.num_rollouts=32"))
    first, *_, last = [step_line(trainer) for _ in range(4)]
    assert abs(first["kl"]) < 1e-6 < last["kl"]
