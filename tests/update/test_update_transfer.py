"""Many tensors in one copy arrive as they were."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from podsrl.update import transfer
from podsrl.update.transfer import CPU, move

DTYPES = (torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.float64)
SHAPES = st.lists(st.integers(0, 4), max_size=3)


def tensor_of(shape: list[int], dtype: torch.dtype) -> Tensor:
    return (torch.arange(math.prod(shape)).reshape(shape) % 3).to(dtype)


@given(st.lists(st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_tensors_laid_one_behind_the_other_are_found_again(sizes: list[tuple[list[int], torch.dtype]]) -> None:
    tensors = [tensor_of(shape, dtype) for shape, dtype in sizes]
    if not tensors:
        return
    packed, lengths = transfer._packed(tensors)
    assert all(length % 16 == 0 for length in lengths) and sum(lengths) == len(packed)
    for found, tensor in zip(transfer._unpacked(packed.split(lengths), tensors), tensors, strict=True):
        assert found.dtype == tensor.dtype and torch.equal(found, tensor)


@dataclass(frozen=True)
class Inner:
    mask: Tensor | None
    name: str


@dataclass(frozen=True)
class Outer:
    ids: Tensor
    inners: tuple[Inner, ...]
    size: tuple[int, int]


def test_a_record_goes_to_a_gpu_as_one_copy_out_of_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[tuple[int, dict[str, bool]]] = []

    def to(tensor: Tensor, device: torch.device, **options: bool) -> Tensor:
        copies.append((len(tensor), options))
        return tensor.clone()

    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(Tensor, "to", to)
    record = Outer(torch.tensor([[7, 8]]), (Inner(torch.tensor([True]), "a"), Inner(None, "b")), (3, 4))
    moved = move(record, torch.device("cuda"))
    assert copies == [(32, {"non_blocking": True})]
    assert (
        moved.ids.tolist() == [[7, 8]] and moved.inners[0].mask is not None and moved.inners[0].mask.tolist() == [True]
    )
    assert (moved.inners[1], moved.inners[0].name, moved.size) == (Inner(None, "b"), "a", (3, 4))


def test_a_copy_to_the_cpu_is_finished_on_return(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[object] = []
    monkeypatch.setattr(Tensor, "to", lambda tensor, *args, **more: options.append(more) or torch.zeros(2))
    elsewhere = torch.ones(2, device="meta")
    assert move(elsewhere, CPU).tolist() == [0.0, 0.0] and options == [{}]


def test_what_is_there_already_is_not_touched() -> None:
    record = Outer(torch.ones(2), (), (1, 1))
    assert move(record, CPU) is record
