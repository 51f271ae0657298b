"""Save a trainer as a checkpoint, and load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from podsrl.errors import CheckpointError, PodsError, short
from podsrl.records import decode, encode
from podsrl.run.before.matmul import restore_matmul
from podsrl.run.saving.changes import check_batches, check_config, check_data, check_device
from podsrl.run.saving.checkpoint import PARTS, Checkpoint, checkpoint_path, save_checkpoint
from podsrl.run.saving.part_states import Arrays, split_states, whole_states
from podsrl.run.step.counters import Progress
from podsrl.run.step.round import Round, digest, from_arrays, take_arrays, to_arrays
from podsrl.run.step.wiring import opening_view
from podsrl.scale.shard import shard_moment, write_shard
from podsrl.types import Group, Task

if TYPE_CHECKING:
    from podsrl.run.step.trainer import Trainer

KEPT = "replay/groups"
"""Where parts.safetensors holds what the keeper keeps, as bytes (`records.encode`)."""


def save_trainer(trainer: Trainer, folder: Path, extra: Mapping[str, Any]) -> Path:
    """Write a checkpoint; as `Trainer.save`."""
    trainer.settle()
    weights, tensors, numbers = trainer.learner.state()
    step = trainer.collector.round
    begun = {} if step is None else to_arrays(step, trainer.processes)
    if not trainer.processes.is_main:
        return checkpoint_path(folder, trainer.progress.step)
    values, arrays = split_states(trainer.parts.slots.state())
    if kept := trainer.keeper.state():
        arrays[KEPT] = np.frombuffer(encode(kept), dtype=np.uint8)
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
            "underway": digest(begun),
            "matmul": trainer.matmul_choice and trainer.matmul_choice.to_json(),
            "config": trainer.config.model_dump(mode="json"),
            "data": trainer.data,
            "device": trainer.policy.device.type,
            **extra,
        },
        keep=trainer.config.checkpoint.keep,
    )


def load_trainer(trainer: Trainer, checkpoint: Checkpoint, *, allow_data_change: bool) -> None:
    """Go on from a checkpoint; as `Trainer.load`."""
    trainer.settle()
    state = checkpoint.state
    new_options = check_config(checkpoint, trainer.config)
    has_other_data = check_data(checkpoint, trainer.data, is_allowed=allow_data_change) is not None
    trainer.policy.load(checkpoint.model, write_shard)
    moments = checkpoint.optimizer(shard_moment(trainer.model))
    trainer.learner.updater.optimizer.load_state_dict(moments, state["optimizer"])
    arrays = checkpoint.parts()
    begun = take_arrays(arrays)
    step = None if has_other_data else _take_round(trainer, checkpoint, begun)
    trainer.keeper.restore(_take_kept(trainer, checkpoint, arrays))
    trainer.parts.slots.restore(whole_states(state["parts"], arrays))
    trainer.progress = Progress(**{name: state[name] for name in Progress.__dataclass_fields__})
    trainer.collector.round = step
    trainer.matmul_choice, warnings = restore_matmul(trainer.matmul_choice, state["matmul"])
    other_bits = check_device(checkpoint, trainer.policy.device.type) + check_batches(checkpoint, trainer.config)
    trainer.warnings = warnings + new_options + other_bits
    trainer.sync()


def _take_kept(trainer: Trainer, checkpoint: Checkpoint, arrays: Arrays) -> list[Group]:
    """The kept groups, taken out of `arrays`; their tasks are those of the training set.

    Raises:
        CheckpointError: they cannot be read, or name no question of the set.
    """
    if KEPT not in arrays:
        return []
    try:
        return decode(arrays.pop(KEPT).tobytes(), partial(_task_of, trainer.tasks.train))
    except PodsError as error:
        raise CheckpointError(f"{checkpoint.path} is damaged: {KEPT}: {short(str(error))}") from None


def _take_round(trainer: Trainer, checkpoint: Checkpoint, arrays: Arrays) -> Round | None:
    """The step that had begun, if one had.

    Raises:
        CheckpointError: it is not what was saved.
    """
    if digest(arrays) != checkpoint.state["underway"]:
        raise CheckpointError(f"{checkpoint.path} is damaged: {PARTS} does not hold the step under way that was saved")
    if not arrays:
        return None
    train = trainer.tasks.train
    view_at = partial(opening_view, trainer.config, trainer.parts.costs, train, checkpoint.state["step"])
    return from_arrays(arrays, trainer.processes, partial(_task_of, train), view_at)


def _task_of(train: Sequence[Task], name: str, index: int | None) -> Task:
    if index is None or not 0 <= index < len(train):
        raise ValueError(f"group {name!r} has the index {index}, wanted 0 .. {len(train) - 1}")
    return train[index]
