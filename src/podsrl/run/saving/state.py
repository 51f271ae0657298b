"""Validate `state.json` of a checkpoint: every entry has its type and range and agrees with the others.

Entries that nothing reads are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
    last_signal_step: Step = 0
    """Missing in a checkpoint from before steps without signal were counted, as the next one."""
    last_valid_step: Step = 0


class DataSide(_Strict):
    """As `podsrl.run.saving.inputs.describe_data` gives one."""

    questions: Natural
    ids: str
    prompts: str
    answers: str
    columns: str


class Inputs(_Strict):
    """As `podsrl.run.saving.inputs.describe_inputs` gives them."""

    train: DataSide
    eval: DataSide
    sources: dict[str, str]


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
    inputs: Inputs
    parts: dict[str, dict[str, Any]]
    device: str


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
        raise CheckpointError(f"{file} is damaged: {key}: {problem['msg']}, got {short(problem['input'])}") from None
    except UsageError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from None
    if wrong := next(_contradictions(found, config, step=int(path.name.removeprefix("step-"))), None):
        raise CheckpointError(f"{file} is damaged: {wrong}")


def _contradictions(state: StoredState, config: RunConfig, step: int) -> Iterator[str]:
    """What does not agree with the other entries, with the config, or with the step in the folder's name."""
    wanted = {"step": step, "version": state.optimizer.num_steps}
    if config.budget == BudgetConfig():
        least = step * config.rollouts.num_prompts
        if config.replay.unfinished == "drop":
            wanted["data_position"] = least
        elif state.data_position < least:  # more are asked, and again where a change of the data left some out
            yield f"data_position = {state.data_position}, wanted at least {least}"
    for name, value in wanted.items():
        if (is_there := getattr(state, name)) != value:
            yield f"{name} = {is_there}, wanted {value}"
    for name in ("last_eval_step", "last_signal_step", "last_valid_step"):
        if (is_there := getattr(state.schedule, name)) > step:
            yield f"schedule.{name} = {is_there}, after step = {step}"
    if missing := LOGS - set(state.log_bytes):
        yield f"log_bytes lacks {min(missing)}"
    tried, most = state.version + state.optimizer.num_skipped_steps, step * config.optim.num_updates
    if tried > most:
        yield f"{tried} optimizer steps, and {step} steps make {most} at most"
    every, latest = config.eval.every_seconds, 0.0
    if every > 0:
        latest = (state.train_seconds // every + 1) * every
    if state.schedule.next_eval_seconds > latest * (1 + 1e-9):
        yield f"schedule.next_eval_seconds = {state.schedule.next_eval_seconds:g}, wanted at most {latest:g}"
