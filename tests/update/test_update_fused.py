"""Parts of a model in fewer kernels, against the model's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import make_model, make_rows
from torch import Tensor, nn

from podsrl.update.fused import _is_plain, _Rotation, find_parts, replaced
from podsrl.update.token_logprobs import TokenLogprobs


def numbers(model: Any) -> list[Tensor]:
    logprobs, entropies = TokenLogprobs(model)(make_rows())
    if logprobs.requires_grad:
        (logprobs * torch.arange(logprobs.numel()).view_as(logprobs)).sum().backward()
    found = [logprobs.detach(), entropies, *(weight.grad for weight in model.parameters() if weight.grad is not None)]
    model.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_a_model_with_replaced_parts_has_its_numbers_and_gradients(kind: str) -> None:
    model = make_model(kind)
    parts = find_parts(model)
    assert [name for _, name, _ in parts] == 5 * ["forward"] + ["apply_rotary_pos_emb"]
    own = numbers(model)
    with replaced(parts):
        assert all(getattr(owner, name) is function for owner, name, function in parts)
        found = numbers(model)
    for one, two in zip(own, found, strict=True):
        assert (one - two).abs().max() <= 1e-5 * one.abs().max()  # its norms are float32
    assert all(torch.equal(one, two) for one, two in zip(own, numbers(model), strict=True))


@pytest.mark.parametrize("alpha", [4, 6])
def test_adapters_add_themselves_with_their_numbers_and_gradients(alpha: int) -> None:
    from peft import LoraConfig, get_peft_model

    model: Any = get_peft_model(make_model("qwen2"), LoraConfig(r=4, lora_alpha=alpha, target_modules="all-linear"))
    draw = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.copy_(torch.randn(weight.shape, generator=draw))
    parts = [(owner, name, function) for owner, name, function in find_parts(model) if hasattr(owner, "lora_A")]
    assert len(parts) == 2 * 7
    own = numbers(model)
    with replaced(parts):
        assert all(layer.forward is function for layer, _, function in parts)
        found = numbers(model)
        with model.disable_adapter():
            off = numbers(model.eval())[0]
    assert (own[0] - off).abs().max() > 0.1
    for one, two in zip(own, found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)
    with model.disable_adapter():
        assert torch.equal(numbers(model)[0], off)


def test_a_rotation_has_the_gradient_of_its_formula() -> None:
    """Also where both halves have angles of their own."""
    draw = torch.Generator().manual_seed(0)
    sizes = (2, 3, 4, 6), (2, 1, 4, 6), (2, 1, 4, 6), (2, 1, 4, 6)
    query, key, cos, sin = (torch.randn(size, generator=draw, dtype=torch.float64) for size in sizes)
    assert torch.autograd.gradcheck(
        lambda q, k: _Rotation.apply(q, k, cos, sin), (query.requires_grad_(), key.requires_grad_())
    )
    halves = torch.cat([-query[..., 3:], query[..., :3]], -1)
    torch.testing.assert_close(_Rotation.apply(query, key, cos, sin)[0], query * cos + halves * sin)


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("own", [1e-6, 1e-5])
def test_a_norm_of_another_formula_or_epsilon_stays(shift: float, own: float) -> None:
    class OtherRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((8,), 1.5))
            self.variance_epsilon = 1e-6

        def forward(self, states: Tensor) -> Tensor:
            return nn.functional.rms_norm(states, (8,), self.weight + shift, own)

    assert _is_plain(OtherRMSNorm()) == (shift == 0 and own == 1e-6)
    assert find_parts(make_model("gemma2")) == [] or all(
        name != "forward" for _, name, _ in find_parts(make_model("gemma2"))
    )
