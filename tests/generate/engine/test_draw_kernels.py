"""The kernels of the draw in Triton's interpreter (`make device`), beside torch's draw."""

from __future__ import annotations

import pytest
import torch

from podsrl.generate import Sampling
from podsrl.generate.engine.sampler import draw

draw_kernels = pytest.importorskip(
    "podsrl.generate.engine.draw_kernels", reason="Triton is not installed (make device)"
)


@pytest.mark.parametrize(("words", "scale", "temperature"), [(300, 2.0, 1.3), (4096, 3.0, 1.0), (9000, 1.0, 0.7)])
@pytest.mark.parametrize("share", [False, True], ids=["own rows", "shared rows"])
def test_they_draw_what_torch_draws(words: int, scale: float, temperature: float, share: bool) -> None:
    """Where two tokens meet to within float32's rounding, either is right."""
    generator = torch.Generator().manual_seed(words)
    logits = torch.randn(12, words, generator=generator) * scale
    logits[:, words // 3 : words // 2] = -torch.inf  # masked
    logits[0], logits[1, 5], logits[2, words - 1] = -torch.inf, torch.nan, torch.inf
    logits[3] = -torch.inf
    logits[3, 7] = torch.nan
    logits[4] = -torch.inf
    logits[4, words - 2] = 1.0
    row_of = torch.randint(12, (20,), generator=generator) if share else None
    uniform = torch.rand(20 if share else 12, dtype=torch.float64, generator=generator)
    tokens, logprobs = draw_kernels.draw_unfiltered(logits, row_of, uniform, temperature)
    wanted = draw(logits, row_of, uniform, Sampling(temperature=temperature))
    sums = logits.float().div(temperature).softmax(-1).double().cumsum(-1)
    for i in range(len(uniform)):
        row = int(row_of[i]) if row_of is not None else i
        if tokens[i] != wanted.tokens[i]:
            first = min(int(tokens[i]), int(wanted.tokens[i]))
            assert sums[row, first] == pytest.approx(float(uniform[i]), abs=1e-6)
        else:
            assert float(logprobs[i]) == pytest.approx(float(wanted.logprobs[i]), abs=1e-5, nan_ok=True)
    assert bool(logprobs.isnan().any())
