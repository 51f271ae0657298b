"""Peak memory of one update, in a process of its own; `update.py` starts `python -m benchmarks.update_memory 64 0`.

There are four questions with n rollouts each, all of one length, so that every selection of 16 has as many tokens. The
kernel's high-water mark is reset after the selection; then follow the batch, forward and backward, and the optimizer's
step.
"""

from __future__ import annotations

import json
import random
import sys

import torch

from benchmarks.models import batch_of, shaped_model, uniform_completion
from podsrl.config.schema import OptimConfig
from podsrl.errors import PodsError
from podsrl.lib.machine import peak_bytes, start_peak
from podsrl.select import max_variance
from podsrl.update import ALGORITHMS, Updater, group_advantages

NUM_PROMPTS, NUM_KEPT = 4, 16
CPU = torch.device("cpu")


def measure(num_rollouts: int, shape: str, prompt: int, answer: int) -> dict[str, int]:
    """Bytes that the process held before an update, and how many more at its peak."""
    draw = random.Random(0)
    words = range(4, 64)
    pools = [
        [uniform_completion(i, draw.choices(words, k=answer)) for i in range(num_rollouts)] for _ in range(NUM_PROMPTS)
    ]
    rewards = torch.tensor([[draw.random() for _ in pool] for pool in pools], dtype=torch.float64)
    kept = max_variance(rewards, NUM_KEPT)
    questions = [tuple(draw.choices(words, k=prompt)) for _ in pools]
    prompts = [question for question in questions for _ in range(NUM_KEPT)]
    chosen = [pool[int(i)] for pool, row in zip(pools, kept, strict=True) for i in row]
    advantages = group_advantages(rewards.gather(1, kept)).flatten().tolist()
    updater = Updater(shaped_model(shape), OptimConfig(lr=1e-4), loss=ALGORITHMS["grpo"].loss)
    start_peak(CPU)
    before = peak_bytes(CPU)
    updater.forward_backward(batch_of(prompts, chosen, advantages))
    updater.optim_step()
    after = peak_bytes(CPU)
    if before is None or after is None:
        raise PodsError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")
    return {"num_rollouts": num_rollouts, "held_bytes": before, "update_bytes": after - before}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sizes = ("s128", 12, 8) if sys.argv[2] == "1" else ("s384", 64, 64)
    print(json.dumps(measure(int(sys.argv[1]), *sizes)))
