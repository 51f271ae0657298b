"""The kernels of the output head, in Triton's interpreter, against torch's operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from podsrl.update import logprobs

one_pass = pytest.importorskip("podsrl.update.one_pass", reason="Triton is not installed (make device)")
WORDS = 9000  # two blocks and a part of one


def scored(head: Any, dtype: torch.dtype, temperature: float, chunk_tokens: int) -> list[Tensor]:
    """Log-probs and entropies of 5 tokens, and the gradients of states and weight; some logits are far apart."""
    head = head.to(dtype)
    draw = torch.Generator().manual_seed(1)
    states = torch.randn(5, 16, generator=draw).to(torch.bfloat16).to(dtype).requires_grad_()
    tokens = torch.tensor([0, 4095, 4096, WORDS - 1, 77])
    found = logprobs.score_tokens(
        head, states * torch.tensor([[0.0], [1], [3], [9], [1]]).to(dtype), tokens, temperature, chunk_tokens
    )
    (found[0] * torch.tensor([1.0, -2.0, 0.0, 3.0, 0.5])).sum().backward()
    gradients, head.weight.grad = [states.grad, head.weight.grad], None
    return [each.detach().double() for each in (*found, *gradients)]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-5), (torch.bfloat16, 0.02)])
def test_kernels_give_torchs_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bound: float, temperature: float
) -> None:
    torch.manual_seed(0)
    head = nn.Linear(16, WORDS, bias=False).to(torch.bfloat16)  # what 16 bits hold, so that both begin alike
    expected = scored(head, torch.float64, temperature, 100)
    monkeypatch.setattr(logprobs, "why_not_one_pass", lambda head: None)
    whole = scored(head, dtype, temperature, 100)
    for one, two, three in zip(whole, scored(head, dtype, temperature, 2), expected, strict=True):
        assert (one - three).abs().max() < bound * three.abs().max()
        assert (one - two).abs().max() < bound * three.abs().max()
    assert expected[1][0] == pytest.approx(torch.tensor(WORDS).log()) and expected[1][3] < 0.6 * expected[1][1]
    with torch.no_grad():
        assert one_pass.why_not.__wrapped__(torch.device("cpu"), dtype) is None


def test_an_excluded_word_has_no_share_and_a_broken_logit_is_seen() -> None:
    weight = torch.tensor([[1.0], [-torch.inf], [2.0], [3.0]])
    with torch.no_grad():
        found, entropies = one_pass.score(torch.tensor([[1.0], [torch.nan]]), weight, torch.tensor([2, 0]), 1.0)
    table = torch.log_softmax(torch.tensor([1.0, 2.0, 3.0]), -1)
    assert found[0].item() == pytest.approx(table[1].item(), abs=1e-6)
    assert entropies[0].item() == pytest.approx(-(table.exp() * table).sum().item(), abs=1e-6)
    assert found[1].isnan() and entropies[1].isnan()


def test_a_wrong_kernel_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    right = one_pass.score
    monkeypatch.setattr(one_pass, "score", lambda *given: tuple(1.01 * each for each in right(*given)))
    assert one_pass.why_not.__wrapped__(torch.device("cpu"), torch.float32) == "the kernel gives other numbers here"


def test_heads_that_the_kernels_do_not_know_take_torchs_operators() -> None:
    hooked = nn.Linear(2, 3, bias=False)
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    reasons = [
        logprobs.why_not_one_pass(head) for head in (nn.Linear(2, 3), nn.ReLU(), hooked, nn.Linear(2, 3, bias=False))
    ]
    many = "the output head is more than one matrix"
    assert reasons == [many, many, "the output head has hooks", "the output head is not on a GPU"]
    assert one_pass.why_not(torch.device("cpu"), torch.float64) == "the kernel is not for torch.float64"
