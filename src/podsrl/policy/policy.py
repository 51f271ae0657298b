"""The policy: what is trained, what the generator samples from, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor, nn

from podsrl.config.schema import ModelConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.lib.model_files import shapes_in
from podsrl.policy.dropout import Setting, as_configured
from podsrl.policy.source import quiet_bars
from podsrl.policy.weights import load_model

Full = Callable[[Tensor], Tensor]
Write = Callable[[Tensor, Tensor], None]
"""(tensor of the live model, value from the file) -> None."""


class Tokenizer(Protocol):
    """What this package needs of a tokenizer of transformers: an end and a padding token, and these methods."""

    eos_token_id: int
    pad_token_id: int
    chat_template: Any

    def __call__(self, text: list[str], *, add_special_tokens: bool = True, verbose: bool = True) -> Any: ...
    def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str: ...
    def batch_decode(self, sequences: Any, *, skip_special_tokens: bool = False) -> list[str]: ...
    def get_vocab(self) -> dict[str, int]: ...
    def save_pretrained(self, save_directory: Any) -> Sequence[str]: ...


def as_it_is(tensor: Tensor) -> Tensor:
    """The `full` of parameters that are not sharded."""
    return tensor


def copy_into(own: Tensor, value: Tensor) -> None:
    """Copy a value into a tensor that is not sharded."""
    own.copy_(value)


class Policy:
    """A causal language model of transformers with all of its weights trained, and the tokenizer saved beside it."""

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        self.model: Any = model.eval()
        """The model that the update forwards; under adapters PEFT's model around it."""
        self.tokenizer = tokenizer
        self.generator_model: Any = self.model
        """The model that the generator samples from: a plain model of transformers."""
        self.dropout: Sequence[Setting] = ()
        """Dropout of the model's config before it was turned off; a saved config has it again."""
        self.notes: Sequence[str] = ()
        """What a person should know about the model, one sentence each."""

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def description(self) -> str:
        """How much is trained, in one line."""
        return f"all {count_weights(self.generator_model):,} weights are trained"

    def sampled_weights(self, full: Full = as_it_is) -> Iterator[tuple[str, Tensor]]:
        """Name in the plain model and weight, as trained or merged; each is valid only until the next is yielded.

        `full` turns a sharded parameter into a whole one: every process calls it for the same ones in the same order.
        """
        for name, parameter in self.model.named_parameters():
            yield name, full(parameter.detach())

    def weights(self) -> dict[str, Tensor]:
        """What a checkpoint holds: name -> live tensor, which later steps change in place; tied weights once."""
        return whole_weights(self.model)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write the policy so that transformers (or PEFT) loads it, with the tokenizer; `weights`: whole ones."""
        with quiet_bars(), as_configured(self.dropout):
            self.model.save_pretrained(folder, state_dict=dict(self.weights() if weights is None else weights))
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path, write: Write = copy_into) -> None:
        """Load saved weights, bit for bit, one tensor at a time.

        In some families (mixtures of experts) the files name weights otherwise than the model: these are read as a
        whole first.

        `write` gets a whole value into a live tensor, where those are sharded.

        Raises:
            CheckpointError: the weights belong to another model. Nothing has changed then.
        """
        own, files = self.weights(), sorted(folder.glob("*.safetensors"))
        if not files or set(shapes_in(files)) == set(own):
            read_weights(files, own, write)
            return
        saved = _as_loaded(folder, self.model)
        check_shapes(folder, {name: tuple(tensor.shape) for name, tensor in saved.items()}, own)
        for name, tensor in own.items():
            write(tensor, saved[name])


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers, as live tensors; tied ones once."""
    kept = model.state_dict()
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors if name in kept}


def count_weights(model: nn.Module) -> int:
    """Elements of all parameters; tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _as_loaded(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """Saved weights under the names of the model."""
    options = {
        "path": str(folder.absolute()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": "cpu",
        "trust_remote_code": type(model).__module__.startswith("transformers_modules."),  # it runs already
    }
    try:
        return whole_weights(load_model(ModelConfig.model_validate(options)))
    except UsageError as error:
        raise CheckpointError(str(error)) from None


@torch.no_grad()
def read_weights(files: Sequence[Path], own: Mapping[str, Tensor], write: Write) -> None:
    """`write` every tensor of *.safetensors files, which together hold every name once, into the live one of its name.

    CheckpointError: a name is missing or unknown, or a shape differs. Nothing has changed then.
    """
    check_shapes(files[0].parent if files else Path("the checkpoint"), shapes_in(files), own)
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (no mapping)
                write(own[name], tensors.get_tensor(name))


def check_shapes(where: Path, found: Mapping[str, tuple[int, ...]], own: Mapping[str, Tensor]) -> None:
    """CheckpointError: `found` (name -> shape) differs from the live model."""
    for name in sorted(set(found) ^ set(own)):
        raise CheckpointError(f"{where}: weight {name!r} is {'not in the model' if name in found else 'missing'}")
    for name, shape in found.items():
        if shape != tuple(own[name].shape):
            raise CheckpointError(f"{where}: weight {name!r} has shape {shape}, the model's {tuple(own[name].shape)}")
