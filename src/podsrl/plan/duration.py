"""How long a run takes: by a step that is measured here, or else by the sizes of its model.

Where a step would take too long, one of fewer questions and shorter answers is measured, and counts as many times as
the sizes say. By sizes, a step is matrix products alone: each generated token goes once through all weights of the
linear layers, each token of the update three times (a forward and two products of the backward pass; four with gradient
checkpointing). One matrix of the model's width, as large as its head if that is not too large, is timed in its number
format for the rows of a decode step and for those of the update. Every prompt counts as the longest and every answer
with `rollouts.max_new_tokens`, while attention, draws, rewards, and reading more weights than a cache holds are left
out: a guess, which may be off by a few times in either direction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError

from podsrl.config.load import with_values
from podsrl.config.schema import ModelConfig, RunConfig
from podsrl.errors import PodsError
from podsrl.lib.devices import is_device_error
from podsrl.lib.machine import peak_bytes, start_peak
from podsrl.lib.model_files import shapes_in, weight_files
from podsrl.plan.inputs import Inputs
from podsrl.plan.preview import Preview
from podsrl.plan.probe import measure_steps
from podsrl.policy import choose_device, model_folder
from podsrl.policy.adapter_folder import base_of
from podsrl.run.before.estimate import can_share
from podsrl.run.before.model_shape import ModelShape, read_shape
from podsrl.run.before.sizes import Work, sized, work
from podsrl.run.health import first_look

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MOST_ROWS, MOST_WIDTH, MOST_WEIGHTS = 512, 8192, 1 << 23
"""Sizes of a timed product; larger ones take as many times longer."""
LEAST_TOKENS = 8
"""Of the answers of a step that is measured."""
_UNREADABLE = (OSError, ValueError, LookupError, AttributeError, TypeError, SafetensorError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds of one step."""

    generate_seconds: float
    """Of its rollouts."""
    step_seconds: float
    """Of all of it."""
    peak_bytes: int | None = None
    """Memory in use at most, on a CPU with that of libraries; None where it was not measured."""
    first_look: str = ""
    """What the sampled answers earn (`health.first_look`); empty where no step was measured."""
    smaller_step: str = ""
    """What was measured, where it was not a whole step."""
    is_update_guessed: bool = True
    """The update is by sizes, since no step was measured, or one without any advantage, which has no update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """How long a run takes."""

    pace: Pace
    num_steps: int
    num_evals: int
    eval_seconds: float
    """Of one evaluation, at the pace of a step's rollouts."""
    total_seconds: float
    why_not_measured: str = ""
    """Why it goes by the model's sizes alone; empty where a step was measured."""


def predict(config: RunConfig, preview: Preview, inputs: Inputs, most_seconds: float) -> Duration:
    """How long a run takes on this machine; a step is measured where one can be.

    Args:
        config: without "auto", as of `settle`.
        most_seconds: what measuring may take, by the model's sizes: two steps, or two smaller ones.
    """
    longest = inputs.prompts.longest if inputs.prompts else 0

    def by_sizes(config: RunConfig) -> Pace:
        real = sized(config, longest_prompt=longest)
        shape = read_shape(config.model)
        return pace_by_sizes(real, shape, work(real, preview.num_processes, can_share=can_share(real, shape)))

    pace = by_sizes(config)
    smaller = smaller_step(config, 2 * pace.step_seconds / most_seconds if most_seconds else math.inf)
    of_smaller = pace if smaller is config else by_sizes(smaller)
    why_not = _why_not(config, preview, inputs)
    if not why_not and not most_seconds:
        why_not = "measuring is left out"
    if not why_not and 2 * of_smaller.step_seconds > most_seconds:
        why_not = f"the smallest step would take more than {most_seconds / 2:g} s here"
    if not why_not:
        try:
            pace = measured_pace(smaller, pace, of_smaller, has_form=inputs.format is not None)
        except (PodsError, RuntimeError, MemoryError) as error:
            if not isinstance(error, PodsError) and not is_device_error(error):
                raise
            why_not = f"no step could be measured: {error}"
        except KeyboardInterrupt:
            why_not = "measuring a step was interrupted"
    return duration(config, preview.work, pace, why_not)


def _why_not(config: RunConfig, preview: Preview, inputs: Inputs) -> str:
    if preview.num_processes > 1:
        return "several processes would share the run"
    if inputs.not_checked or any(trial.invalid_reason is not None for trial in inputs.trials):
        return "the run is not ready on this machine"
    if preview.needed_bytes > preview.machine_bytes:
        return f"the run is too large for {preview.machine}"
    return "" if is_at_hand(config.model) else f"model.path = {config.model.path!r} is not on this machine yet"


def is_at_hand(config: ModelConfig) -> bool:
    """Whether all weights of the model are on this machine: in a folder, or in the cache of the hub's client."""
    config = base_of(config) or config
    folder = Path(model_folder(config.path))
    try:
        if not folder.is_dir():
            folder = Path(snapshot_download(config.path, revision=config.revision, local_files_only=True))
        return bool(shapes_in(weight_files(folder)))
    except _UNREADABLE:
        return False


def pace_by_sizes(config: RunConfig, shape: ModelShape, todo: Work) -> Pace:
    """Of one process's part of a step, by timed products; see the module's docstring."""
    num_weights = shape.num_linear_weights + shape.vocabulary * shape.hidden_size
    width = min(shape.hidden_size, MOST_WIDTH)
    wide = min(max(shape.intermediate_size, shape.vocabulary), MOST_WEIGHTS // width)
    device, dtype = choose_device(config.model), DTYPES[config.model.dtype]
    matrix = torch.ones(width, wide, device=device, dtype=dtype)

    def seconds(num_rows: int) -> float:
        """Of so many rows through all weights."""
        rows = torch.ones(min(num_rows, MOST_ROWS), width, device=device, dtype=dtype)
        scale = num_weights / (width * wide) * max(1.0, num_rows / MOST_ROWS)
        return scale * _least_seconds(lambda: rows @ matrix)

    rollouts = config.rollouts
    num_prompt_tokens = todo.num_rows // rollouts.num_rollouts * rollouts.max_prompt_tokens
    generate = seconds(num_prompt_tokens) + rollouts.max_new_tokens * seconds(todo.num_rows)
    num_passes = (4 if config.model.gradient_checkpointing else 3) * config.optim.num_epochs
    return Pace(generate_seconds=generate, step_seconds=generate + num_passes * seconds(todo.update_tokens))


def _least_seconds(call: Callable[[], torch.Tensor]) -> float:
    """Of four calls, after one that is not counted: a busy machine makes none faster. Reading waits for a device."""
    call()[0, 0].item()
    found = []
    for _ in range(4):
        started = time.perf_counter()
        call()[0, 0].item()
        found.append(time.perf_counter() - started)
    return min(found)


def smaller_step(config: RunConfig, factor: float) -> RunConfig:
    """The config with a step that takes so many times less: of fewer questions, then of shorter answers too.

    Example:
        >>> config = RunConfig.model_validate({"rollouts": {"num_prompts": 8, "max_new_tokens": 64}})
        >>> [smaller_step(config, factor).rollouts.num_prompts for factor in (0.5, 3, 100)]
        [8, 2, 1]
        >>> smaller_step(config, 16).rollouts.max_new_tokens, smaller_step(config, 1e9).rollouts.max_new_tokens
        (32, 8)
    """
    if factor <= 1:
        return config
    num_prompts, num_tokens, parts = (
        config.rollouts.num_prompts,
        config.rollouts.max_new_tokens,
        config.optim.num_minibatches,
    )
    fewer = max(1, int(num_prompts / parts / factor)) * parts
    shorter = min(num_tokens, max(LEAST_TOKENS, int(num_tokens * num_prompts / fewer / factor)))
    return with_values(config, rollouts={"num_prompts": fewer, "max_new_tokens": shorter})


def measured_pace(config: RunConfig, by_sizes: Pace, of_config: Pace | None = None, *, has_form: bool = False) -> Pace:
    """Of a step that learns and writes nothing, after one that is not counted. UsageError: as of a run.

    Where no group of that step has an advantage, the update is that of `by_sizes`.

    Args:
        config: of a `smaller_step`, where `of_config` is by its sizes and `by_sizes` by those of the run.
        has_form: some form is wanted of the answers.
    """
    of_config = of_config or by_sizes
    device = choose_device(config.model)
    start_peak(device)
    [step] = measure_steps(config, 1)
    is_guessed = config.loss.kl_beta == 0 and not any(sample.has_advantage for sample in step.samples)
    update, own = (pace.step_seconds - pace.generate_seconds for pace in (by_sizes, of_config))
    is_whole = of_config is by_sizes
    generate = step.seconds["generate"] * by_sizes.generate_seconds / of_config.generate_seconds
    rest = (step.total_seconds - step.seconds["generate"]) * (1.0 if is_whole else update / own)
    rows = f"{config.rollouts.num_prompts} × {config.rollouts.num_rollouts}"
    return Pace(
        generate_seconds=generate,
        step_seconds=generate + rest + is_guessed * update,
        peak_bytes=peak_bytes(device) if is_whole else None,
        first_look=first_look((*step.groups, *step.left_out), has_form=has_form),
        smaller_step="" if is_whole else f"{rows} answers of at most {config.rollouts.max_new_tokens:,} tokens",
        is_update_guessed=is_guessed,
    )


def duration(config: RunConfig, todo: Work, pace: Pace, why_not_measured: str = "") -> Duration:
    """Of a run at this pace, which ends at the first of its limits, and is evaluated at both ends and when that is due.

    An evaluation that is due by steps and by seconds at once counts twice.

    Example:
        >>> from podsrl.run.before.sizes import work
        >>> config = RunConfig.model_validate({"stop": {"steps": 100}, "eval": {"every_steps": 30}})
        >>> found = duration(config, work(config, 1), Pace(generate_seconds=4.0, step_seconds=6.0))
        >>> found.num_steps, found.num_evals, found.eval_seconds, found.total_seconds
        (100, 5, 2.0, 610.0)
    """
    stop, evaluation, step = config.stop, config.eval, pace.step_seconds
    ends = stop.steps, ceil(stop.seconds / step)
    num_steps = min(end for end in ends if end)
    apart = evaluation.every_steps, ceil(evaluation.every_seconds / step)
    num_evals = 2 + sum((num_steps - 1) // steps for steps in apart if steps)
    eval_seconds = pace.generate_seconds * todo.num_eval_rows / todo.num_rows
    return Duration(
        pace=pace,
        num_steps=num_steps,
        num_evals=num_evals,
        eval_seconds=eval_seconds,
        total_seconds=num_steps * step + num_evals * eval_seconds,
        why_not_measured=why_not_measured,
    )
