"""The options that a config sets, and why some of them are not read given the rest of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from podsrl.config.schema import CorrectConfig, CostsConfig, LoraConfig, RunConfig
from podsrl.run.before.costs import reads_costs
from podsrl.run.before.sizes import grows_groups, parts_of

_RATIOS = "one optimizer step per batch (optim.num_epochs, num_minibatches): ratios differ from 1 by rounding only"
_NO_PRICE = "neither systems = 'worth' nor select.rule = 'max_signal' without select.options.overhead weighs costs"
_ALONE = "there is only one process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option that is not at its default."""

    key: str
    value: Any
    no_effect: str | None
    """Why it changes nothing here; None where it does."""


def set_options(config: RunConfig, bounded: RunConfig, num_processes: int) -> Iterator[Option]:
    """Every option that is not at its default.

    Args:
        bounded: the config with the bound of the generator's memory that a run finds out.
    """
    return _leaves(config, RunConfig(), without_effect(bounded, num_processes))


def idle_notes(options: Iterable[Option]) -> list[str]:
    """A line for those that change nothing for the same reason."""
    by_reason: dict[str, list[str]] = {}
    for each in options:
        if each.no_effect:
            by_reason.setdefault(each.no_effect, []).append(f"{each.key} = {each.value!r}")
    return [
        f"{', '.join(names)} {'changes' if len(names) == 1 else 'change'} nothing here: {reason}"
        for reason, names in by_reason.items()
    ]


def without_effect(config: RunConfig, num_processes: int) -> dict[str, str]:
    """Option -> why it changes nothing in this run. A limit that is not reached is none of them.

    Example:
        >>> without_effect(RunConfig.model_validate({"scale": {"strategy": "fsdp2"}}), 1)["scale.strategy"]
        'there is only one process'
    """
    rollouts, select, optim, model = config.rollouts, config.select, config.optim, config.model
    parts, keeps_whole = parts_of(config), select.rule == "keep_all"
    keeps_all = (
        not grows_groups(parts)
        and not keeps_whole
        and select.rule != "max_signal"
        and select.most_kept(rollouts.num_rollouts) == rollouts.num_rollouts
    )
    has_own = ":" in "".join((select.rule, *config.systems))
    is_filtered = rollouts.top_p < 1 or rollouts.top_k > 0 or rollouts.min_p > 0
    has_dropout = config.lora is not None and config.lora.dropout > 0
    others = parts.has("recall") or parts.has("bound") or config.correct.proximal == "average"
    # Else the policies of sampler and update differ, or that of the bound is another.
    is_on_policy = optim.num_updates == 1 and not (is_filtered or has_dropout or config.order.is_ahead or others)
    is_here = model.path.startswith(("builtin:", "package:")) or Path(model.path).expanduser().is_dir()
    rows = [
        (
            "rollouts.scheduler",
            not rollouts.kv_cache_bytes and not rollouts.num_slots,
            "all rollouts run at once: neither rollouts.num_slots nor kv_cache_bytes is set",
        ),
        ("rollouts.kv_cache_bytes", rollouts.generator.startswith("vllm+"), "servers bound their memory themselves"),
        *((f"costs.{name}", not reads_costs(config) and not has_own, _NO_PRICE) for name in CostsConfig.model_fields),
        ("select.rule", keeps_all, "select.num_kept = rollouts.num_rollouts, so every rule keeps all"),
        ("select.ties", keeps_all, "select.num_kept = rollouts.num_rollouts, so every rule keeps all"),
        ("select.num_kept", keeps_whole and grows_groups(parts), "select.rule = 'keep_all' keeps every group whole"),
        *((f"loss.{name}", is_on_policy, _RATIOS) for name in ("clip", "clip_low", "clip_high")),
        *((f"correct.{name}", is_on_policy, _RATIOS) for name in CorrectConfig.model_fields),
        ("optim.prefix_sharing", optim.packing == "off", "prompts are shared in packed rows only"),
        (
            "record.num_groups",
            config.record.groups_every_steps == 0,
            "record.groups_every_steps = 0: no group is written",
        ),
        ("scale.strategy", num_processes == 1, _ALONE),
        ("scale.timeout_seconds", num_processes == 1 and not config.scale.generators, _ALONE),
        (
            "model.matmul",
            model.dtype != "float32" or model.device.startswith("cuda"),
            "it only concerns float32 products on a CPU",
        ),
        ("model.revision", is_here, "the model is a folder on this machine"),
    ]
    return {key: reason for key, has_no_effect, reason in rows if has_no_effect}


def _leaves(new: BaseModel, old: BaseModel | None, no_effect: Mapping[str, str], prefix: str = "") -> Iterator[Option]:
    """Every leaf that differs; of a section that is absent by default, every leaf."""
    for name in type(new).model_fields:
        key, value, default = f"{prefix}{name}", getattr(new, name), getattr(old, name) if old is not None else None
        if isinstance(value, BaseModel):
            yield from _leaves(value, default, no_effect, f"{key}.")
        elif value != default or isinstance(new, LoraConfig):
            yield Option(key=key, value=value, no_effect=no_effect.get(key))
