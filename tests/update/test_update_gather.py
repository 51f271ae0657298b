"""Shared prompts in bfloat16: what many completions give back to one prompt is not lost in a 16-bit sum."""

from types import SimpleNamespace

import pytest
import torch

from podsrl.types import Completion
from podsrl.update import make_batch
from podsrl.update.attention import KEYWORD, packed_attention
from podsrl.update.gather import gather_rows
from podsrl.update.lay_out import lay_out


def test_a_row_gathered_many_times_gets_the_whole_sum() -> None:
    states = torch.zeros(2, 3, dtype=torch.bfloat16, requires_grad=True)
    gather_rows(states, torch.ones(1024, dtype=torch.int64)).sum().backward()
    assert states.grad is not None and states.grad.dtype == torch.bfloat16
    assert states.grad.tolist() == [[0.0] * 3, [1024.0] * 3]  # a sum in bfloat16 ends at 256, where 256 + 1 is 256


@pytest.mark.parametrize("by_torch", [True, False], ids=["torch's gradient", "own gradient"])
def test_a_prompt_gets_the_gradients_of_all_its_completions(by_torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_torch:
        monkeypatch.setattr("podsrl.update.attention._cpu_flash", None)
    row = Completion(request_id="r", index=0, token_ids=(3, 4), logprobs=(-1.0, -1.0), finish_reason="stop", version=0)
    batch = make_batch([(2,)] * 1024, [row] * 1024, torch.ones(1024), pad_token_id=0)
    layout = lay_out(batch, shared=True).with_masks(torch.bfloat16)
    size = 1, 2, len(layout.source), 4
    query, key = (torch.zeros(size, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    value = torch.ones(size, dtype=torch.bfloat16, requires_grad=True)
    result, _ = packed_attention(SimpleNamespace(), query, key, value, None, **{KEYWORD: layout})
    result.sum().backward()
    # Without scores attention is a mean: the prompt counts whole for itself, and half for each of 1024 completions.
    assert value.grad is not None
    assert value.grad[0, :, 0].tolist() == [[512.0] * 4] * 2  # 513; a sum in bfloat16 ends at 128, where a half is lost
    assert value.grad[0, :, 1:].tolist() == [[[0.5] * 4] * 1024] * 2
