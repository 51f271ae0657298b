"""Which library computes float32 products, and that both compute the same ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.lib import matmul
from podsrl.lib.matmul import SMALL, OnednnLinear, choose, in_use, is_available, use, uses_onednn


@pytest.mark.parametrize(
    ("vendor", "instructions", "library"),
    [
        ("AuthenticAMD", "AVX512", "onednn"),
        ("AuthenticAMD", "AVX2", "mkl"),
        ("GenuineIntel", "AVX512", "mkl"),
        (None, "DEFAULT", "mkl"),
    ],
)
def test_auto_is_onednn_on_amd_with_avx512(
    vendor: str | None, instructions: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "is_available", lambda: True)
    monkeypatch.setattr(matmul, "processor_facts", lambda: {"vendor_id": vendor} if vendor else {})
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: instructions)
    assert choose() == library and choose("mkl") == "mkl" and choose("onednn") == "onednn"
    use(None)
    assert in_use() == library and uses_onednn(SMALL) == (library == "onednn") and not uses_onednn(SMALL - 1)


def test_where_there_is_one_library_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "is_available", lambda: False)
    assert choose() == choose("mkl") == "mkl"
    with pytest.raises(UsageError, match=r"model\.matmul = 'onednn'.*x86"):
        choose("onednn")
    use("onednn")  # another process's choice, say
    assert in_use() == "mkl" and not uses_onednn(10**12)


@pytest.mark.parametrize("name", ["arm64", "aarch64", "x86_64", "AMD64"])
def test_only_an_x86_processor_has_a_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: name)
    is_built_in = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()
    assert is_available() == (is_built_in and name in ("x86_64", "AMD64"))


def spread(rows: int, columns: int) -> Tensor:
    """Of both signs, with magnitudes over some orders."""
    return torch.randn(rows, columns) * torch.exp(2 * torch.randn(rows, columns))


def assert_product(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """x @ weight.T + bias as float32 may give it, whatever the order of its additions.

    |error| ≤ γ (|x| |weight| + |bias|) with γ = k u / (1 - k u), for k roundings on the way of a term and u = 2^-24
    (Higham 2002, section 3.1).
    """
    x, weight = x.detach().double(), weight.detach().double()
    added = torch.zeros(1, dtype=torch.float64) if bias is None else bias.detach().double()
    k, unit = x.shape[1] + 1, 2.0**-24
    bound = k * unit / (1 - k * unit) * (x.abs() @ weight.abs().T + added.abs())
    assert ((found.detach().double() - (x @ weight.T + added)).abs() <= bound).all()


@pytest.mark.skipif(not is_available(), reason="no oneDNN for this processor")
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("rows", "num_in", "num_out"), [(1, 64, 64), (16, 96, 64), (37, 64, 96), (300, 64, 160)])
def test_both_libraries_give_product_and_gradients_within_float32s_bound(
    rows: int, num_in: int, num_out: int, has_bias: bool
) -> None:
    torch.manual_seed(rows)
    x, weight, above = spread(rows, num_in), spread(num_out, num_in), spread(rows, num_out)
    bias = spread(1, num_out)[0].requires_grad_() if has_bias else None
    inputs = [tensor for tensor in (x.requires_grad_(), weight.requires_grad_(), bias) if tensor is not None]
    for layer in (F.linear, OnednnLinear.apply):
        y = layer(x, weight, bias)
        for_x, for_weight, *for_bias = torch.autograd.grad(y, inputs, above)
        assert_product(y, x, weight, bias)
        assert_product(for_x, above, weight.T)
        assert_product(for_weight, above.T, x.T)
        if for_bias:
            assert_product(for_bias[0][:, None], above.T, torch.ones(1, rows))
