"""The pretended GPU refuses what a GPU refuses, and counts what it is said to count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pretend import Watch


def on_gpu(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device="cuda")


def test_tensors_are_torchs_own_on_the_device() -> None:
    x = on_gpu(1, 2)
    assert type(x) is torch.Tensor and x.is_cuda and x.device == torch.device("cuda", 0)
    assert (x * 2 + 1).cpu().tolist() == [3, 5] and x[None].expand(3, 2).sum(0).tolist() == [3, 6]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_fresh_memory_is_nan(dtype: torch.dtype) -> None:
    fresh = [torch.empty(3, 5, dtype=dtype, device="cuda"), torch.empty_strided((4,), (2,), dtype=dtype, device="cuda")]
    assert all(bool(tensor.isnan().all()) for tensor in (*fresh, torch.empty_like(fresh[0]), fresh[0].new_empty(2)))
    assert torch.zeros(3, dtype=dtype, device="cuda").tolist() == [0, 0, 0]


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a sum of two devices": lambda x: x + torch.ones(2),
    "indices of the CPU": lambda x: x.index_select(0, torch.tensor([0])),
    "a list of two devices": lambda x: torch.cat([x, torch.ones(1)]),
    "a number of the CPU where none may be": lambda x: x.index_copy_(0, torch.zeros((), dtype=torch.int64), x[:1]),
    "an index of the device into the CPU": lambda x: torch.ones(2)[x.long()],
    "a product of two devices": lambda x: torch.ones(1, 2) @ x[:, None],
    "a generator of the CPU": lambda x: x.uniform_(generator=torch.Generator()),
    "numpy": lambda x: x.numpy(),
    "a gradient of another device": lambda x: setattr(torch.nn.Parameter(x), "grad", torch.ones(2)),
    "a kernel that only the CPU has": lambda x: torch.ops.mkldnn._linear_pointwise(
        x[None], x[None], None, "none", [], ""
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_gpu_refuses_is_refused(what: str) -> None:
    with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
        REFUSED[what](on_gpu(1, 0))


def test_what_a_gpu_takes_from_the_cpu_is_taken() -> None:
    x = on_gpu(1, 2, 4)
    assert (x * torch.tensor(2.0)).tolist() == [2, 4, 8]  # a tensor of no dimension
    assert x[torch.tensor([2, 0])].tolist() == [4, 1]
    x[torch.tensor([True, False, False])] = 7.0
    assert x.tolist() == [7, 2, 4]
    x.copy_(torch.arange(3.0))
    assert torch.ones(3).copy_(x).tolist() == [0, 1, 2]


WAITS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "a sum": (lambda x: (x + 1).sum(), 0),
    "a number": (lambda x: float(x.sum()), 1),
    "a question": (lambda x: bool((x > 0).any()), 1),
    "a copy to the CPU": (lambda x: x.tolist(), 1),
    "a copy to the device": (lambda x: torch.ones(3).to(x.device), 1),
    "a tensor made of a list": (lambda x: torch.tensor([1.0, 2.0], device=x.device), 1),
    "a copy that is queued": (lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True), 0),
    "a copy of nothing": (lambda x: torch.ones(0).to(x.device), 0),
    "a copy on the device": (lambda x: x.clone(), 0),
    "a mask": (lambda x: x[x > 0], 1),
    "a mask that is filled": (lambda x: x.masked_fill_(x > 0, 0.0), 0),
    "a mask that is written": (lambda x: x.__setitem__(x >= 0, x), 1),
    "indices of the CPU": (lambda x: x[torch.tensor([0])], 1),
    "indices of the device": (lambda x: x[x.long()], 0),
    "places": (lambda x: x.nonzero(), 1),
    "distinct values": (lambda x: x.unique(), 1),
    "equality": (lambda x: torch.equal(x, x), 1),
    "an explicit wait": (lambda x: torch.cuda.synchronize(), 1),
}


@pytest.mark.parametrize("what", WAITS)
def test_waits_are_counted(what: str) -> None:
    call, expected = WAITS[what]
    x = on_gpu(0, 1, 2)
    with Watch() as watch:
        call(x)
    assert watch.num_waits == expected, watch.waits


def test_a_backward_pass_runs_on_the_device_without_waiting() -> None:
    weight = on_gpu(3, 4).requires_grad_()
    with Watch() as watch:
        (weight**2).sum().backward()
    assert watch.num_waits == 0 and weight.grad is not None and weight.grad.is_cuda
    assert weight.grad.tolist() == [6, 8]


def test_memory_is_counted() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    x = torch.empty(1000, device="cuda")
    y = x.zero_() + 1
    assert torch.cuda.max_memory_allocated() == before + 8000
    del x, y
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
