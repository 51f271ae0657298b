"""What a run would do and need, before its weights are loaded: `pods train CONFIG --dry-run`.

`preview_run` reads the model's config and the headers of its files, but no weights and no data, so it assumes that
every prompt is as long as the limit allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from podsrl.config.load import with_values
from podsrl.config.schema import ModelConfig, RolloutConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.generate import resolve_generator
from podsrl.lib.devices import default_bound
from podsrl.lib.machine import total_bytes
from podsrl.lib.parts import Parts
from podsrl.lib.torch_model import Limit
from podsrl.policy.device import choose_device, device_notes
from podsrl.policy.source import find_device
from podsrl.run.before.checks import check_dtype, check_fits
from podsrl.run.before.estimate import (
    Part,
    adapted_linears,
    can_share,
    estimate,
    generates_itself,
    num_adapter_weights,
    peak,
)
from podsrl.run.before.memory_advice import MemoryAdvice, advise
from podsrl.run.before.model_shape import ModelShape, read_shape
from podsrl.run.before.no_effect import Option, set_options
from podsrl.run.before.order import order_notes
from podsrl.run.before.settle import settle
from podsrl.run.before.sizes import Work, parts_of, sized, work


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What one process of a run does, and what it needs."""

    model: str
    trained: str
    """What is trained, in a line."""
    num_processes: int
    num_weights: int
    num_trained_weights: int
    num_adapted_modules: int
    prompts: int
    """Questions of a step, over all processes; the token counts too, each at most."""
    prompt_tokens: int
    generated_tokens: int
    kept_tokens: int
    work: Work
    num_micro_batches: int
    """Forward and backward passes of an optimizer step, at most."""
    parts: tuple[Part, ...]
    peak_bytes: int
    needed_bytes: int
    """Peak of all processes that share the machine's memory."""
    machine: str
    machine_bytes: int
    advice: MemoryAdvice | None
    """Whether a process stays under the bound that was given, and what makes it; without a bound, where the machine's
    memory is too small, and else None."""
    options: tuple[Option, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        plain = asdict(replace(self, advice=None))
        del plain["advice"]
        return {**plain, "memory": self.advice and self.advice.to_json()}


def preview_run(
    config: RunConfig,
    num_processes: int = 1,
    num_eval: int | None = None,
    longest_prompt: int = 0,
    bound_bytes: int | None = None,
) -> Preview:
    """Predict what a run would do.

    Args:
        num_eval: held-out questions, where the data was read; None: as many as the config lets expect.
        longest_prompt: tokens, likewise; 0: `rollouts.max_prompt_tokens`.
        bound_bytes: memory that a process may take; None: what the machine has.

    Raises:
        UsageError: no such model, an adapter target that matches nothing, prompt and completion beyond its window.

    Example:
        >>> preview_run(RunConfig()).trained
        'all 136,192 weights'
    """
    if num_processes < 1:
        raise UsageError(f"--processes {num_processes}: wanted at least 1")
    config, _ = settle(config, num_processes)
    kind = resolve_generator(config.rollouts.generator, config.options)
    if kind.training is not None:
        raise UsageError(f"{kind.option}: a plan is of this machine's memory and time, and the model is at a service")
    shape = read_shape(config.model)
    check_dtype(config)
    _check_window(config, shape)
    machine, machine_bytes, has_gpu = _machine(config.model, num_processes)
    sharing = 1 if has_gpu else num_processes
    made = parts_of(config)
    most = sized(config, made, longest_prompt=longest_prompt, num_eval=num_eval)
    most = _bounded(most, shape, num_processes) if has_gpu else most
    rollouts, parts = most.rollouts, estimate(most, shape, num_processes)
    todo = work(most, num_processes, can_share=can_share(most, shape))
    needed = peak(parts) * sharing
    is_asked = bound_bytes is not None or (needed > machine_bytes and most.rollouts.num_prompts >= num_processes)
    return Preview(
        model=f"{config.model.path} ({shape.family})",
        trained=_trained(config, shape),
        num_processes=num_processes,
        num_weights=shape.num_weights,
        num_trained_weights=num_adapter_weights(config, shape) if config.lora else shape.num_weights,
        num_adapted_modules=len(adapted_linears(config, shape)),
        prompts=rollouts.num_prompts,
        prompt_tokens=rollouts.num_prompts * rollouts.max_prompt_tokens,
        generated_tokens=rollouts.num_prompts * rollouts.num_rollouts * rollouts.max_new_tokens,
        kept_tokens=_num_trained(config, made, rollouts)
        * config.select.most_kept(rollouts.num_rollouts)
        * rollouts.max_new_tokens,
        work=todo,
        num_micro_batches=-(-todo.update_tokens // todo.micro_batch_tokens),
        parts=tuple(parts),
        peak_bytes=peak(parts),
        needed_bytes=needed,
        machine=machine,
        machine_bytes=machine_bytes,
        advice=advise(most, shape, bound_bytes or machine_bytes // sharing, num_processes) if is_asked else None,
        options=tuple(set_options(config, most, num_processes)),
        warnings=tuple(_warnings(most, made, needed, todo, num_processes, machine, machine_bytes)),
    )


def _bounded(config: RunConfig, shape: ModelShape, num_processes: int) -> RunConfig:
    """The config with CUDA's own bound on key-values, where it is less than what they would take."""
    if config.rollouts.kv_cache_bytes:
        return config
    parts = estimate(config, shape, num_processes)
    held = sum(part.num_bytes for part in parts if part.phase == "always")
    wanted = sum(part.num_bytes for part in parts if part.name == "key-values")
    bound = default_bound(find_device(config.model.device), held)
    return with_values(config, rollouts={"kv_cache_bytes": bound}) if 0 < bound < wanted else config


def _num_trained(config: RunConfig, made: Parts, largest: RolloutConfig) -> int:
    """Groups that a step trains on at most, of those of its largest round."""
    only_some = config.order.take == "first" or made.has("wait")
    return config.rollouts.num_prompts if only_some else largest.num_prompts


def _trained(config: RunConfig, shape: ModelShape) -> str:
    if config.lora is None:
        return f"all {shape.num_weights:,} weights"
    count, added = len(adapted_linears(config, shape)), num_adapter_weights(config, shape)
    base = "4-bit base" if config.model.load_in_4bit else "frozen base"
    return (
        f"LoRA r = {config.lora.rank}, alpha = {config.lora.alpha:g} on {count} modules of the {base}: "
        f"{added:,} of {added + shape.num_weights:,} weights"
    )


def _check_window(config: RunConfig, shape: ModelShape) -> None:
    """The longest completion fits behind a prompt of one token; the data, which is read later, has the real lengths."""
    if shape.window is None:
        return
    limit = Limit(shape.window, f"the model's window of {shape.window}")
    check_fits(limit, 1, config.rollouts.max_new_tokens)


def _machine(model: ModelConfig, num_processes: int) -> tuple[str, int, bool]:
    """Name and bytes of what the run would compute on, and whether that is a GPU."""
    place = choose_device(model) if num_processes == 1 else find_device(model.device)
    has_gpu = place.type == "cuda"
    name = torch.cuda.get_device_name(place) if has_gpu else "this machine's CPU"
    return name, total_bytes(place), has_gpu


def _warnings(
    config: RunConfig, made: Parts, needed: int, todo: Work, num_processes: int, machine: str, machine_bytes: int
) -> Iterator[str]:
    if num_processes == 1:
        yield from device_notes(config.model)
    yield from order_notes(config, talks=config.task.environment is not None or bool(config.task.tools))
    if deciding := dict.fromkeys(name for moment in ("enough", "rollouts") for name in made.only(moment).systems):
        yield (
            f"systems = {', '.join(deciding)} decides how many rollouts a step has, and in how many rounds; the "
            f"numbers are those of one round of {config.rollouts.num_prompts:,} groups of "
            f"{config.rollouts.num_rollouts:,}, the most that it says it asks for"
        )
    if not generates_itself(config):
        yield "the generator's memory is not in the table: a copy of the weights, and its keys and values"
    if needed > machine_bytes:
        yield (
            f"about {needed / 2**30:.1f} GiB are needed at the peak, and {machine} has {machine_bytes / 2**30:.1f} GiB"
        )
    limited = config.rollouts.num_slots or config.rollouts.kv_cache_bytes
    if not limited and todo.num_eval_rows > 4 * todo.num_rows:
        yield (
            f"an evaluation generates {todo.num_eval_rows:,} answers at once; rollouts.num_slots or "
            "rollouts.kv_cache_bytes bounds that"
        )
