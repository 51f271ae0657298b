"""How often the host waits for the GPU. A wait costs a launch queue: the GPU is idle until the host has caught up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pretend import Watch
from small_runs import tiny, trainer

from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Completion
from podsrl.update import Batch, make_batch

# Ceilings: lower them with the code, never raise them without a reason.
PER_DECODE_STEP = 7
PER_MICRO_BATCH = 35
PER_MICRO_BATCH_WITH_PENALTY = 58
PER_OPTIMIZER_STEP = 1
PER_SYNC = 3


@pytest.mark.parametrize("forward", ["fast", "model"])
def test_a_decode_step_waits_seldom(forward: Any) -> None:
    """Rollouts that stand on rows of their own, while none starts or ends."""
    engine = Engine(tiny("cuda", dtype=torch.float32), forward=forward)
    engine.submit([Request("a", (1, 2, 3), 4, Sampling(max_new_tokens=40))])
    for _ in range(8):
        engine.step()
    with Watch() as watch:
        assert engine.step() == []
    assert watch.num_waits <= PER_DECODE_STEP, watch.waits


def made_up_batch() -> Batch:
    """12 rows of 3 prompts, of 24 to 46 tokens."""
    prompts = [tuple(range(3, 13 + 2 * (i // 4))) for i in range(12)]
    lengths = [14 + 7 * i % 19 for i in range(12)]
    done = [
        Completion(
            request_id="a",
            index=i,
            token_ids=tuple(3 + j % 40 for j in range(length)),
            logprobs=(-2.0,) * length,
            finish_reason="stop",
            version=0,
        )
        for i, length in enumerate(lengths)
    ]
    return make_batch(prompts, done, torch.linspace(-1, 1, 12), pad_token_id=0)


@pytest.mark.parametrize(
    ("options", "ceiling"),
    [
        ((), PER_MICRO_BATCH),
        (("optim.packing=off",), PER_MICRO_BATCH),
        (("loss.kl_beta=0.05",), PER_MICRO_BATCH_WITH_PENALTY),
        (("lora.rank=4", "loss.kl_beta=0.05"), PER_MICRO_BATCH_WITH_PENALTY),
    ],
    ids=["packed", "padded", "penalty", "lora-penalty"],
)
def test_an_update_waits_seldom(options: tuple[str, ...], ceiling: int) -> None:
    run = trainer(*options, device="cuda", is_double=False)
    batch = made_up_batch()
    run.forward_backward(batch)  # once for what is found once
    with Watch() as watch:
        stats = run.forward_backward(batch)
    assert stats.num_micro_batches >= 3
    assert watch.num_waits <= ceiling * stats.num_micro_batches, watch.waits
    with Watch() as watch:
        run.optim_step()
    assert watch.num_waits <= PER_OPTIMIZER_STEP, watch.waits


def test_a_sync_waits_seldom() -> None:
    run = trainer("lora.rank=4", device="cuda", is_double=False)
    with Watch() as watch:
        run.sync()
    assert watch.num_waits <= PER_SYNC, watch.waits
