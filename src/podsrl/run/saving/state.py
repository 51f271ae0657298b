"""Validate `state.json` of a checkpoint: every entry has its type and range and agrees with the others.

Entries that nothing reads are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from podsrl.config.bounds import MAX_SECONDS, MAX_STEPS
from podsrl.config.load import build
from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.errors import CheckpointError, UsageError, short

Json = dict[str, Any]
MAX_BYTES = 16 << 20
"""Largest size of a JSON file in a checkpoint that is read."""

LOGS = {"metrics.jsonl", "groups.jsonl"}
"""Whose sizes every checkpoint remembers."""
Natural = Annotated[int, Field(ge=0, lt=2**63)]
Step = Annotated[int, Field(ge=0, le=MAX_STEPS)]
Seconds = Annotated[float, Field(ge=0, le=100 * MAX_SECONDS)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class OptimizerCounts(_Strict):
    """Steps that changed the weights, and steps given up."""

    num_steps: Natural
    num_skipped_steps: Natural


class DueEvaluation(_Strict):
    """As `podsrl.run.due.Due`."""

    last_eval_step: Annotated[int, Field(ge=-1, le=MAX_STEPS)]
    next_eval_seconds: Seconds
    last_signal_step: Step
    last_valid_step: Step


class DataSide(_Strict):
    """As `podsrl.run.before.data_digest.describe_data` gives one."""

    questions: Natural
    ids: str
    prompts: str
    answers: str


class Data(_Strict):
    train: DataSide
    eval: DataSide


class StoredState(_Strict):
    """All of `state.json`; what its entries mean stands where they are made (`Progress`, `Trainer.save`)."""

    step: Step
    version: Natural
    data_position: Natural
    train_seconds: Seconds
    optimizer: OptimizerCounts
    config: dict[str, Any]
    schedule: DueEvaluation
    log_bytes: dict[str, Natural]
    matmul: dict[str, Any] | None
    data: Data
    parts: dict[str, dict[str, Any]]
    device: str
    underway: str

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        if self.version != self.optimizer.num_steps:
            raise ValueError(f"version = {self.version}, but optimizer.num_steps = {self.optimizer.num_steps}")
        for name in ("last_eval_step", "last_signal_step", "last_valid_step"):
            if (step := getattr(self.schedule, name)) > self.step:
                raise ValueError(f"schedule.{name} = {step}, after step = {self.step}")
        if missing := LOGS - set(self.log_bytes):
            raise ValueError(f"log_bytes lacks {min(missing)}")
        return self


def read_object(file: Path) -> Json:
    """A file of JSON.

    Raises:
        CheckpointError: it cannot be read, is too large, or holds no object.
    """
    try:
        if (size := file.stat().st_size) > MAX_BYTES:
            raise CheckpointError(f"{file} is damaged: {size:,} bytes")
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is missing or damaged: {short(str(error))}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} is damaged: it holds no JSON object")
    return value


def check_state(path: Path, state: Mapping[str, Any]) -> None:
    """Check the state of the checkpoint in `path`, and its counters against its own config.

    Raises:
        CheckpointError: naming the first entry that is wrong.
    """
    file = path / "state.json"
    try:
        found = StoredState.model_validate(state)
        config = build(RunConfig, found.config, f"in {file}")
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise CheckpointError(
            f"{file} is damaged: {key or 'its counters'}: {problem['msg']}, got {short(problem['input'])}"
        ) from None
    except UsageError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from None
    wanted = {"step": (found.step, int(path.name.removeprefix("step-")))}
    if config.budget == BudgetConfig():
        wanted["data_position"] = (found.data_position, found.step * config.rollouts.num_prompts)
    for name, (is_there, should_be) in wanted.items():
        if is_there != should_be:
            raise CheckpointError(f"{file} is damaged: {name} = {is_there}, wanted {should_be}")
    tried, most = found.version + found.optimizer.num_skipped_steps, found.step * config.optim.num_epochs
    if tried > most:
        raise CheckpointError(f"{file} is damaged: {tried} optimizer steps, and {found.step} steps make {most} at most")
    every = config.eval.every_seconds
    latest = (found.train_seconds // every + 1) * every if every > 0 else 0.0
    if found.schedule.next_eval_seconds > latest * (1 + 1e-9):
        raise CheckpointError(
            f"{file} is damaged: schedule.next_eval_seconds = {found.schedule.next_eval_seconds:g}, wanted at most "
            f"{latest:g}"
        )
