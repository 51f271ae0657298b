"""A folder in PEFT layout as `model.path`: adapters, which name the model that they belong to."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.lib.model_files import check_files, read_json
from podsrl.policy.quantized import quiet_import
from podsrl.policy.source import model_folder

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MAX_SECONDS = 10.0
"""CPU time for the patterns of an adapter_config.json on all modules of a model; common ones take milliseconds."""


def base_of(config: ModelConfig) -> ModelConfig | None:
    """The model that the adapters in a folder belong to; None if the path is a whole model.

    Raises:
        UsageError: the adapters have no weights, name no base, name a base that holds adapters itself, or ask for
            another library to be imported; what `check_files` raises.
    """
    folder = Path(model_folder(config.path))
    description = folder / ADAPTER_CONFIG
    if not description.is_file() or (folder / "config.json").is_file():
        return None
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise UsageError(f"model.path = {config.path!r}: adapters without their weights, {ADAPTER_WEIGHTS}")
    check_files(folder, config.path)
    try:
        found = read_json(description)
        base, revision = found["base_model_name_or_path"], found.get("revision")
    except (ValueError, KeyError, AttributeError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise UsageError(
            f"model.path = {config.path!r}: its {ADAPTER_CONFIG} names no base_model_name_or_path, the model that the "
            "adapters belong to: write it there"
        )
    if found.get("megatron_config"):  # PEFT would import the module that the file names beside it
        raise UsageError(f"model.path = {config.path!r}: its {ADAPTER_CONFIG} has a megatron_config; wanted none")
    lower = Path(model_folder(base))
    if (lower / ADAPTER_CONFIG).is_file() and not (lower / "config.json").is_file():
        raise UsageError(
            f"model.path = {config.path!r}: its {ADAPTER_CONFIG} names the base {base!r}, which holds adapters too: "
            "merge those into their own base, and name the result there"
        )
    return config.model_copy(update={"path": base, "revision": revision})


@contextmanager
def naming_base(config: ModelConfig) -> Iterator[None]:
    """Errors about the base of a folder of adapters say where its name comes from: no config holds it."""
    try:
        yield
    except UsageError as error:
        if base_of(config) is None:
            raise
        raise UsageError(f"the base that {ADAPTER_CONFIG} in {config.path!r} names: {error}") from None


def check_is_whole(config: ModelConfig) -> None:
    """UsageError: the path is a folder of adapters, and new adapters on top of them could not be saved.

    PEFT would read the folder as their base without merging the first adapters, and without an error.
    """
    if base_of(config) is not None:
        raise UsageError(
            f"model.path = {config.path!r} holds adapters, and [lora] would put new ones on top, which no PEFT folder "
            "can describe: merge them into their base first (PEFT's merge_and_unload, then save_pretrained), or leave "
            "[lora] out to train the merged weights"
        )


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence warnings that a user can do nothing about or gets in another form."""
    with warnings.catch_warnings(), quiet_import():
        # PEFT asks transformers for something by a name that it is about to lose
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)  # `load_model` makes it an error
        yield


def check_patterns(model: Any, config: Any, given: str) -> None:
    """Match every pattern of adapter_config.json against every module's name within a time limit, before PEFT does.

    The file came with the adapters, and some regular expressions take longer than the age of the universe for a name
    of 40 letters.

    UsageError: the match takes more than `MAX_SECONDS`. Outside of the main thread nothing can interrupt a match, so
    nothing is checked there.
    """
    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.other import get_pattern_key

    if threading.current_thread() is not threading.main_thread():
        return
    keys = [*(config.rank_pattern or {}), *(config.alpha_pattern or {})]
    problem = f"model.path = {given!r}: a pattern in its adapter_config.json takes more than {MAX_SECONDS:g} seconds"
    with _limited(UsageError(f"{problem} of CPU time; name the modules in target_modules one by one")):
        for name, _ in model.named_modules():
            check_target_module_exists(config, name)
            get_pattern_key(keys, name)


@contextmanager
def _limited(error: Exception) -> Iterator[None]:
    """Raise an error after `MAX_SECONDS` of CPU time; Python's matching checks for signals now and then."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise error

    previous = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
