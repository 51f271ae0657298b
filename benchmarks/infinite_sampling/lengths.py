"""Three sets of rollout lengths for the scheduling benchmark.

    gsm8k     tokens of GSM8K's solutions (`record_gsm8k.py`): a group is G questions' solutions; a predictor sees
              counts from the question and from the solution's first 32 tokens
    skewed    geometric with mean 20, cut at 128: memoryless, so nothing that is seen can predict the rest
    demo      `builtin:arithmetic`, sampled now: a group is G rollouts of one question; a predictor sees the model's
              last hidden state, mean log-probability and entropy after the first tokens

Each set has rollouts to learn from and groups to measure, without a rollout in common; within both, a rollout is
predicted before it is learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.infinite_sampling.predict import Features
from podsrl.generate.schedule.job import Job

NUM_GROUPS = 5


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded rollout."""

    request_id: str
    prompt_length: int
    length: int
    """New tokens."""
    features: tuple[float, ...] = ()
    """What a predictor sees at the probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSet:
    """Recorded rollouts of one kind."""

    name: str
    max_new_tokens: int
    probe_at: int | None
    """Tokens after which the features are known; None: there are none."""
    learned: Sequence[Recorded]
    """What predictors have learned from before the first group."""
    groups: Sequence[Sequence[Recorded]]

    def jobs(self, group: Sequence[Recorded]) -> list[Job]:
        """New jobs for a group, in its order."""
        return [
            Job(row.request_id, place, row.prompt_length, self.max_new_tokens, order=place)
            for place, row in enumerate(group)
        ]

    def features_of(self, group: Sequence[Recorded], jobs: Sequence[Job]) -> Callable[[Sequence[Job]], Features]:
        """The features that a probe of these jobs shows."""
        rows = dict(zip(jobs, group, strict=True))
        return lambda probed: np.array([rows[job].features for job in probed], dtype=np.float32)


def gsm8k_set(group_size: int) -> LengthSet:
    """Five random groups of GSM8K's test split, with its train split to learn from."""
    data = dict(np.load(Path(__file__).with_name("gsm8k_lengths.npz")))
    train, test = (_gsm8k_rows(data, split) for split in ("train", "test"))
    draw = np.random.default_rng(0)
    picked = [draw.choice(len(test), size=group_size, replace=False).tolist() for _ in range(NUM_GROUPS)]
    groups = [[test[i] for i in places] for places in picked]
    return LengthSet(name="gsm8k", max_new_tokens=512, probe_at=32, learned=train, groups=groups)


def _gsm8k_rows(data: dict[str, Any], split: str) -> list[Recorded]:
    prompts, lengths = data[f"{split}_prompt"].tolist(), data[f"{split}_length"].tolist()
    known = np.concatenate([data[f"{split}_known_at_prompt"], data[f"{split}_known_at_32"]], axis=1).tolist()
    rows = zip(prompts, lengths, known, strict=True)
    return [Recorded(f"{split}/{i}", prompt, length, tuple(seen)) for i, (prompt, length, seen) in enumerate(rows)]


def skewed_set(group_size: int) -> LengthSet:
    """Geometric lengths, mean 20, cut at 128, prompts of 16 tokens, five groups."""
    lengths = np.minimum(np.random.default_rng(0).geometric(1 / 20, size=NUM_GROUPS * group_size), 128)
    rows = [Recorded("skewed", 16, length) for length in lengths.tolist()]
    return LengthSet(name="skewed", max_new_tokens=128, probe_at=None, learned=(), groups=_cut(rows, group_size))


def demo_set(group_size: int) -> LengthSet:
    """Five held-out questions of the demo, `group_size` rollouts each; 16 others, 64 each, to learn from."""
    from benchmarks.infinite_sampling.demo_lengths import PROBE_AT, record_demo

    learned = record_demo(range(NUM_GROUPS, NUM_GROUPS + 16), 64)
    rows = record_demo(range(NUM_GROUPS), group_size)
    groups = _cut(rows, group_size)
    return LengthSet(name="demo", max_new_tokens=48, probe_at=PROBE_AT, learned=learned, groups=groups)


SETS: dict[str, Callable[[int], LengthSet]] = {"gsm8k": gsm8k_set, "skewed": skewed_set, "demo": demo_set}


def _cut(rows: Sequence[Recorded], size: int) -> list[Sequence[Recorded]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
