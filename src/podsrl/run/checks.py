"""Whether a config fits the processes, the model and the checkpoint that it meets."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from podsrl.config.load import build, changed_keys
from podsrl.config.schema import RunConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.generate import Kind
from podsrl.generate.engine.limits import row_limit
from podsrl.lib.torch_model import Limit
from podsrl.policy import choose_device
from podsrl.run.checkpoint import Checkpoint, open_checkpoint, verify
from podsrl.run.data_digest import Side, data_change
from podsrl.scale.generators.ray_cluster import Need, check_cluster
from podsrl.scale.generators.ray_join import check_package
from podsrl.scale.processes import Processes
from podsrl.types import Ask, Selection

CHANGEABLE = ("stop.", "checkpoint.", "record.", "scale.", "about.")
"""Config sections that a resume may change: they do not touch the numbers of a step."""


def check_processes(config: RunConfig, num_processes: int, *, is_one_machine: bool = True) -> None:
    """Every process has a prompt of its own, and what the processes share out can be shared out."""
    if config.rollouts.num_prompts < num_processes:
        raise UsageError(
            f"rollouts.num_prompts = {config.rollouts.num_prompts} is fewer than the {num_processes} processes: each "
            "generates whole groups, so start fewer processes or raise rollouts.num_prompts"
        )
    num = config.scale.generators
    if num % num_processes:
        raise UsageError(
            f"scale.generators = {num} with {num_processes} processes, each of which has the same number of "
            f"generators: wanted a multiple of {num_processes}, such as {-(-num // num_processes) * num_processes}"
        )
    if config.scale.ray == "local" and not is_one_machine:
        raise UsageError(
            "scale.ray = 'local' is a cluster of one machine, and this run has several: start Ray on each of them "
            "(`ray start`), and give scale.ray = HOST:PORT of its head"
        )
    if num > config.rollouts.num_prompts:
        raise UsageError(
            f"scale.generators = {num} is more than rollouts.num_prompts = {config.rollouts.num_prompts}: a generator "
            "takes whole questions, so the others would have nothing to do; wanted at most that many"
        )
    strategy, is_8bit = config.scale.strategy, config.optim.name == "adamw_8bit"
    if num_processes > 1 and strategy != "ddp" and (is_8bit or config.model.load_in_4bit):
        what = "optim.name = 'adamw_8bit'" if is_8bit else "model.load_in_4bit"
        raise UsageError(
            f"scale.strategy = {strategy!r} shares out weights, which {what} cannot take: use 'ddp', or leave it out"
        )


def check_beside(config: RunConfig, *, is_beside: bool) -> None:
    """A step that is generated ahead has a generator that goes on beside the update."""
    if config.steps.is_ahead and not is_beside:
        raise UsageError(
            f"steps.name = 'ahead' generates beside the update, and rollouts.generator = "
            f"{config.rollouts.generator!r} generates within this process: add --scale.generators=1, name servers, "
            "or take --steps.name=sync"
        )


def check_generator(kind: Kind, config: RunConfig, num_processes: int) -> None:
    """The generator can be in one of several processes, and each has a server of its own where they are servers."""
    if 0 < len(kind.members) < num_processes:
        raise UsageError(
            f"{kind.option} names {len(kind.members)} servers for {num_processes} processes, which cannot share one: "
            f"name at least {num_processes}, or start fewer processes"
        )
    if num_processes > 1 and kind.is_for_one_process and not config.scale.generators:
        raise UsageError(
            f"{kind.option} makes a torch.distributed group of its own in the trainer's process, where the "
            f"{num_processes} processes of this run have one already: set options.{kind.options_name}.in_process = "
            f"false, or scale.generators = {num_processes}"
        )


def check_elsewhere(config: RunConfig, kind: Kind) -> None:
    """Generators in processes of their own go with the other options."""
    scale = config.scale
    if scale.ray and not scale.generators:
        raise UsageError(
            f"scale.ray = {scale.ray!r} without generators to run there: set scale.generators to their number"
        )
    if scale.generators and config.rollouts.generator.startswith("vllm+"):
        raise UsageError(
            f"scale.generators = {scale.generators} with {kind.option}: a server is a process of its own already; name "
            "several servers in rollouts.generator, separated by commas, and leave scale.generators out"
        )


def check_ray(config: RunConfig) -> None:
    """The Ray cluster of `scale.ray` answers, and has room for the generators; for "local", Ray is installed."""
    scale = config.scale
    if scale.ray == "local":
        check_package()
    elif scale.ray:
        check_cluster(scale.ray, scale.generators, ray_need(config, choose_device(config.model)))


def ray_need(config: RunConfig, device: torch.device, num_sharing: int = 1) -> Need:
    """What each generator takes of a node of a Ray cluster; `num_sharing` of them share a GPU."""
    return Need(max(1, config.threads), 1 / num_sharing if device.type == "cuda" else 0)


def check_dtype(config: RunConfig) -> None:
    """Weights and activations have a type that gradients fit into."""
    if config.model.dtype == "float16":
        raise UsageError(
            "model.dtype = 'float16' cannot be trained, with or without adapters: a step's gradients are small, and "
            "float16 rounds them away under 6e-8; use 'bfloat16' or 'float32' (evaluation takes float16)"
        )


def check_window(model: Any, longest_prompt: int, max_new_tokens: int) -> None:
    """The longest prompt with the longest completion lies within what the model can see, and the engine decode."""
    if (limit := row_limit(model)) is not None:
        check_fits(limit, longest_prompt, max_new_tokens)


def check_fits(limit: Limit, longest_prompt: int, max_new_tokens: int) -> None:
    """Check that a prompt and its completion stay within a limit on their tokens."""
    if longest_prompt + max_new_tokens <= limit.tokens:
        return
    most = {
        "rollouts.max_new_tokens": limit.tokens - longest_prompt,
        "rollouts.max_prompt_tokens": limit.tokens - max_new_tokens,
    }
    cure = ", or ".join(f"{option} to {tokens} or less" for option, tokens in most.items() if tokens > 0)
    raise UsageError(
        f"prompts of {longest_prompt} token{'' if longest_prompt == 1 else 's'} + rollouts.max_new_tokens = "
        f"{max_new_tokens} exceed {limit.name}: lower {cure or 'both'}"
    )


def forbidden_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What a resume may not change between two configs (plain JSON), as "key (old -> new)".

    It may change `CHANGEABLE`, and at which addresses servers generate, with which options.
    """
    changes = changed_keys(old, new)
    if all(config["rollouts"]["generator"].startswith("vllm+") for config in (old, new)):
        of_servers = ("rollouts.generator ", "options.vllm ", "options.vllm.")
        changes = [line for line in changes if not line.startswith(of_servers)]
    return [line for line in changes if not line.startswith(CHANGEABLE)]


def check_config(checkpoint: Checkpoint, config: RunConfig) -> list[str]:
    """The config is the one that the checkpoint was made with, but for what a resume may change.

    Returns:
        A warning, where the checkpoint is older than some options: they have their defaults then.
    """
    stored, now = checkpoint.state["config"], config.model_dump(mode="json")
    filled = build(RunConfig, stored, f"{checkpoint.path}/state.json").model_dump(mode="json")
    if differences := forbidden_changes(filled, now):
        raise UsageError(
            f"{checkpoint.path} was made with another config: {', '.join(differences)}; "
            "undo the change, or start a new run in another folder"
        )
    added = changed_keys(stored, filled)
    if not added:
        return []
    name = checkpoint.path.name
    return [f"{name} is older than these options, which have their defaults from here on: {', '.join(added)}"]


def check_data(checkpoint: Checkpoint, data: Mapping[str, Side], *, is_allowed: bool = False) -> str | None:
    """The data is what the checkpoint was trained on; a checkpoint that does not say what that was passes.

    Returns:
        What changed, where that is allowed.
    """
    change = data_change(checkpoint.state.get("data", data), data)
    if change is None or is_allowed:
        return change
    run = checkpoint.path.parent.parent
    raise UsageError(
        f"{checkpoint.path}: the data changed since then: {change}. Held-out questions may have been trained on. "
        f"Restore the data, start a new run, or go on knowingly: --resume {run} --allow-data-change"
    )


def check_device(checkpoint: Checkpoint, device: str) -> list[str]:
    """A warning where the checkpoint was made on another kind of device, whose kernels add in another order."""
    before = checkpoint.state.get("device", device)
    if before == device:
        return []
    return [f"{checkpoint.path.name} was made on {before!r}, and the run goes on on {device!r}: numbers may differ"]


def check_batches(checkpoint: Checkpoint, config: RunConfig) -> list[str]:
    """A warning where other numbers of rollouts are generated together than before the checkpoint."""
    stored = build(RunConfig, checkpoint.state["config"], f"{checkpoint.path}/state.json").scale.generators
    before, now = max(1, stored), max(1, config.scale.generators)
    if before == now:
        return []
    return [
        f"{checkpoint.path.name} was made with scale.generators = {stored}, now it is {config.scale.generators}: "
        "tokens stay the same, and log-probabilities may differ in their last bits"
    ]


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


def check_same_run(config: RunConfig, data: Mapping[str, Side], processes: Processes) -> None:
    """All machines of a run have the same versions, config and data. All processes call it.

    Args:
        data: as `describe_data` gives it.
    """
    versions = {name: version(name) for name in ("podsrl", "torch", "transformers")}
    told = processes.gather({"versions": versions, "data": dict(data)} | config.model_dump(mode="json"))
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


def open_same_checkpoint(path: Path, digest: str, processes: Processes, damaged: Sequence[str]) -> Checkpoint:
    """The checkpoint that process 0 found, as this process sees it: on another machine, it may be a copy.

    Raises:
        UsageError: it is not there, is another one, or is damaged.
    """
    try:
        if not processes.is_one_machine:
            verify(path)
        found = open_checkpoint(path, damaged)
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
