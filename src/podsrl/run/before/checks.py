"""Whether a config fits the machine, the processes, the generator and the model that it meets."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib.util import find_spec
from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UnavailableError, UsageError
from podsrl.generate import Kind
from podsrl.generate.engine.limits import row_limit
from podsrl.lib.parts import GO_ON, Parts
from podsrl.lib.torch_model import Limit
from podsrl.policy import choose_device
from podsrl.scale.generators.ray_cluster import Amounts, check_cluster, check_package

_ENGINE = "use rollouts.generator = 'engine'"
_ABILITIES = {
    "join": ("later rollouts of a group", _ENGINE),
    "start": ("rollouts that go on behind given tokens", _ENGINE),
    "partial": ("the tokens of rollouts that it stops", _ENGINE),
    "watch": ("rollouts that are seen while they are generated", _ENGINE),
    "beside": (
        "generation beside the update",
        "set scale.generators = 1, name servers, set order.rest = 'put_off', or set order.ahead = 0",
    ),
    "load": ("new weights while rollouts run", "set order.rest = 'finish' or 'put_off'"),
}
"""Ability of a generator -> what it is, and where to find it."""


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
    whole = {
        "optim.name = 'adamw_8bit'": config.optim.name == "adamw_8bit",
        "model.load_in_4bit": config.model.load_in_4bit,
        "correct.proximal = 'average'": config.correct.proximal == "average",
        "correct.baseline = 'off_policy'": config.correct.baseline == "off_policy",
    }
    what = next((name for name, is_set in whole.items() if is_set), None)
    if num_processes > 1 and config.scale.strategy != "ddp" and what:
        raise UsageError(
            f"scale.strategy = {config.scale.strategy!r} shares out weights, which {what} cannot take: use 'ddp', or "
            "leave it out"
        )


def needs(config: RunConfig, parts: Parts) -> list[tuple[str, str]]:
    """What a run wants of its generator: (option or system, ability of `Generator.abilities`)."""
    order, found = config.order, parts.abilities()
    if order.is_ahead and order.rest == "finish":
        found.append((f"order.ahead = {order.ahead:g}", "beside"))
    if order.rest == "run":
        found.append(("order.rest = 'run'", "load"))
    if order.rest == "put_off":
        found += [("order.rest = 'put_off'", ability) for ability in (*GO_ON, "partial")]
    if order.take == "first":
        found += [("order.take = 'first'", ability) for ability in GO_ON]
    return found


def check_kind(config: RunConfig, parts: Parts, kind: Kind) -> None:
    """What is known of a generator before it is made goes with the options; of the user's own, nothing is."""
    if kind.own:
        return
    abilities = {*GO_ON, "load", "partial", *(("watch",) if kind.is_watching else ())}
    if kind.is_beside or config.scale.generators:
        abilities.add("beside")
    check_abilities(needs(config, parts), repr(config.rollouts.generator), abilities)


def check_abilities(wanted: Iterable[tuple[str, str]], generator: str, abilities: Collection[str]) -> None:
    """What a generator has to be able to do, it can.

    Args:
        wanted: (what wants it, ability).
        generator: its name.
        abilities: that it has.
    """
    for option, ability in wanted:
        if ability not in abilities:
            why, cure = _ABILITIES.get(ability, ("more than it can", _ENGINE))
            raise UsageError(
                f"{option} asks for {why}, and the generator {generator} lacks the ability {ability!r}: {cure}"
            )


def check_generator(kind: Kind, config: RunConfig, num_processes: int) -> None:
    """The generator can be in one of several processes, and each has a server of its own where they are servers."""
    if num_processes > 1 and kind.training is not None:
        raise UsageError(
            f"{kind.option} trains at its service, and {num_processes} processes would each train another model: start "
            "one process, without pods launch"
        )
    if 0 < len(kind.members) < num_processes:
        raise UsageError(
            f"{kind.option} names {len(kind.members)} servers for {num_processes} processes, which cannot share one: "
            f"name at least {num_processes}, or start fewer processes"
        )
    if num_processes > 1 and kind.has_own_weights and not config.scale.generators:
        raise UsageError(
            f"{kind.option} makes a torch.distributed group of its own in the trainer's process, where the "
            f"{num_processes} processes of this run have one already: set scale.generators = {num_processes}"
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


def ray_need(config: RunConfig, device: torch.device, num_sharing: int = 1) -> Amounts:
    """What each generator takes of a node of a Ray cluster; `num_sharing` of them share a GPU."""
    return {"CPU": max(1, config.threads)} | ({"GPU": 1 / num_sharing} if device.type == "cuda" else {})


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
    beyond = ", which leaves out longer questions, or take a model with a longer window"
    raise UsageError(
        f"prompts of {longest_prompt} token{'' if longest_prompt == 1 else 's'} + rollouts.max_new_tokens = "
        f"{max_new_tokens} exceed {limit.name}: lower {cure or 'both'}"
        f"{beyond if longest_prompt >= limit.tokens else ''}"
    )


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of its name, such as W&B makes, has no origin."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # a finder that knows it and cannot load it, or a half-made module
        return False
    return spec is not None and spec.origin is not None


def check_trackers(config: RunConfig) -> None:
    """UnavailableError: the package of a tracker is not installed."""
    for name in config.record.trackers:
        if not is_installed(name):
            raise UnavailableError(
                f"record.trackers names {name}, which is not installed: pip install 'podsrl[trackers]', or leave it out"
            )
