"""What generates in a run: one generator in this process, or a pool of servers, child processes or Ray actors."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Generator, Kind, Request, Sampling, Setting
from podsrl.lib.devices import FREE_SHARE
from podsrl.lib.seeds import derive
from podsrl.policy import Policy, model_folder
from podsrl.run.before.checks import ray_need
from podsrl.run.before.kv_bound import kv_bound, update_bytes
from podsrl.run.before.prepare import Prepared
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.process import ProcessGenerator
from podsrl.scale.generators.ray_cluster import VARIABLES, Amounts, local_cluster
from podsrl.scale.generators.weights import SharedWeights
from podsrl.scale.generators.worker import Blueprint
from podsrl.scale.processes import Processes
from podsrl.scale.shard import is_sharded

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_STORE_BYTES = 200 << 20
"""Of the object store of a local Ray cluster, beside two versions of the weights; Ray wants at least 75 MB."""


def new_generator(config: RunConfig, parts: Prepared, policy: Policy, processes: Processes) -> Generator:
    """The run's generator, or this process's share of its generators.

    It is made before the learner, which may cut the weights up: a generator may need a whole copy.

    Raises:
        UsageError: it cannot be made.
    """
    kind, tokenizer = parts.generator, parts.tokenizer
    has_copy = kind.has_own_weights and config.scale.generators == 0
    later = update_bytes(config, policy.model, processes.num_processes, has_copy=has_copy)
    if config.scale.generators:
        return new_pool(config, kind, policy, tokenizer, processes, later)
    load_model = partial(generator_model, policy, is_sharded(config.scale.strategy, processes))
    return make_generator(kind, new_setting(config, load_model, policy.device, tokenizer, later), processes)


def make_generator(kind: Kind, setting: Setting, processes: Processes) -> Generator:
    """The generator of a kind that is made in this process; of servers, this process's share in a pool.

    Raises:
        UsageError: it cannot be made.
    """
    members = list(processes.share(kind.members))
    if not members:
        return kind.make(setting)
    new_store, what = members[0].new_store, f"{len(members)} server{'s' * (len(members) > 1)}"
    store = new_store(setting) if new_store is not None else None
    return Pool([partial(member.make, setting) for member in members], store, what=what)


def new_setting(
    config: RunConfig, load_model: Callable[[], Any], device: torch.device, tokenizer: Any, later_bytes: int = 0
) -> Setting:
    """What the run's generator is made for; `later_bytes` of the device's memory are left to others (`kv_bound`)."""
    rollouts = config.rollouts
    return Setting(
        load_model=load_model,
        folder=model_folder(config.model.path),
        revision=config.model.revision,
        trust_remote_code=config.model.trust_remote_code,
        tokenizer=tokenizer,
        dtype=config.model.dtype,
        device=str(device),
        seed=derive(config.seed, "sampling"),
        max_prompt_tokens=rollouts.max_prompt_tokens,
        max_new_tokens=rollouts.max_new_tokens,
        num_slots=rollouts.num_slots or None,
        kv_cache_bytes=kv_bound(config, device, later_bytes),
        scheduler=rollouts.scheduler,
    )


def new_pool(
    config: RunConfig, kind: Kind, policy: Policy, tokenizer: Any, processes: Processes, later_bytes: int
) -> Pool:
    """This process's share of the run's generators, in child processes or Ray actors. They start, and nobody waits.

    Args:
        kind: what each of them is.
        later_bytes: as of `kv_bound`, for a generator that shares a GPU with the update.

    Raises:
        UsageError: too few GPUs here; a model that cannot be rebuilt from its config.
    """
    num = config.scale.generators // processes.num_processes
    ray = config.scale.ray
    gpus = [] if ray not in ("", "local") else own_gpus(policy.device, processes, num)
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
    if ray:
        need = ray_need(config, policy.device, num if is_sharing_gpu else 1)
        return _new_ray_pool(config, blueprint, need, _others_gpus(gpus, policy.device, processes), processes)
    make = partial(ProcessGenerator, blueprint, timeout_seconds=config.scale.timeout_seconds)
    factories = [partial(make, variables=_seeing(gpu)) for gpu in gpus] or [make] * num
    whose = "a process of its own" if num == 1 else "processes of their own"
    where = ", on the update's GPU" if is_sharing_gpu else f", on GPU {', '.join(map(str, gpus))}" if gpus else ""
    return Pool(factories, SharedWeights(), what=f"{num} generator{'s' * (num > 1)} in {whose}{where}")


def own_gpus(device: torch.device, processes: Processes, num: int) -> list[int]:
    """GPUs of this process's `num` generators: those after the update's, or the only one there is; none on a CPU.

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


def _others_gpus(gpus: Sequence[int], device: torch.device, processes: Processes) -> list[int]:
    """GPUs of a Ray cluster on this machine: all that no process trains on; where generators share one, that."""
    used = _used_gpus(device, processes)
    return [gpu for gpu in range(torch.cuda.device_count()) if gpu not in used] or used if gpus else []


def _new_ray_pool(
    config: RunConfig, blueprint: Blueprint, need: Amounts, gpus: Sequence[int], processes: Processes
) -> Pool:
    """The pool, on the cluster that the config names; a local one is started by process 0, and the others join it."""
    num, local, token = config.scale.generators, None, dict[str, str]()
    where: dict[str, Any] = {"address": config.scale.ray}
    if config.scale.ray == "local" and processes.is_main:
        visible = ",".join(_seeing(gpu)[_VISIBLE] for gpu in gpus)
        weights_bytes = sum(prod(shape) * getattr(torch, dtype).itemsize for _, dtype, shape in blueprint.parameters)
        store_bytes = _STORE_BYTES + 2 * weights_bytes
        try:
            local, token = local_cluster(num * need["CPU"], len(gpus), store_bytes, visible)
            where = {"address": local.address, "token": token}
        except UsageError as error:
            where = {"error": str(error)}
    where = processes.broadcast(where) if config.scale.ray == "local" else where
    if "error" in where:
        raise UsageError(where["error"])
    os.environ.update({**VARIABLES, **os.environ, **where.get("token", {})})  # Ray reads them when it is imported
    from podsrl.scale.generators.ray import ObjectStore, ray_pool

    store = ObjectStore(where["address"], local, is_shared=not processes.is_alone)
    timeout_seconds = config.scale.timeout_seconds
    return ray_pool(store, blueprint, num // processes.num_processes, need, timeout_seconds=timeout_seconds)


def _seeing(gpu: int) -> dict[str, str]:
    """Environment variables of a process that sees one of the GPUs that this one sees."""
    visible: Sequence[str] = [name.strip() for name in os.environ.get(_VISIBLE, "").split(",") if name.strip()]
    return {_VISIBLE: visible[gpu] if visible else str(gpu)}


def generator_model(policy: Policy, is_sharded: bool) -> Any:
    """What the engine samples from: its own whole copy if the trainer's weights are about to be sharded."""
    if is_sharded and policy.generator_model is policy.model:
        return copy.deepcopy(policy.model)
    return policy.generator_model


def describe_generation(
    generator: Generator, config: RunConfig, sampling: Sampling, longest_prompt: int, num_processes: int
) -> str:
    """What generates, and how a step's rollouts share the key-value memory of one process.

    Raises:
        UsageError: a rollout can never fit in the memory.
    """
    longest, num_prompts = (0,) * longest_prompt, -(-config.rollouts.num_prompts // num_processes)
    n = config.rollouts.num_rollouts
    line = generator.describe([Request(str(i), longest, n, sampling) for i in range(num_prompts)])
    is_default = getattr(generator, "kv_cache_bytes", None) is not None and not config.rollouts.kv_cache_bytes
    return line + (f", {FREE_SHARE:.0%} of the device's free memory" if is_default else "")
