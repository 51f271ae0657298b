"""A run folder and a compare folder, small enough to check by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIG = """seed = 7
[model]
path = "builtin:arithmetic"
[task]
name = "arithmetic"
[rollouts]
num_prompts = 2
num_rollouts = 4
[select]
rule = "max_variance"
num_kept = 2
[loss]
name = "grpo"
[optim]
lr = 0.0003
"""

Evaluation = tuple[int, float, float]


def step_line(step: int, **changes: Any) -> dict[str, Any]:
    """A step of 2 groups of 4 rollouts: 1.5 s, 80 generated tokens, of which 40 trained."""
    return {
        "step": step,
        "version": step,
        "seconds/generate": 0.5,
        "seconds/score": 0.1,
        "seconds/select": 0.0,
        "seconds/update": 0.6,
        "seconds/sync": 0.1,
        "seconds/record": 0.05,
        "seconds/total": 1.5,
        "seconds/train_elapsed": 1.5 * step,
        "tokens/prompt": 12,
        "tokens/generated": 80,
        "tokens/trained": 40,
        "tokens/discarded": 30,
        "tokens/skipped": 10,
        "reward/all": 0.25 * step,
        "reward/kept": 0.5,
        "reward_std/all": 0.4,
        "reward_std/kept": 0.7,
        "accuracy/all": 0.2 * step,
        "rollouts/all": 8,
        "rollouts/truncated": 2,
        "rollouts/invalid": 2,
        "groups/all": 2,
        "groups/zero_signal": 1,
        "groups/invalid": 0,
        "length/all": 10.0,
        "length/kept": 12.5,
        "loss": 0.0,
        "grad_norm": 1.0,
        "entropy": 0.5,
        "kl": None,
        "clip_fraction": 0.0,
        "logprob_gap": 0.001,
        "memory/peak_generate_bytes": 1000,
        "memory/peak_update_bytes": None,
    } | changes


def evaluation_line(step: int, seconds: float, accuracy: float) -> dict[str, Any]:
    return {
        "step": step,
        "eval/accuracy": accuracy,
        "eval/num_samples": 8,
        "seconds/train_elapsed": seconds,
        "seconds/eval": 0.3,
    }


def rollout_entry(index: int, reward: float | None, **changes: Any) -> dict[str, Any]:
    """A dropped rollout; give kept=True and an advantage for a kept one."""
    return {
        "index": index,
        "text": f"text {index}",
        "reward": reward,
        "parts": {"correct": reward},
        "is_correct": reward == 1.0,
        "invalid_reason": None,
        "num_tokens": 10 + index,
        "finish_reason": "stop",
        "kept": False,
        "drop_reason": "not_selected",
        "advantage": None,
    } | changes


def kept(advantage: float) -> dict[str, Any]:
    return {"kept": True, "drop_reason": None, "advantage": advantage}


def group_line(step: int, name: str = "7+5", **changes: Any) -> dict[str, Any]:
    """Four rollouts: one right and kept, one wrong and kept, one wrong and dropped, one invalid."""
    invalid = {"invalid_reason": "correct raised ValueError", "drop_reason": "invalid", "finish_reason": "length"}
    return {
        "step": step,
        "group": f"s{step}/{name}",
        "task": {"id": name, "prompt": f"What is {name}?", "answer": "12", "columns": {}},
        "rollouts": [
            rollout_entry(0, 0.0, **kept(-0.707)),
            rollout_entry(1, None, **invalid),
            rollout_entry(2, 1.0, **kept(0.707)),
            rollout_entry(3, 0.1),
        ],
    } | changes


def write_run(
    folder: Path,
    *,
    steps: Sequence[Mapping[str, Any]] | None = None,
    evaluations: Sequence[Evaluation] = ((0, 0.0, 0.1), (1, 1.5, 0.3), (2, 3.0, 0.5)),
    groups: Sequence[Mapping[str, Any]] | None = None,
    config: str = CONFIG,
    tail: str = "",
) -> Path:
    """Write a run folder of two steps; `tail` is put after the last whole line of metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [step_line(1), step_line(2)] if steps is None else list(steps)
    written = [evaluation_line(*evaluation) for evaluation in evaluations] + lines
    written.sort(key=lambda line: (line["step"], "eval/accuracy" in line))
    (folder / "config.toml").write_text(config)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written) + tail)
    recorded = [group_line(1)] if groups is None else groups
    (folder / "groups.jsonl").write_text("".join(json.dumps(line) + "\n" for line in recorded))
    return folder


def write_comparison(
    folder: Path,
    *,
    hardware: str = "a laptop, 2 cores",
    slow: str = "grpo",
    fast: str = "pods",
    costs: Sequence[str] = (),
) -> Path:
    """Two arms of two seeds; the fast one is at 99 % of the slow one's best in half the time."""
    curves = {
        slow: ((0, 0.0, 0.1), (1, 10.0, 0.3), (2, 20.0, 0.8)),
        fast: ((0, 0.0, 0.1), (1, 10.0, 0.8), (2, 20.0, 0.9)),
    }
    for number, evaluations in enumerate(curves.values()):
        for seed in (3, 4):
            shifted = [(step, seconds, accuracy + (seed - 3) * 0.05) for step, seconds, accuracy in evaluations]
            write_run(folder / "runs" / f"{number}-{seed}", evaluations=shifted)
    speedup = {
        slow: {"point": 1.0, "low": 1.0, "high": 1.0, "share_unreached": 0.0},
        fast: {"point": 2.0, "low": 1.5, "high": 2.5, "share_unreached": 0.125},
    }
    result = {
        "clock": "seconds",
        "unequal_pace": None,
        "learned": dict.fromkeys(curves, True),
        "not_learned": None,
        "why_not_learned": {},
        "prices": {},
        "metric": "accuracy",
        "arms": {arm: {"seeds": [3, 4], "runs": [f"runs/{i}-3", f"runs/{i}-4"]} for i, arm in enumerate(curves)},
        "baseline": slow,
        "fraction": 0.99,
        "grid_seconds": {arm: [0, 10, 20] for arm in curves},
        "mean_accuracy": {},
        "speedup": speedup,
        "speedup_over": {slow: speedup},
        "seconds_to": {"0.8": {slow: 20.0, fast: 10.0}, "0.9": {slow: None, fast: 20.0}},
        "costs": {
            cost: {arm: {"total": 20.0, "to_target": 10.0, "saving": speedup[arm]} for arm in curves} for cost in costs
        },
        "signal": {
            arm: dict.fromkeys(("zero_signal", "all_wrong", "all_wrong_early", "mixed_per_100")) for arm in curves
        },
        "hardware": hardware,
    }
    (folder / "compare.json").write_text(json.dumps(result))
    return folder
