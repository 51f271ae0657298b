"""Peak memory of one update, in a process of its own: `python -m podsrl.bench.update_memory 64 0`.

Four questions with n rollouts each, of one length, so that every selection of 16 has the same tokens; then selection,
batch, forward and backward, and the optimizer's step. The kernel's high-water mark is reset before the batch is made.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import torch

from podsrl.bench.engine_models import shaped_model
from podsrl.config.schema import OptimConfig
from podsrl.select import RULES
from podsrl.types import Completion, Sample
from podsrl.update import ALGORITHMS, Updater, group_advantages, make_batch

NUM_PROMPTS, NUM_KEPT = 4, 16


def measure(num_rollouts: int, shape: str, prompt: int, answer: int) -> dict[str, int]:
    """Bytes that the process held before an update, and how many more at its peak."""
    draw = random.Random(0)
    words = range(4, 64)
    pools = [[_rollout(i, draw.choices(words, k=answer)) for i in range(num_rollouts)] for _ in range(NUM_PROMPTS)]
    rewards = torch.tensor([[draw.random() for _ in pool] for pool in pools], dtype=torch.float64)
    kept = RULES["max_variance"](rewards, NUM_KEPT)
    questions = [tuple(draw.choices(words, k=prompt)) for _ in pools]
    prompts = [question for question in questions for _ in range(NUM_KEPT)]
    chosen = [pool[int(i)] for pool, row in zip(pools, kept, strict=True) for i in row]
    advantages = group_advantages(rewards.gather(1, kept)).flatten().tolist()
    samples = [
        Sample(group_id="bench", prompt_ids=prompt, completion=done, advantage=advantage)
        for prompt, done, advantage in zip(prompts, chosen, advantages, strict=True)
    ]
    updater = Updater(shaped_model(shape), OptimConfig(lr=1e-4), loss=ALGORITHMS["grpo"].loss)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    updater.forward_backward(make_batch(samples, pad_token_id=0))
    updater.optim_step()
    return {"num_rollouts": num_rollouts, "held_bytes": before, "update_bytes": _status("VmHWM") - before}


def _rollout(index: int, tokens: list[int]) -> Completion:
    logprobs = (-4.0,) * len(tokens)
    return Completion(
        request_id="bench", index=index, token_ids=tuple(tokens), logprobs=logprobs, finish_reason="length", version=0
    )


def _status(field: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: peak memory is measured on Linux only")
    return int(found[1]) * 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    sizes = ("s128", 12, 8) if sys.argv[2] == "1" else ("s384", 64, 64)
    print(json.dumps(measure(int(sys.argv[1]), *sizes)))
