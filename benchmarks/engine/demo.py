"""The cost of n in the recipe `pods`: seconds to generate 64 and 16 rollouts per question, as a policy concentrates."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.timing import Clock, Say, ratios
from podsrl.config.load import load_config
from podsrl.generate import Request, Sampling
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer

NUM_ROLLOUTS = (64, 16)


def measure_demo(stages: Sequence[int], repeats: int, say: Say) -> list[dict[str, Any]]:
    """Train the recipe `pods` and measure after each of `stages` training steps, ascending.

    Each of the `repeats` timings has its own questions, the same for every n. One dict per stage: step, ratio of the
    seconds (64 over 16), and for each n the median seconds and tokens, and the tokens that decode steps forward per
    token made: under 1 where rollouts with the same tokens so far share a row.
    """
    trainer = Trainer(load_config("pods", ["threads=1"]))
    found = []
    for stage in stages:
        while trainer.progress.step < stage:
            say(f"demo: training step {trainer.progress.step + 1} of {max(stages)}")
            training_step(trainer)
        say(f"demo: generating at step {stage}")
        found.append({"step": stage} | _measure_stage(trainer, repeats))
    return found


def _measure_stage(trainer: Trainer, repeats: int) -> dict[str, Any]:
    seconds: dict[int, list[float]] = {n: [] for n in NUM_ROLLOUTS}
    tokens: dict[int, list[int]] = {n: [] for n in NUM_ROLLOUTS}
    forwards: dict[int, list[int]] = {n: [] for n in NUM_ROLLOUTS}
    engine: Any = trainer.engine
    for repeat in range(-1, repeats):
        for n in NUM_ROLLOUTS if repeat % 2 else NUM_ROLLOUTS[::-1]:
            before = engine.stats.forwarded
            clock = Clock()
            made = _generate(trainer, n, repeat)
            spent = clock.read().seconds
            if repeat >= 0:  # the first one warms up
                seconds[n].append(spent)
                tokens[n].append(made)
                forwards[n].append(engine.stats.forwarded - before)
    return _summary(seconds, tokens, forwards)


def _generate(trainer: Trainer, num_rollouts: int, repeat: int) -> int:
    """Generate the completions of one step; returns their number of tokens."""
    options = trainer.config.rollouts
    first = (repeat + 1) * options.num_prompts
    tasks = [trainer.tasks.train[i] for i in range(first, first + options.num_prompts)]
    sampling = Sampling(max_new_tokens=options.max_new_tokens, stop_token_ids=trainer.stop_token_ids)
    requests = [
        Request(f"{trainer.progress.step}/{repeat}/{i}", trainer.desk.prompt_ids(task), num_rollouts, sampling)
        for i, task in enumerate(tasks)
    ]
    return sum(len(completion.token_ids) for completion in trainer.engine.generate(requests))


def _summary(
    seconds: dict[int, list[float]], tokens: dict[int, list[int]], forwards: dict[int, list[int]]
) -> dict[str, Any]:
    many, few = NUM_ROLLOUTS
    result: dict[str, Any] = {"ratio": ratios(seconds[many], seconds[few])}
    for n in NUM_ROLLOUTS:
        result[f"seconds_{n}"] = statistics.median(seconds[n])
        result[f"tokens_{n}"] = statistics.median(tokens[n])
        result[f"forwards_per_token_{n}"] = sum(forwards[n]) / sum(tokens[n])
    return result
