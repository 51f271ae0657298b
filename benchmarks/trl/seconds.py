"""Seconds of an update and of a whole step, ours and TRL's, in turns on the same model, prompts and rewards.

TRL runs in its own training loop, timed by its own callback around one optimizer step. Each side first picks the
fastest of several batch sizes for itself.
"""

from __future__ import annotations

import copy
import json
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from benchmarks.timing import Clock, Say, Taken, ratios, take_turns
from benchmarks.trl.losses import generate, our_batch, trl_inputs
from benchmarks.trl.setup import Scene, StepClock, grpo_trainer, quiet, share_of_vowels
from podsrl.config.load import load_config
from podsrl.config.schema import OptimConfig
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.types import Rollout
from podsrl.update import ALGORITHMS, Updater

if TYPE_CHECKING:
    from benchmarks.trl.step import StepSizes

Json = dict[str, Any]
Arm = Callable[[], Taken]
"""Does one update or step and returns what it took."""
Setting = TypeVar("Setting", int, str)
OURS, TRL = "podsrl", "TRL"
WITHOUT: dict[str, dict[str, Any]] = {
    "prompts not shared": {"prefix_sharing": "off"},
    "padded rows": {"prefix_sharing": "off", "packing": "off"},
}
"""Our update with less of what makes it fast, measured once."""
_LR = 1e-6
_BETAS = (0.9, 0.999)
_REWARD = "benchmarks.trl.setup:share_of_vowels"


def measure_update(scene: Scene, sizes: StepSizes, say: Say) -> Json:
    """Log-probabilities, loss, backward, clipping and AdamW on the same tokens."""
    completions = generate(scene)
    rewards = rewards_of(scene, completions)
    ours = best_setting({size: our_update(scene, completions, rewards, size) for size in sizes.tokens}, say, OURS)
    theirs = best_setting({rows: trl_update(scene, completions, rewards, rows) for rows in sizes.rows}, say, TRL)
    taken = take_turns(by_round({OURS: ours.arm, TRL: theirs.arm}), sizes.rounds, say)
    without = {name: our_update(scene, completions, rewards, ours.setting, **off)() for name, off in WITHOUT.items()}
    return {
        "micro_batch_tokens": ours.setting,
        "trl_rows": theirs.setting,
        "prompt_tokens": statistics.mean(map(len, scene.prompts)),
        "completion_tokens": statistics.mean(len(done.token_ids) for done in completions),
        "longest_completion": max(len(done.token_ids) for done in completions),
        "tried_cpu_seconds": {OURS: ours.tried, TRL: theirs.tried},
        "without_cpu_seconds": {name: found.cpu_seconds for name, found in without.items()},
        **compared(taken, OURS),
    }


def measure_step(scene: Scene, update: Mapping[str, Any], sizes: StepSizes, say: Say) -> Json:
    """Generate, score, update: a whole step of each side's own loop, with the micro-batches that `update` chose.

    TRL generates in the faster of its ways that need no server: transformers' `generate`, or its continuous batching.
    """
    ways: dict[str, Json] = {"generate": {"generation": "generate"}}
    for size in sizes.batch_tokens:
        ways[f"continuous batching, {size} tokens"] = {"generation": "continuous batching", "batch_tokens": size}
    theirs = best_setting(
        {name: timed(_trainer(scene, update["trl_rows"], way)) for name, way in ways.items()}, say, TRL
    )
    with tempfile.TemporaryDirectory() as folder:
        ours = _our_step(scene, update["micro_batch_tokens"], Path(folder))
        taken = take_turns(by_round({OURS: ours, f"{TRL}, {theirs.setting}": theirs.arm}), sizes.rounds, say)
    return {"tried_cpu_seconds": theirs.tried, **compared(taken, OURS)}


def our_update(
    scene: Scene,
    completions: Sequence[Rollout],
    rewards: Sequence[Sequence[float]],
    micro_batch_tokens: int,
    **layout: Any,
) -> Arm:
    batch = our_batch(scene, completions, rewards, "grpo")
    updater = Updater(
        copy.deepcopy(scene.model),
        OptimConfig(lr=_LR, betas=_BETAS, micro_batch_tokens=micro_batch_tokens, **layout),
        loss=ALGORITHMS["grpo"].loss,
    )

    def arm() -> Taken:
        clock = Clock()
        updater.forward_backward(batch)
        updater.optim_step()
        return clock.read()

    return arm


def trl_update(
    scene: Scene, completions: Sequence[Rollout], rewards: Sequence[Sequence[float]], rows_at_once: int
) -> Arm:
    """TRL's own loop, with the rollouts given."""
    trainer = _trainer(scene, rows_at_once, {"completions": [done.token_ids for done in completions]})
    with quiet():
        inputs = trl_inputs(trainer, scene)
    trainer._generate_and_score_completions = lambda rows: dict(inputs)
    return timed(trainer)


def _trainer(scene: Scene, rows_at_once: int, options: Mapping[str, Any]) -> Any:
    own = replace(scene, model=copy.deepcopy(scene.model))
    adam: dict[str, Any] = {"adam_beta1": _BETAS[0], "adam_beta2": _BETAS[1], "weight_decay": 0.0, "max_grad_norm": 1.0}
    return grpo_trainer(own, rows_at_once=rows_at_once, loss_type="grpo", **adam, **options)


def timed(trainer: Any) -> Arm:
    clock = StepClock()
    trainer.add_callback(clock)

    def arm() -> Taken:
        with quiet():
            trainer.train()
        return clock.taken

    return arm


def _our_step(scene: Scene, micro_batch_tokens: int, folder: Path) -> Arm:
    """A step of our own loop: all n rollouts are kept, as TRL keeps them."""
    file = folder / "questions.jsonl"
    held_out = {"question": "unused", "answer": "-"}
    rows = [held_out, *({"question": prompt, "answer": "-"} for prompt in scene.prompts)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    config = load_config(None, [f"{key}={json.dumps(value)}" for key, value in {
        "task.name": "jsonl",
        "task.path": str(file),
        "task.num_eval": 1,
        "task.correct": _REWARD,
        "rollouts.num_prompts": len(scene.prompts),
        "rollouts.num_rollouts": scene.num_rollouts,
        "rollouts.max_new_tokens": scene.max_new_tokens,
        "select.num_kept": scene.num_rollouts,
        "optim.lr": _LR,
        "optim.betas": list(_BETAS),
        "optim.micro_batch_tokens": micro_batch_tokens,
        "threads": torch.get_num_threads(),
    }.items()])  # fmt: skip
    rewards = config.task.model_copy(update={"rewards": {_REWARD: 1.0}})
    trainer = Trainer(
        config.model_copy(update={"task": rewards}), model=copy.deepcopy(scene.model), tokenizer=scene.tokenizer
    )

    def arm() -> Taken:
        clock = Clock()
        training_step(trainer)
        return clock.read()

    arm()  # warm
    return arm


@dataclass(frozen=True, slots=True)
class Best(Generic[Setting]):
    """The setting with the least processor time."""

    setting: Setting
    arm: Arm
    """Warm."""
    tried: Mapping[Setting, float]
    """Processor seconds of the first run with each setting."""


def best_setting(arms: Mapping[Setting, Arm], say: Say, name: str) -> Best[Setting]:
    tried: dict[Setting, float] = {}
    for setting, arm in arms.items():
        say(f"{name}: trying {setting}")
        tried[setting] = arm().cpu_seconds
    setting = min(tried, key=lambda key: tried[key])
    return Best(setting, arms[setting], tried)


def by_round(arms: Mapping[str, Arm]) -> dict[str, Callable[[int], Taken]]:
    """The same arms, as functions of the round."""
    return {name: partial(_run, arm) for name, arm in arms.items()}


def _run(arm: Arm, number: int) -> Taken:
    return arm()


def compared(taken: Mapping[str, Sequence[Taken]], ours: str) -> Json:
    """Medians, and the ratio of `ours` to the other arm, taken within a round."""
    seconds = {name: [one.seconds for one in found] for name, found in taken.items()}
    cpu_seconds = {name: [one.cpu_seconds for one in found] for name, found in taken.items()}
    [peer] = [name for name in taken if name != ours]
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "median_seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "median_cpu_seconds": {name: statistics.median(values) for name, values in cpu_seconds.items()},
        "peer": peer,
        "ratio": ratios(seconds[ours], seconds[peer]),
        "cpu_ratio": ratios(cpu_seconds[ours], cpu_seconds[peer]),
    }


def rewards_of(scene: Scene, completions: Iterable[Rollout]) -> list[list[float]]:
    ids = [done.token_ids for done in completions]
    flat = share_of_vowels(scene.tokenizer.batch_decode(ids, skip_special_tokens=True))
    return [flat[i : i + scene.num_rollouts] for i in range(0, len(flat), scene.num_rollouts)]
