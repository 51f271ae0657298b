"""What a resume may change: whether a config, what a run reads and its device fit the checkpoint that they meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podsrl.config.load import changed_keys
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.parts import factories
from podsrl.run.before.memory_advice import FREE
from podsrl.run.saving.checkpoint import Checkpoint
from podsrl.run.saving.inputs import Side, input_change

CHANGEABLE = ("stop.", "checkpoint.", "record.", "scale.", "about.", *(f"{key} " for key in FREE))
"""Sections and options that a resume may change: they do not touch the numbers of a step, or by rounding alone."""


def forbidden_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What a resume may not change between two configs (plain JSON), as "key (old -> new)".

    It may change `CHANGEABLE`, and at which addresses servers generate, with which options. Without guides, which may
    be cut off by it, it may raise the limit of prompts: whether that brings in questions `check_inputs` sees.
    """
    changes = changed_keys(old, new)
    if all(config["rollouts"]["generator"].startswith("vllm+") for config in (old, new)):
        of_servers = ("rollouts.generator ", "options.vllm ", "options.vllm.")
        changes = [line for line in changes if not line.startswith(of_servers)]
    limit, higher = (config["rollouts"]["max_prompt_tokens"] for config in (old, new))
    if limit < higher and not any(hasattr(part, "guide") for name in old["systems"] for part in factories(name)):
        changes = [line for line in changes if not line.startswith("rollouts.max_prompt_tokens ")]
    return [line for line in changes if not line.startswith(CHANGEABLE)]


def check_config(checkpoint: Checkpoint, config: RunConfig) -> None:
    """UsageError: the config is another than the checkpoint was made with, but for what a resume may change."""
    if differences := forbidden_changes(checkpoint.state["config"], config.model_dump(mode="json")):
        raise UsageError(
            f"{checkpoint.path} was made with another config: {', '.join(differences)}; "
            "undo the change, or start a new run in another folder"
        )


def check_inputs(checkpoint: Checkpoint, inputs: Mapping[str, Side], *, is_allowed: bool = False) -> str | None:
    """What the run reads (`describe_inputs`) is what the checkpoint was trained with.

    Returns:
        What changed, where that is allowed.
    """
    change = input_change(checkpoint.state["inputs"], inputs)
    if change is None or is_allowed:
        return change
    run = checkpoint.path.parent.parent
    raise UsageError(
        f"{checkpoint.path}: what the run reads changed since then: {change}. Restore it, start a new run, or go on "
        f"knowingly (held-out questions may have been trained on): --resume {run} --allow-changes"
    )


def rounding_notes(checkpoint: Checkpoint, config: RunConfig, device: str) -> list[str]:
    """Warnings: where sizes, the kind of device or the number of generators are others than the checkpoint's, sums are
    made in another order."""
    name, was, now = checkpoint.path.name, checkpoint.state["config"], config.model_dump(mode="json")
    sizes = [line for line in changed_keys(was, now) if line.startswith(tuple(f"{key} " for key in FREE))]
    notes = [f"{name} was made with other sizes, so last bits may differ: {', '.join(sizes)}"] if sizes else []
    if (before := checkpoint.state["device"]) != device:
        notes.append(f"{name} was made on {before!r}, and the run goes on on {device!r}: numbers may differ")
    generators, others = (each["scale"]["generators"] for each in (was, now))
    if max(1, generators) != max(1, others):
        notes.append(
            f"{name} was made with scale.generators = {generators}, now it is {others}: tokens stay the same, and "
            "log-probabilities may differ in their last bits"
        )
    return notes
