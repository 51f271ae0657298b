"""The options that a config sets, and why some of them change nothing given the rest of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from podsrl.config.schema import BudgetConfig, LoraConfig, RunConfig
from podsrl.lib.model_files import has_own_code
from podsrl.run.before.sizes import Work, work

_RATIOS = "one optimizer step per batch (optim.num_epochs): ratios differ from 1 by rounding only"
_AT_ENDS = "the run ends before; it is evaluated at its start and its end"
_ALONE = "there is only one process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option that is not at its default."""

    key: str
    value: Any
    default: Any
    """None too where the section itself is absent by default."""
    meaning: str
    no_effect: str | None
    """Why it changes nothing here; None where it does."""


def set_options(config: RunConfig, sized: RunConfig, num_processes: int) -> Iterator[Option]:
    """Every option that is not at its default.

    Args:
        sized: the config with the numbers that a run finds out: its largest round, its held-out questions, and the
            bound of the generator's memory.
    """
    return _leaves(config, RunConfig(), without_effect(sized, num_processes))


def idle_notes(options: Iterable[Option]) -> list[str]:
    """A line for each that changes nothing."""
    return [f"{each.key} = {each.value!r} changes nothing here: {each.no_effect}" for each in options if each.no_effect]


def without_effect(config: RunConfig, num_processes: int) -> dict[str, str]:
    """Option -> why it changes nothing in this run.

    Example:
        >>> without_effect(RunConfig.model_validate({"scale": {"strategy": "fsdp2"}}), 1)["scale.strategy"]
        'there is only one process'
    """
    rows = (*_of_a_step(config, work(config, num_processes)), *_of_a_run(config, num_processes))
    return {key: reason for key, has_no_effect, reason in rows if has_no_effect}


def _of_a_step(config: RunConfig, todo: Work) -> list[tuple[str, bool, str]]:
    rollouts, select, optim = config.rollouts, config.select, config.optim
    has_budget, micro = config.budget != BudgetConfig(), todo.micro_batch_tokens
    # How much a budget asks at once is not known before it asks.
    most = math.inf if has_budget else max(todo.num_rows, todo.num_eval_rows)
    is_filtered = rollouts.top_p < 1 or rollouts.top_k > 0 or rollouts.min_p > 0
    has_dropout = config.lora is not None and config.lora.dropout > 0
    is_unbounded = not rollouts.kv_cache_bytes and not 0 < rollouts.num_slots < most
    is_ahead = config.steps.is_ahead
    # Else the policies of sampler and update differ.
    is_on_policy = optim.num_epochs == 1 and not is_filtered and not has_dropout and not is_ahead
    at_once = "all rollouts run at once: neither rollouts.num_slots nor kv_cache_bytes is less"
    keeps_all = select.most_kept(rollouts.num_rollouts) == rollouts.num_rollouts and select.rule != "keep_all"
    whole = "select.rule = 'keep_all' keeps every group whole, whatever its size"
    last = config.stop.steps * optim.num_epochs
    hardly = f"the run ends after {last:,} optimizer steps, where the rate has hardly fallen"
    unpacked = "prompts are shared in packed rows only, and optim.packing is off"
    return [
        ("rollouts.scheduler", is_unbounded, at_once),
        ("rollouts.kv_cache_bytes", rollouts.generator.startswith("vllm+"), "servers bound their memory themselves"),
        ("rollouts.num_slots", rollouts.num_slots >= most, f"at most {most:,} rollouts are generated at once"),
        (
            "select.rule",
            keeps_all and not has_budget,
            "select.num_kept = rollouts.num_rollouts, so every rule keeps all",
        ),
        ("select.num_kept", select.rule == "keep_all" and has_budget, whole),
        *((f"loss.{name}", is_on_policy, _RATIOS) for name in ("clip", "clip_low", "clip_high")),
        (
            "optim.logprob_chunk_tokens",
            optim.logprob_chunk_tokens >= micro,
            f"a micro-batch has at most {micro:,} tokens",
        ),
        ("optim.prefix_sharing", optim.packing == "off", unpacked),
        ("steps.lag", config.steps.name == "sync", "steps.name = 'sync': no step is generated ahead"),
        ("steps.name", config.steps.name == "ahead" and not is_ahead, "steps.lag = 0: no step is generated ahead"),
        ("optim.schedule_steps", 0 < last <= optim.schedule_steps // 100, hardly),
    ]


def _of_a_run(config: RunConfig, num_processes: int) -> list[tuple[str, bool, str]]:
    stop, every, record, model = config.stop, config.eval, config.record, config.model
    num_prompts, writes_none = config.rollouts.num_prompts, record.groups_every_steps == 0
    has_fewer = config.budget == BudgetConfig() and record.num_groups > num_prompts
    too_few = (
        "record.groups_every_steps = 0: no group is written" if writes_none else f"a step has {num_prompts} groups"
    )
    is_built_in, folder = model.path.startswith("builtin:"), Path(model.path).expanduser()
    is_here = is_built_in or folder.is_dir()
    has_no_code = is_built_in or (is_here and not has_own_code(folder))
    is_elsewhere = model.dtype != "float32" or model.device.startswith("cuda")
    saved = "the run ends before, and its end is saved anyway"
    return [
        ("eval.every_seconds", 0 < stop.seconds <= every.every_seconds, _AT_ENDS),
        ("eval.every_steps", 0 < stop.steps <= every.every_steps, _AT_ENDS),
        ("checkpoint.every_steps", 0 < stop.steps <= config.checkpoint.every_steps, saved),
        ("record.num_groups", writes_none or has_fewer, too_few),
        ("scale.strategy", num_processes == 1, _ALONE),
        ("scale.timeout_seconds", num_processes == 1 and not config.scale.generators, _ALONE),
        ("model.matmul", is_elsewhere, "it only concerns float32 products on a CPU"),
        ("model.revision", is_here, "the model is a folder on this machine"),
        ("model.trust_remote_code", has_no_code, "the model has no Python code of its own"),
    ]


def _leaves(new: BaseModel, old: BaseModel | None, no_effect: Mapping[str, str], prefix: str = "") -> Iterator[Option]:
    """Every leaf that differs; of a section that is absent by default, every leaf."""
    for name, field in type(new).model_fields.items():
        key, value, default = f"{prefix}{name}", getattr(new, name), getattr(old, name) if old is not None else None
        if isinstance(value, BaseModel):
            yield from _leaves(value, default, no_effect, f"{key}.")
        elif value != default or isinstance(new, LoraConfig):
            meaning = " ".join((field.description or "").split())
            yield Option(key=key, value=value, default=default, meaning=meaning, no_effect=no_effect.get(key))
