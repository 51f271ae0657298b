"""Whether all processes of a run have the same: config, questions, choices, weights, checkpoint."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from podsrl.config.load import changed_keys
from podsrl.config.schema import RunConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.run.saving.checkpoint import Checkpoint, open_checkpoint, verify
from podsrl.run.saving.inputs import Side
from podsrl.scale.processes import Processes
from podsrl.types import Ask, Selection


def check_same_asks(asks: Sequence[Ask], processes: Processes) -> None:
    """All processes ask for the same rollouts, for each generates its share of them. All call it."""
    if _differs([repr(ask) for ask in asks], processes):
        raise UsageError(
            "the budget asked for other rollouts in one process than in another: whatever its parts draw has to come "
            "from view.rng, which is the same in all, and from no generator of their own"
        )


def check_same_choice(selections: Sequence[Selection], rule: str, processes: Processes) -> None:
    """All processes keep the same rollouts, for each trains its share of them. All call it."""
    if _differs([selection.kept for selection in selections], processes):
        raise UsageError(
            f"select.rule = {rule!r} kept other rollouts in one process than in another: whatever it draws has to come "
            "from its argument `generator`, which is the same in all, and from no generator of its own"
        )


def check_same_run(config: RunConfig, inputs: Mapping[str, Side], processes: Processes) -> None:
    """All machines of a run have the same versions and config, and read the same. All processes call it.

    Args:
        inputs: as `describe_inputs` gives them.
    """
    versions = {name: version(name) for name in ("podsrl", "torch", "transformers")}
    told = processes.gather({"versions": versions, "inputs": dict(inputs)} | config.model_dump(mode="json"))
    hosts = processes.gather(socket.gethostname())
    for rank, facts in enumerate(told):
        if differences := changed_keys(told[0], facts):
            raise UsageError(
                f"process 0 ({hosts[0]}) and process {rank} ({hosts[rank]}) differ: {', '.join(differences)}; a run "
                "wants the same versions, config and data on every machine"
            )


def check_same_weights(digest: str, processes: Processes) -> None:
    """All processes begin with the same weights. All call it."""
    if _differs(digest, processes):
        raise UsageError(
            "model.path: its weights are others on one machine than on another: give every machine the same files"
        )


def open_same_checkpoint(path: Path, digest: str, processes: Processes) -> Checkpoint:
    """The checkpoint that process 0 found, as this process sees it: on another machine, it may be a copy.

    Raises:
        UsageError: it is not there, is another one, or is damaged.
    """
    try:
        if not processes.is_one_machine:
            verify(path)
        found = open_checkpoint(path)
        if found.digest == digest:
            return found
        reason = f"{path} is not the checkpoint that process 0 found"
    except CheckpointError as error:
        reason = str(error)
    run = path.parent.parent
    raise UsageError(
        f"{socket.gethostname()}: {reason}; every machine reads the checkpoint: keep the run on a file system that "
        f"they share, or copy {run} from the machine of process 0 before each resume"
    )


def _differs(value: Any, processes: Processes) -> bool:
    """Whether the processes have different values (plain JSON). All call it."""
    if processes.is_alone:
        return False
    content = json.dumps(value).encode()
    return len(set(processes.gather(hashlib.blake2b(content, digest_size=8).hexdigest()))) > 1
