"""Weights in memory that several processes see."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from podsrl.lib import matmul
from podsrl.scale.generators.weights import SharedWeights, mapped, tensors_in
from podsrl.sync import weights_digest


@pytest.fixture
def weights() -> Iterator[SharedWeights]:
    shared = SharedWeights()
    yield shared
    shared.close()


def tensors(scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = scale * torch.randn(7, 5, generator=generator)
    return {
        "a": drawn,
        "half": drawn.to(torch.bfloat16),
        "transposed": drawn.T,
        "scalar": torch.tensor(float("nan")),
        "none": torch.zeros(0, 4),
        "whole": torch.arange(3),
        "odd": torch.tensor([True, False, True]),
        "end": drawn[:1].to(torch.float16),
    }


def read(weights: SharedWeights) -> dict[str, Tensor]:
    assert weights.table is not None
    table = json.loads(json.dumps(weights.table))
    return dict(tensors_in(table, mapped(weights.descriptor, table)))


def same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return list(found) == list(wanted) and all(
        found[name].dtype == wanted[name].dtype
        and found[name].shape == wanted[name].shape
        and found[name].numpy(force=True).tobytes() == wanted[name].contiguous().numpy(force=True).tobytes()
        if wanted[name].dtype != torch.bfloat16
        else torch.equal(found[name], wanted[name])
        for name in wanted
    )


def test_every_tensor_comes_back_bit_for_bit(weights: SharedWeights) -> None:
    weights.put(iter(tensors().items()), 3)
    assert weights.table is not None and weights.table["version"] == 3
    assert same(read(weights), tensors())
    assert weights.table["digest"] == weights_digest(tensors().items())


def test_new_weights_take_the_place_of_larger_and_smaller_ones(weights: SharedWeights) -> None:
    weights.put([("only", torch.ones(100_000))], 1)
    before = os.fstat(weights.descriptor).st_size
    weights.put(tensors(2.0).items(), 2)
    assert same(read(weights), tensors(2.0)) and os.fstat(weights.descriptor).st_size == before
    weights.put([], 3)
    assert read(weights) == {}


def test_a_reader_cannot_change_what_others_read(weights: SharedWeights) -> None:
    weights.put(tensors().items(), 1)
    read(weights)["a"].zero_()
    assert same(read(weights), tensors())


def test_an_array_that_is_read_only_serves(weights: SharedWeights, recwarn: pytest.WarningsRecorder) -> None:
    weights.put(tensors().items(), 1)
    assert weights.table is not None
    array = np.frombuffer(os.pread(weights.descriptor, 1 << 20, 0), dtype=np.uint8)
    assert not array.flags.writeable and same(dict(tensors_in(weights.table, array)), tensors())
    assert list(recwarn) == []


def test_the_library_of_matrix_products_goes_with_them(weights: SharedWeights) -> None:
    matmul.use("onednn")
    weights.put([], 1)
    assert weights.table is not None and weights.table["matmul"] == matmul.in_use()


def test_without_memory_files_a_file_without_a_name_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedWeights()
    shared.put(tensors().items(), 1)
    assert same(read(shared), tensors())
    shared.close()
