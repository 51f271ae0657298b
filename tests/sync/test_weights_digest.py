"""The digest names weights by a sample: equal weights equal digests, a step of training another one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from podsrl.generate import Engine
from podsrl.sync import SyncError, sync_weights, weights_digest
from podsrl.sync.digest import NUM_SAMPLES, _places


def twin(named: dict[str, np.ndarray[Any, Any]]) -> str:
    """The same digest, written once more in numpy."""
    names = sorted(named)
    result = hashlib.blake2b(repr([(name, named[name].shape) for name in names]).encode(), digest_size=8)
    for name in names:
        flat = named[name].astype(np.float64).ravel()
        places = (
            range(flat.size)
            if flat.size <= 256
            else [int((i * 0x9E3779B97F4A7C15) % 2**64 * flat.size // 2**64) for i in range(1, 65)]
        )
        result.update(flat[list(places)].tobytes())
    return result.hexdigest()


def named() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {"b": torch.randn(40, 50, generator=draw), "a": torch.randn(7, generator=draw), "c": torch.randn(3, 64)}


def test_the_digest_is_that_of_a_twin_in_numpy() -> None:
    tensors = named()
    assert weights_digest(tensors.items()) == twin({name: tensor.numpy() for name, tensor in tensors.items()})
    assert weights_digest([]) == twin({})


def test_neither_order_nor_memory_layout_nor_a_gradient_matters() -> None:
    tensors = named()
    wanted = weights_digest(tensors.items())
    assert weights_digest(reversed(tensors.items())) == wanted
    turned = {name: tensor.T.contiguous().T if tensor.ndim == 2 else tensor for name, tensor in tensors.items()}
    assert not turned["b"].is_contiguous() and weights_digest(turned.items()) == wanted
    assert weights_digest((name, tensor.requires_grad_()) for name, tensor in tensors.items()) == wanted


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_one_tensor_that_moved_in_its_last_bit_gives_another(name: str) -> None:
    tensors = named()
    before = weights_digest(tensors.items())
    moved = torch.nextafter(tensors[name], torch.tensor(torch.inf))
    assert weights_digest((tensors | {name: moved}).items()) != before


def test_names_and_shapes_count_and_so_do_signs_of_zero() -> None:
    digests = [
        weights_digest([("a", torch.zeros(4))]),
        weights_digest([("b", torch.zeros(4))]),
        weights_digest([("a", torch.zeros(2, 2))]),
        weights_digest([("a", -torch.zeros(4))]),
        weights_digest([]),
    ]
    assert len(set(digests)) == 5


@pytest.mark.parametrize("shape", [(2048, 2048), (11008, 2048), (151936, 896), (257, 1), (1, 4096)])
def test_the_sample_spreads_over_rows_and_columns(shape: tuple[int, int]) -> None:
    places = _places(shape[0] * shape[1], torch.device("cpu"))
    assert (
        len(set(places.tolist())) == NUM_SAMPLES and int(places.min()) >= 0 and int(places.max()) < shape[0] * shape[1]
    )
    for index, size in ((places // shape[1], shape[0]), (places % shape[1], shape[1])):
        assert len(index.unique()) > 0.6 * min(size, NUM_SAMPLES)
        assert int(index.max() - index.min()) >= 0.85 * (size - 1)


# --- the proof ---


class Copies:
    """A generator of a user's own that shows its module."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def load_weights(self, named_tensors: Any, version: int) -> None:
        for name, tensor in named_tensors:
            self.model.get_parameter(name).data.copy_(tensor)


class Forgets(Copies):
    """One tensor is left out."""

    def load_weights(self, named_tensors: Any, version: int) -> None:
        super().load_weights([(name, tensor) for name, tensor in named_tensors if "norm.weight" not in name], version)


class KeepsReferences(Copies):
    """Copies after having asked for all of them, though each is only lent until the next."""

    def load_weights(self, named_tensors: Any, version: int) -> None:
        super().load_weights(list(named_tensors), version)


def shifted(make_model: Callable[..., Any]) -> tuple[Any, Any]:
    own, trained = (make_model("qwen2", tie_word_embeddings=True) for _ in range(2))
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.5)
    return own, trained


@pytest.mark.parametrize("kind", [Copies, Engine])
def test_a_generator_that_took_the_weights_gives_their_digest(make_model: Callable[..., Any], kind: Any) -> None:
    own, trained = shifted(make_model)
    before = weights_digest(own.named_parameters())
    digest = sync_weights(trained, kind(own), 1)
    assert digest == weights_digest(own.named_parameters()) == weights_digest(trained.named_parameters()) != before


def test_a_generator_that_left_a_tensor_out_is_an_error_that_names_it(make_model: Callable[..., Any]) -> None:
    own, trained = shifted(make_model)
    with pytest.raises(
        SyncError, match=r"other weights than it was given: model.layers.0.input_layernorm.weight and 4"
    ):
        sync_weights(trained, Forgets(own), 1)


def test_a_generator_that_keeps_what_was_only_lent_is_an_error(make_model: Callable[..., Any]) -> None:
    own, trained = shifted(make_model)

    def lent() -> Any:
        memory = torch.empty(max(p.numel() for p in trained.parameters()))
        for name, parameter in trained.named_parameters():
            yield name, memory[: parameter.numel()].view(parameter.shape).copy_(parameter.detach())

    sync_weights(lent(), Copies(own), 1)
    with pytest.raises(SyncError, match="before it asks for the next"):
        sync_weights(lent(), KeepsReferences(own), 1)


def test_a_missing_name_is_an_error_too(make_model: Callable[..., Any]) -> None:
    own, trained = shifted(make_model)
    with pytest.raises(SyncError, match=r"model.norm.weight and 0 more"):
        sync_weights(((n, p) for n, p in trained.named_parameters() if n != "model.norm.weight"), Engine(own), 1)


def test_a_generator_in_another_number_format_holds_the_rounded_weights(make_model: Callable[..., Any]) -> None:
    own, trained = shifted(make_model)
    own = own.to(torch.bfloat16)
    digest = sync_weights(trained, Engine(own), 1)
    rounded = {name: parameter.detach().bfloat16() for name, parameter in trained.named_parameters()}
    assert digest == weights_digest(rounded.items()) == weights_digest(own.named_parameters())


def test_a_generator_that_shows_no_module_is_believed() -> None:
    class Remote:
        def load_weights(self, named_tensors: Any, version: int) -> None:
            self.names = [name for name, _ in named_tensors]

    model, remote = torch.nn.Linear(2, 3), Remote()
    assert sync_weights(model, remote, 1) == weights_digest(model.named_parameters())
    assert remote.names == ["weight", "bias"]
