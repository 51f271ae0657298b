"""How often the host waits for the GPU, which is idle afterwards until the next operators have been sent to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pretend import Watch
from small_runs import tiny, trainer

from podsrl.generate import Engine, Request, Sampling

# Ceilings: lower them with the code, never raise them without a reason.
PER_DECODE_STEP = 1
PER_UPDATE: dict[str, tuple[tuple[str, ...], int, int]] = {  # its options, waits of the whole, and of each micro-batch
    "packed": ((), 1, 0),
    "padded": (("optim.packing=off",), 1, 1),
    "penalty": (("loss.kl_beta=0.05",), 1, 0),
    "lora-penalty": (("lora.rank=4", "loss.kl_beta=0.05"), 1, 0),
}
PER_OPTIMIZER_STEP = 1
PER_SYNC = 3


@pytest.mark.parametrize("forward", ["fast", "model"])
def test_a_decode_step_waits_seldom(forward: Any) -> None:
    """Rollouts that stand on rows of their own, while none starts or ends."""
    engine = Engine(tiny("cuda", dtype=torch.float32), forward=forward)
    engine.submit([Request("a", (1, 2, 3), 4, Sampling(max_new_tokens=40, stop_token_ids=()))])
    for _ in range(8):
        engine.poll()
    with Watch() as watch:
        assert engine.poll() == []
    assert watch.num_waits <= PER_DECODE_STEP, watch.waits


@pytest.mark.parametrize("case", PER_UPDATE)
def test_an_update_waits_seldom(case: str) -> None:
    options, whole, each = PER_UPDATE[case]
    run = trainer("optim.micro_batch_tokens=60", *options, device="cuda", is_double=False)
    groups = run.sample().groups
    selections = run.choose(groups)
    samples = run.credit(groups, selections)
    with Watch() as watch:
        batch = run.learner.make_batch(samples)  # the trainer's own verbs also wait for the clock of their stage
        assert batch is not None
        stats = run.learner.forward_backward(batch)
    assert stats.num_micro_batches >= 4
    assert watch.num_waits <= whole + each * stats.num_micro_batches, watch.waits
    with Watch() as watch:
        run.learner.optim_step()
    assert watch.num_waits <= PER_OPTIMIZER_STEP, watch.waits


def test_a_sync_waits_seldom() -> None:
    run = trainer("lora.rank=4", device="cuda", is_double=False)
    run.sync()  # once for what is found once
    with Watch() as watch:
        run.learner.publish(run.engine)
    assert watch.num_waits <= PER_SYNC, watch.waits
