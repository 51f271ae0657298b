"""What "auto" becomes where there is a GPU, and a run with it."""

from __future__ import annotations

import math

import torch
from small_runs import STEP, taken_step

from podsrl.config.load import load_config
from podsrl.run.step.trainer import Trainer


def test_a_run_on_a_gpu_computes_in_bfloat16_and_says_why() -> None:
    auto = ("model.dtype=auto", "rollouts.generator=auto", "model.device=cuda", "lora.rank=4")
    run = Trainer(load_config("pods", [*STEP, *auto]))
    assert run.config.model.dtype == "bfloat16" and run.model.dtype == torch.bfloat16
    assert run.choices[0].endswith("'bfloat16' here: the GPU computes in it")
    assert run.config.rollouts.generator in run.choices[1]
    assert math.isfinite(taken_step(run)["grad_norm"])
    run.close()
