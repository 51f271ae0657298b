"""Shared prompts in bfloat16: what many completions give back to one prompt is not lost in a 16-bit sum."""

from types import SimpleNamespace

import pytest
import torch

from made import sample
from podsrl.update import make_batch
from podsrl.update.packed.attention import KEYWORD, packed_attention
from podsrl.update.packed.build import lay_out
from podsrl.update.packed.gather import gather_rows


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_a_row_gathered_many_times_gets_the_whole_sum(device: str) -> None:
    states = torch.zeros(2, 3, dtype=torch.bfloat16, device=device, requires_grad=True)
    gather_rows(states, torch.ones(1024, dtype=torch.int64, device=device)).sum().backward()
    assert states.grad is not None and states.grad.dtype == torch.bfloat16
    assert states.grad.tolist() == [[0.0] * 3, [1024.0] * 3]  # a sum in bfloat16 ends at 256, where 256 + 1 is 256


@pytest.mark.parametrize("by_torch", [True, False], ids=["torch's gradient", "own gradient"])
def test_a_prompt_gets_the_gradients_of_its_completions_in_all_blocks(
    by_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_torch:
        monkeypatch.setattr("podsrl.update.packed.attention._cpu_flash", None)
    monkeypatch.setattr(
        "podsrl.update.packed.build.MASK_ELEMENTS", 1
    )  # a block for each row, as prompts of two lengths are
    samples = [sample(prompt, (3, 4)) for prompt in [(2,)] * 511 + [(5, 6)]]
    layout = lay_out(make_batch(samples, pad_token_id=0), shared=True)
    assert len(layout.blocks) > 511
    size = 1, 2, len(layout.source), 4
    query, key = (torch.zeros(size, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    value = torch.ones(size, dtype=torch.bfloat16, requires_grad=True)
    result, _ = packed_attention(SimpleNamespace(), query, key, value, None, **{KEYWORD: layout})
    result.sum().backward()
    # Without scores attention is a mean: a prompt counts whole for itself, and half for each of its 511 completions.
    assert value.grad is not None
    assert (
        value.grad[0, :, 0].tolist() == [[256.0] * 4] * 2
    )  # 256.5; a sum in bfloat16 ends at 128, where a half is lost
    assert value.grad[0, :, 3:-1].tolist() == [[[0.5] * 4] * 511] * 2
