"""A folder in PEFT layout as `model.path`: adapters, which name the model that they belong to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.lib.logs import read_object
from podsrl.lib.model_files import check_files
from podsrl.policy.quantized import quiet_import
from podsrl.policy.source import model_folder

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def base_of(config: ModelConfig) -> ModelConfig | None:
    """The model that the adapters in a folder belong to; None if the path is a whole model.

    Raises:
        UsageError: the adapters lie beside a whole model, have no weights, name no base, name a base that holds
            adapters itself, or ask for another library to be imported; or a link leads out of the folder.
    """
    folder = Path(model_folder(config.path))
    description = folder / ADAPTER_CONFIG
    if not description.is_file():
        return None
    if (folder / "config.json").is_file():  # transformers would add the adapters, merged ones again
        raise UsageError(
            f"model.path = {config.path!r} holds a whole model and adapters: remove {ADAPTER_CONFIG} and "
            f"{ADAPTER_WEIGHTS}, or config.json and the model's weights"
        )
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise UsageError(f"model.path = {config.path!r}: adapters without their weights, {ADAPTER_WEIGHTS}")
    check_files(folder, config.path)
    found = read_object(description)
    base = found.get("base_model_name_or_path")
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
    return config.model_copy(update={"path": base, "revision": found.get("revision")})


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
