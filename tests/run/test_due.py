"""What is due between two steps."""

from __future__ import annotations

from podsrl.config.load import load_config
from podsrl.run.due import Due
from podsrl.run.step.counters import Progress


def evaluations(*overrides: str, seconds: list[float]) -> list[int]:
    """After which steps a run evaluates that takes so many training seconds in each."""
    config, due, elapsed = load_config(None, overrides), Due(), 0.0
    found = []
    for step, spent in enumerate([0.0, *seconds]):
        elapsed += spent
        progress = Progress(step=step, train_seconds=elapsed)
        if due.is_evaluation(config, progress):
            found.append(step)
            due.evaluated(config, progress)
            assert not due.is_evaluation(config, progress)
    return found


def test_evaluations_come_at_the_start_at_the_end_and_by_steps() -> None:
    assert evaluations("eval.every_steps=0", "stop.steps=5", seconds=[1.0] * 5) == [0, 5]
    assert evaluations("eval.every_steps=2", "stop.steps=5", seconds=[1.0] * 5) == [0, 2, 4, 5]


def test_evaluations_by_time_come_at_the_first_step_after_each_multiple() -> None:
    options = ("eval.every_seconds=10", "stop.steps=0", "stop.seconds=36")
    assert evaluations(*options, seconds=[4.0, 4.0, 4.0, 15.0, 2.0, 2.0, 5.0]) == [0, 3, 4, 6, 7]


def test_a_run_ends_by_steps_or_seconds_whichever_comes_first() -> None:
    config, due = load_config(None, ["stop.steps=3", "stop.seconds=10"]), Due()
    assert not due.is_end(config, Progress(step=2, train_seconds=9.9))
    assert due.is_end(config, Progress(step=3)) and due.is_end(config, Progress(step=1, train_seconds=10.0))


def test_checkpoints_and_group_records_come_by_steps() -> None:
    config, due = load_config(None, ["checkpoint.every_steps=2", "record.groups_every_steps=3"]), Due()
    assert [step for step in range(1, 7) if due.is_save_by_steps(config, Progress(step=step))] == [2, 4, 6]
    assert [step for step in range(1, 7) if due.is_group_record(config, Progress(step=step))] == [1, 3, 6]
    short = load_config(None, ["record.groups_every_steps=3", "stop.steps=5", "stop.seconds=60"])
    assert [step for step in range(1, 6) if due.is_group_record(short, Progress(step=step))] == [1, 3, 5]
    assert due.is_group_record(short, Progress(step=2, train_seconds=60.0))
    never = load_config(None, ["checkpoint.every_seconds=0", "record.groups_every_steps=0"])
    assert not due.is_save_by_time(never) and not due.is_group_record(never, Progress(step=1))
    assert not due.is_group_record(never, Progress(step=100))


def test_a_checkpoint_by_time_counts_from_the_last_one() -> None:
    config = load_config(None, ["checkpoint.every_seconds=1000"])
    due = Due(last_save=-1e9)
    assert due.is_save_by_time(config)
    due.saved()
    assert not due.is_save_by_time(config)
