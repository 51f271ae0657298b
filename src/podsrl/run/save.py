"""Save a trainer as a checkpoint, and load it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podsrl.run.checkpoint import Checkpoint, checkpoint_path, save_checkpoint
from podsrl.run.checks import check_config, check_data, check_device
from podsrl.run.matmul import restore_matmul
from podsrl.run.part_states import split_states, whole_states
from podsrl.run.progress import Progress
from podsrl.scale.shard import shard_moment, write_shard

if TYPE_CHECKING:
    from podsrl.run.trainer import Trainer


def save_trainer(trainer: Trainer, folder: Path, extra: Mapping[str, Any]) -> Path:
    """Write a checkpoint; as `Trainer.save`."""
    weights, tensors, numbers = trainer.learner.state()
    if not trainer.processes.is_main:
        return checkpoint_path(folder, trainer.progress.step)
    values, arrays = split_states(trainer.parts.budget.state())
    return save_checkpoint(
        folder,
        save_model=lambda path: trainer.policy.save(path, weights),
        optimizer=tensors,
        parts=arrays,
        state={
            **{name: getattr(trainer.progress, name) for name in Progress.__dataclass_fields__},
            "optimizer": numbers,
            "parts": values,
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
    state = checkpoint.state
    new_options = check_config(checkpoint, trainer.config)
    check_data(checkpoint, trainer.data, is_allowed=allow_data_change)
    trainer.policy.load(checkpoint.model, write_shard)
    moments = checkpoint.optimizer(shard_moment(trainer.model))
    trainer.learner.updater.load_state_dict(moments, state["optimizer"])
    trainer.parts.budget.restore(whole_states(state.get("parts", {}), checkpoint.parts()))
    trainer.progress = Progress(**{name: state[name] for name in Progress.__dataclass_fields__})
    trainer.matmul_choice, warnings = restore_matmul(trainer.matmul_choice, state.get("matmul"))
    trainer.warnings = warnings + new_options + check_device(checkpoint, trainer.policy.device.type)
    trainer.sync()
