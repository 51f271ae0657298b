"""Detect options that have no effect given the rest of the config, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.lib.model_files import has_own_code
from podsrl.plan.estimate import Work


def without_effect(config: RunConfig, todo: Work, num_processes: int) -> dict[str, str]:
    """Key -> why it changes nothing in this run.

    Args:
        config: of the run.
        todo: what one process has at once.
        num_processes: that share the run.

    Example:
        >>> from podsrl.plan.estimate import work
        >>> config = RunConfig.model_validate({"scale": {"strategy": "fsdp2"}})
        >>> without_effect(config, work(config, 1), 1)["scale.strategy"]
        'there is only one process'
    """
    found = (*_of_sampling(config, todo), *_of_loss(config), *_of_optimizer(config, todo))
    return dict((*found, *_of_schedules(config), *_of_places(config, num_processes)))


Reason = tuple[str, str]


def _of_sampling(config: RunConfig, todo: Work) -> Iterator[Reason]:
    rollouts, select = config.rollouts, config.select
    most = max(todo.num_rows, todo.num_eval_rows)
    if not rollouts.kv_cache_bytes and not 0 < rollouts.num_slots < most:
        yield "rollouts.scheduler", "all rollouts run at once: neither rollouts.num_slots nor kv_cache_bytes is less"
    if rollouts.num_slots >= most:
        yield "rollouts.num_slots", f"at most {most:,} rollouts are generated at once"
    if select.num_kept == rollouts.num_rollouts and select.rule != "keep_all":
        yield "select.rule", "select.num_kept = rollouts.num_rollouts, so every rule keeps all"


def _of_loss(config: RunConfig) -> Iterator[Reason]:
    rollouts = config.rollouts
    is_filtered = rollouts.top_p < 1 or rollouts.top_k > 0 or rollouts.min_p > 0
    has_dropout = config.lora is not None and config.lora.dropout > 0
    if config.optim.num_epochs == 1 and not is_filtered and not has_dropout:  # else sampler and update disagree
        for name in ("clip", "clip_low", "clip_high"):
            yield (
                f"loss.{name}",
                "one optimizer step per batch (optim.num_epochs): ratios stray from 1 by rounding alone",
            )


def _of_optimizer(config: RunConfig, todo: Work) -> Iterator[Reason]:
    optim, stop = config.optim, config.stop
    if optim.logprob_chunk_tokens >= todo.micro_batch_tokens:
        yield "optim.logprob_chunk_tokens", f"a micro-batch has at most {todo.micro_batch_tokens:,} tokens"
    if optim.packing == "off":
        yield "optim.prefix_sharing", "prompts are shared in packed rows only, and optim.packing is off"
    last = stop.steps * optim.num_epochs
    if 0 < last <= optim.schedule_steps // 100:
        yield "optim.schedule_steps", f"the run ends after {last:,} optimizer steps, where the rate has hardly fallen"


def _of_schedules(config: RunConfig) -> Iterator[Reason]:
    stop, evaluation, checkpoint, record = config.stop, config.eval, config.checkpoint, config.record
    if 0 < stop.seconds <= evaluation.every_seconds:
        yield "eval.every_seconds", "the run ends before; it is evaluated at its start and its end"
    if 0 < stop.steps <= evaluation.every_steps:
        yield "eval.every_steps", "the run ends before; it is evaluated at its start and its end"
    if 0 < stop.steps <= checkpoint.every_steps:
        yield "checkpoint.every_steps", "the run ends before, and its end is saved anyway"
    if record.groups_every_steps == 0:
        yield "record.num_groups", "record.groups_every_steps = 0: no group is written"
    elif config.budget == BudgetConfig() and record.num_groups > config.rollouts.num_prompts:
        yield "record.num_groups", f"a step has {config.rollouts.num_prompts} groups"


def _of_places(config: RunConfig, num_processes: int) -> Iterator[Reason]:
    if num_processes == 1:
        yield "scale.strategy", "there is only one process"
        yield "scale.timeout_seconds", "there is only one process"
    if config.model.dtype != "float32" or config.model.device.startswith("cuda"):
        yield "model.matmul", "it only concerns float32 products on a CPU"
    path = config.model.path
    if path.startswith("builtin:") or Path(path).expanduser().is_dir():
        yield "model.revision", "the model is a folder on this machine"
        if path.startswith("builtin:") or not has_own_code(Path(path).expanduser()):
            yield "model.trust_remote_code", "the model has no Python code of its own"
