"""The policy: what is trained, what the generator samples from, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from podsrl.config.schema import ModelConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.policy.dropout import Setting, as_configured
from podsrl.policy.files import Write, check_shapes, copy_into, read_weights, shapes_in
from podsrl.policy.source import quiet_bars
from podsrl.policy.weights import load_model

Full = Callable[[Tensor], Tensor]


def as_it_is(tensor: Tensor) -> Tensor:
    """The `full` of parameters that are whole already."""
    return tensor


class Policy:
    """A model all of whose weights are trained.

    Args:
        model: a causal language model of transformers.
        tokenizer: saved beside it.
    """

    is_adapted = False
    """Whether adapters are trained instead of the weights."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model: Any = model.eval()
        """What the update forwards: the model, or PEFT's model around it."""
        self.tokenizer = tokenizer
        self.generator_model: Any = self.model
        """What the generator samples from: a plain model of transformers."""
        self.dropout: Sequence[Setting] = ()
        """What the model's config had before its dropout was turned off; a saved config has it again."""
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
        """The weights that the generator must sample from, one at a time: let go of each before you ask for the next.

        Args:
            full: turns a sharded parameter into a whole one; called for the same parameters in the same order in every
                process.

        Yields:
            Name in the plain model, tensor: as trained, or merged under adapters.
        """
        for name, parameter in self.model.named_parameters():
            yield name, full(parameter.detach())

    def reference(self) -> AbstractContextManager[nn.Module]:
        """The starting model, while the context is open: `model` with its adapters off.

        Raises:
            UsageError: without adapters; the weights are then not what they were.
        """
        raise UsageError("a policy without adapters holds no reference: keep a frozen copy of the starting model")

    def weights(self) -> dict[str, Tensor]:
        """What a checkpoint holds: name -> the live tensor, which later steps change in place; tied ones once."""
        return whole_weights(self.model)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write the policy so that transformers (or PEFT, under adapters) loads it, and the tokenizer beside it.

        Args:
            folder: made where it is not there.
            weights: whole tensors under the names of `weights()`, where the live ones are sharded.
        """
        with quiet_bars(), as_configured(self.dropout):
            self.model.save_pretrained(folder, state_dict=dict(self.weights() if weights is None else weights))
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path, write: Write = copy_into) -> None:
        """Take over saved weights, bit for bit, one tensor at a time.

        Families whose files name weights otherwise than the model (mixtures of experts) are read as a whole first.

        Args:
            folder: of `save`.
            write: how a whole value gets into a live tensor, where those are sharded.

        Raises:
            CheckpointError: weights of another model. Nothing has changed then.
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
    """Parameters and the buffers that are saved, as live tensors; tied ones once."""
    kept = model.state_dict()
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors if name in kept}


def count_weights(model: nn.Module) -> int:
    """Elements of all parameters; tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _as_loaded(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """Saved weights of a model under the names that it has."""
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
