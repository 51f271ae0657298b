"""A run's generators in processes of their own (`scale.generators`): their GPUs, and the pool of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Kind, Setting
from podsrl.policy import Policy
from podsrl.run.wiring import new_setting
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.process import ProcessGenerator, SharedStore
from podsrl.scale.generators.worker import Blueprint
from podsrl.scale.processes import Processes

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def new_pool(
    config: RunConfig, kind: Kind, policy: Policy, tokenizer: Any, processes: Processes, later_bytes: int
) -> Pool:
    """This process's share of the run's generators, in child processes. They start, and nobody waits for them.

    Args:
        kind: what each of them is.
        later_bytes: as of `kv_bound`, for a generator that shares a GPU with the update.

    Raises:
        UsageError: too few GPUs here; a model that cannot be rebuilt from its config.
    """
    num = config.scale.generators // processes.num_processes
    gpus = own_gpus(policy.device, processes, num)
    is_sharing_gpu = len(gpus) > 0 and gpus[0] in _used_gpus(policy.device, processes)
    setting = _new_setting(config, policy, tokenizer, later_bytes, num if is_sharing_gpu else 0)
    blueprint = Blueprint.of(
        policy.generator_model,
        tokenizer,
        setting,
        generator=config.rollouts.generator,
        options=config.options.get(kind.options_name, {}),
        config=config.model,
        threads=config.threads,
        num_workers_here=num * processes.num_here,
        is_sharing_gpu=is_sharing_gpu,
    )
    make = partial(ProcessGenerator, blueprint, timeout_seconds=config.scale.timeout_seconds)
    factories = [partial(make, variables=_seeing(gpu)) for gpu in gpus] or [make] * num
    whose = "a process of its own" if num == 1 else "processes of their own"
    where = ", on the update's GPU" if is_sharing_gpu else f", on GPU {', '.join(map(str, gpus))}" if gpus else ""
    return Pool(factories, SharedStore(), what=f"{num} generator{'s' * (num > 1)} in {whose}{where}")


def own_gpus(device: torch.device, processes: Processes, num: int) -> list[int]:
    """GPUs of this process's `num` generators: those after the update's; where there is one in all, that; on a CPU none.

    Raises:
        UsageError: fewer GPUs than processes and generators on this machine.
    """
    if device.type != "cuda":
        return []
    used, count = _used_gpus(device, processes), torch.cuda.device_count()
    if count == 1:
        return used * num
    free = [gpu for gpu in range(count) if gpu not in used]
    wanted = num * len(used)
    if len(free) < wanted:
        raise UsageError(
            f"scale.generators: {wanted} generators and {len(used)} processes that train on this machine, each of "
            f"which wants a GPU of its own, and torch sees {count}: use fewer generators, or model.device = 'cpu'"
        )
    place = used.index(device.index or 0)
    return free[place * num : (place + 1) * num]


def _used_gpus(device: torch.device, processes: Processes) -> list[int]:
    """GPUs of the processes that train on this machine."""
    return [device.index or 0] if processes.is_alone else list(range(processes.num_here))


def _new_setting(config: RunConfig, policy: Policy, tokenizer: Any, later_bytes: int, num_sharing: int) -> Setting:
    """The setting of each generator; one with a GPU of its own finds the bound of its memory there."""
    if not num_sharing:
        setting = new_setting(config, lambda: None, torch.device("cpu"), tokenizer)
        return replace(setting, device="cuda:0" if policy.device.type == "cuda" else "cpu")
    weights = sum(weight.nbytes for weight in policy.generator_model.parameters())
    setting = new_setting(config, lambda: None, policy.device, tokenizer, later_bytes + num_sharing * weights)
    shares = 1 if config.rollouts.kv_cache_bytes else num_sharing
    return replace(setting, device="cuda:0", kv_cache_bytes=(setting.kv_cache_bytes or 0) // shares or None)


def _seeing(gpu: int) -> dict[str, str]:
    """Environment variables of a process that sees one of the GPUs that this one sees."""
    visible: Sequence[str] = [name.strip() for name in os.environ.get(_VISIBLE, "").split(",") if name.strip()]
    return {_VISIBLE: visible[gpu] if visible else str(gpu)}
