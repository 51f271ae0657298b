"""Save a trainer as a checkpoint, and load it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from podsrl.errors import CheckpointError, PodsError, short
from podsrl.lib.part_states import split_states, whole_states
from podsrl.records import decode, decode_open, encode, encode_open
from podsrl.run.saving.changes import check_config, check_inputs, rounding_notes
from podsrl.run.saving.checkpoint import PARTS, Checkpoint, checkpoint_path, save_checkpoint
from podsrl.run.saving.inputs import has_other_groups
from podsrl.run.step.counters import Progress
from podsrl.run.step.round import Round, Tally, from_arrays, take_arrays, to_arrays
from podsrl.run.step.wiring import opening_view
from podsrl.scale.shard import shard_moment, write_shard
from podsrl.types import Group, Open, Task

if TYPE_CHECKING:
    from podsrl.run.step.trainer import Trainer

T = TypeVar("T")
WAITING = "waiting/opens"
"""Name in parts.safetensors of the groups that wait for later steps (`records.encode_open`)."""
GROUPS = "#groups"
"""Ends the name of an array of parts.safetensors that holds groups of a part's state, as bytes (`records.encode`)."""


def save_trainer(trainer: Trainer, folder: Path, extra: Mapping[str, Any]) -> Path:
    """Write a checkpoint; as `Trainer.save`."""
    trainer.settle()
    weights, tensors, numbers = trainer.learner.state()
    desk = trainer.desk
    rounds = desk.rounds if trainer.config.order.is_ahead else ()  # else a step that failed is asked again
    begun = to_arrays(rounds, desk.position, desk.tally, trainer.processes)
    if desk.waiting:
        begun[WAITING] = np.frombuffer(encode_open(desk.waiting), dtype=np.uint8)
    if not trainer.processes.is_main:
        return checkpoint_path(folder, trainer.progress.step)
    values, arrays = split_states(without_groups(trainer.parts.systems.state()))
    arrays.update(begun)
    return save_checkpoint(
        folder,
        save_model=lambda path: trainer.policy.save(path, weights),
        optimizer=tensors,
        parts=arrays,
        state={
            **{name: getattr(trainer.progress, name) for name in Progress.__dataclass_fields__},
            "optimizer": numbers,
            "parts": values,
            "config": trainer.config.model_dump(mode="json"),
            "inputs": trainer.inputs,
            "device": trainer.policy.device.type,
            **extra,
        },
        keep=trainer.config.checkpoint.keep,
    )


def load_trainer(trainer: Trainer, checkpoint: Checkpoint, *, allow_changes: bool) -> None:
    """Go on from a checkpoint; as `Trainer.load`."""
    trainer.settle()
    state = checkpoint.state
    check_config(checkpoint, trainer.config)
    trainer.change = check_inputs(checkpoint, trainer.inputs, is_allowed=allow_changes)
    is_stale = has_other_groups(state["inputs"], trainer.inputs)
    trainer.policy.load(checkpoint.model, write_shard)
    moments = checkpoint.optimizer(shard_moment(trainer.model))
    trainer.learner.updater.load_state_dict(moments, state["optimizer"])
    arrays, train = checkpoint.parts(), trainer.tasks.train
    begun, task_of, kept = take_arrays(arrays), partial(_task_of, train), arrays.pop(WAITING, None)
    view_at = partial(opening_view, trainer.config, trainer.parts.costs, train)
    rounds, position, tally = list[Round](), state["data_position"], Tally()
    if begun and not is_stale:
        rounds, position, tally = _read(
            checkpoint, PARTS, lambda: from_arrays(begun, trainer.processes, task_of, view_at)
        )
    waiting: Sequence[Open] = ()
    if kept is not None and not is_stale:
        waiting = _read(checkpoint, PARTS, lambda: decode_open(kept.tobytes(), task_of))
    has_kept = any(name.endswith(GROUPS) for name in arrays)
    groups_of = (lambda data: ()) if is_stale else lambda data: tuple(decode(data, task_of))
    states = whole_states(state["parts"], arrays)
    trainer.parts.systems.restore(_read(checkpoint, PARTS, lambda: with_groups(states, groups_of)))
    trainer.progress = Progress(**{name: state[name] for name in Progress.__dataclass_fields__})
    desk = trainer.desk
    desk.rounds, desk.waiting, desk.position, desk.tally = deque(rounds), tuple(waiting), position, tally
    trainer.warnings = rounding_notes(checkpoint, trainer.config, trainer.policy.device.type)
    for has_groups, which in ((kept is not None, "that were to go on"), (has_kept, "that systems kept")):
        if has_groups and is_stale:
            trainer.warnings.append(f"groups {which} are left out: they were begun before the change")
    trainer.settle()  # for the generator, which has the weights of before


def without_groups(states: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The states with arrays of bytes in place of tuples of groups."""
    found: dict[str, dict[str, Any]] = {}
    for part, state in states.items():
        held = {key: value for key, value in state.items() if _are_groups(value)}
        encoded = {f"{key}{GROUPS}": np.frombuffer(encode(value), dtype=np.uint8) for key, value in held.items()}
        found[part] = {key: value for key, value in state.items() if key not in held} | encoded
    return found


def with_groups(
    states: Mapping[str, Mapping[str, Any]], groups_of: Callable[[bytes], tuple[Group, ...]]
) -> dict[str, dict[str, Any]]:
    return {
        part: {
            key.removesuffix(GROUPS): groups_of(value.tobytes()) if key.endswith(GROUPS) else value
            for key, value in state.items()
        }
        for part, state in states.items()
    }


def _are_groups(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, Group) for each in value)


def _read(checkpoint: Checkpoint, name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except PodsError as error:
        raise CheckpointError(f"{checkpoint.path} is damaged: {name}: {short(str(error))}") from None


def _task_of(train: Sequence[Task], name: str, index: int | None) -> Task:
    if index is None or not 0 <= index < len(train):
        raise ValueError(f"group {name!r} has the index {index}, wanted 0 .. {len(train) - 1}")
    return train[index]
