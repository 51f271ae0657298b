"""What "auto" becomes in the options that decide a run's numbers: its number format and its generator.

The choice goes into the run's config, so that a resumed run keeps it.
"""

from __future__ import annotations

from collections.abc import Callable

from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import resolve_generator
from podsrl.policy import choose_device, computes_in_bfloat16, model_folder
from podsrl.run.before.checks import check_generator

AUTO = "auto"


def settle(config: RunConfig, num_processes: int = 1) -> tuple[RunConfig, tuple[str, ...]]:
    """The config with what this machine offers in place of "auto", and a line per choice with its reason.

    Raises:
        UsageError: `model.path` or `model.device` names nothing that is there, or `[options.vllm]` an unknown option.

    Example:
        >>> config, [line] = settle(RunConfig.model_validate({"model": {"dtype": "auto", "device": "cpu"}}))
        >>> config.model.dtype, line
        ('float32', "model.dtype = 'auto' is 'float32' here: the model is on the CPU")
        >>> settle(config) == (config, ())
        True
    """
    lines = []
    for key, choose in _CHOICES.items():
        section, name = key.split(".")
        if getattr(getattr(config, section), name) == AUTO:
            model_folder(config.model.path)  # a model has to be given
            value, why = choose(config, num_processes)
            config = with_values(config, **{section: {name: value}})
            lines.append(f"{key} = {AUTO!r} is {value!r} here: {why}")
    return config, tuple(lines)


def _dtype(config: RunConfig, num_processes: int) -> tuple[str, str]:
    device = choose_device(config.model)
    if device.type != "cuda":
        return "float32", "the model is on the CPU"
    if computes_in_bfloat16(device):
        return "bfloat16", "the GPU computes in it"
    return "float32", "the GPU does not compute in bfloat16"


def _generator(config: RunConfig, num_processes: int) -> tuple[str, str]:
    """vLLM in process on a GPU, where it is installed and nothing of the config speaks against it."""
    kind = resolve_generator("vllm", config.options)
    if choose_device(config.model).type != "cuda":
        return "engine", "the model is on the CPU"
    try:
        kind.check()
        kind.check_run(config)
        check_generator(kind, config, num_processes)
    except UsageError as error:
        return "engine", str(error)
    return "vllm", "it is installed, and the model is on a GPU"


_CHOICES: dict[str, Callable[[RunConfig, int], tuple[str, str]]] = {
    "model.dtype": _dtype,
    "rollouts.generator": _generator,
}
"""Option -> what chooses its value, given the processes that share the run, and why."""
