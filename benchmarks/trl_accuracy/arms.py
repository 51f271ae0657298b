"""The arms: TRL's GRPOTrainer, PODS in TRL, and podsrl itself, on the demo's task and model.

All have the same questions in each step, rewards, temperature, token limit, loss and AdamW, and so differ by how they
generate, choose and update.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import PrinterCallback, TrainerCallback

from benchmarks.our_arm import OurArm
from benchmarks.timing import Clock, Taken
from benchmarks.trl.setup import Generation, plain_settings
from benchmarks.trl_accuracy.turns import Arm, Stepwise
from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig
from podsrl.lib.seeds import derive
from podsrl.policy import load_model, load_tokenizer
from podsrl.run.before.data import load_task_set
from podsrl.run.evaluate import evaluate
from podsrl.run.step.trainer import Trainer
from podsrl.score import REWARDS
from podsrl.sync import sync_weights
from podsrl.tasks.stream import Stream
from podsrl.types import Task

_SHORTEST_STEP_SECONDS = 0.02
"""No step of TRL is shorter; decides how many questions its data set has."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What trains, and on how many rollouts per question."""

    trainer: Literal["podsrl", "TRL"]
    num_rollouts: int
    num_kept: int


@dataclass(frozen=True, slots=True)
class Way:
    """How TRL computes; the weights do not depend on it, but for rounding and random numbers."""

    rows_at_once: int
    """Generated rollouts per micro-batch."""
    generation: Generation = "generate"
    batch_tokens: int | None = None


class TrlArm:
    """TRL's own training loop, which stands still between two optimizer steps."""

    def __init__(self, sizes: Sizes, way: Way, *, seed: int, budget: float) -> None:
        trainer = trl_trainer(sizes, way, seed=seed, num_steps=math.ceil(budget / _SHORTEST_STEP_SECONDS))
        self.model = trainer.model
        self._training = Stepwise(trainer.train, "TRL")
        trainer.add_callback(_PauseBetweenSteps(self._training))
        try:
            self._training.go_on()  # to the first step
        except BaseException:  # Ctrl-C, too: no thread is left behind
            self.close()
            raise

    def step(self) -> Taken:
        clock = Clock()
        self._training.go_on()
        return clock.read()

    def close(self) -> None:
        self._training.close()


def new_arm(sizes: Sizes, way: Way | None, *, seed: int, budget: float) -> Arm:
    """An arm at its first step; `way` is TRL's alone."""
    if way is None:
        return OurArm(demo_config(sizes, seed=seed))
    return TrlArm(sizes, way, seed=seed, budget=budget)


def demo_config(sizes: Sizes, *, seed: int = 0, **more: Any) -> RunConfig:
    """The arm of `pods demo` with these sizes of a step; "section__key" in `more` are further options."""
    values = {
        "seed": seed,
        "threads": torch.get_num_threads(),
        "model.device": "cpu",
        "rollouts.num_rollouts": sizes.num_rollouts,
        "select.rule": "keep_all" if sizes.num_kept == sizes.num_rollouts else "max_variance",
        "select.num_kept": sizes.num_kept,
        "optim.lr": rate_of(sizes),
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    changes = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    return build(RunConfig, apply_overrides(read_tree("demo")["base"], changes), "of the demo")


def rate_of(sizes: Sizes) -> float:
    """The learning rate of the demo's arm with these sizes; that of all its arms where none has them."""
    demo = read_tree("demo")
    rate = demo["base"]["optim"]["lr"]
    for arm in demo["arms"].values():
        if (arm["rollouts"]["num_rollouts"], arm["select"]["num_kept"]) == (sizes.num_rollouts, sizes.num_kept):
            rate = arm.get("optim", {}).get("lr", rate)
    return float(rate)


def trl_trainer(sizes: Sizes, way: Way, *, seed: int, num_steps: int) -> Any:
    """TRL's GRPOTrainer, or PODSTrainer where not all rollouts are kept, set to what podsrl's config says."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = demo_config(sizes, seed=seed)
    num_prompts = config.rollouts.num_prompts
    kind: Any = GRPOTrainer
    options: Any = GRPOConfig
    kept = {}
    if sizes.num_kept != sizes.num_rollouts:
        from podsrl.integrations.trl import PODSConfig, PODSTrainer

        kind, options, kept = PODSTrainer, PODSConfig, {"num_kept": sizes.num_kept, "rule": config.select.rule}
    rewards = load_task_set(config.task).rewards
    plain = plain_settings(
        rows=num_prompts * sizes.num_rollouts,
        rows_at_once=way.rows_at_once,
        generation=way.generation,
        batch_tokens=way.batch_tokens,
    )
    arguments = options(
        **{**plain, **kept, "beta": config.loss.kl_beta},
        seed=seed,
        use_cpu=True,
        max_steps=num_steps,
        num_generations=sizes.num_rollouts,
        max_completion_length=config.rollouts.max_new_tokens,
        temperature=config.rollouts.temperature,
        reward_weights=list(rewards.values()),
        loss_type="grpo",
        learning_rate=config.optim.lr,
        adam_beta1=config.optim.betas[0],
        adam_beta2=config.optim.betas[1],
        adam_epsilon=config.optim.eps,
        weight_decay=config.optim.weight_decay,
        max_grad_norm=config.optim.max_grad_norm,
    )
    with redirect_stdout(io.StringIO()):  # PODSTrainer says how it counts rollouts
        trainer = kind(
            model=load_model(config.model),
            reward_funcs=[trl_reward(name) for name in rewards],
            args=arguments,
            train_dataset=Dataset.from_list(questions(config, num_steps * num_prompts)),
            processing_class=load_tokenizer(config.model),
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


def questions(config: RunConfig, count: int) -> list[dict[str, str]]:
    """The questions that podsrl's trainer asks with this config, in its order."""
    train = load_task_set(config.task).train
    drawn = Stream(len(train), derive(config.seed, "data")).draw(count)
    return [{"prompt": str(task.prompt), "answer": task.answer} for task in (train[i] for i in drawn)]


def trl_reward(name: str) -> Callable[..., list[float]]:
    """A reward of podsrl in TRL's form."""
    judge: Any = REWARDS[name]

    def reward(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
        rows = zip(prompts, completions, answer, strict=True)
        return [judge(Task(id=prompt, prompt=prompt, answer=right), text) for prompt, text, right in rows]

    reward.__name__ = name
    return reward


class Judge:
    """Held-out accuracy of any model of the demo's shape, as the demo measures it, by podsrl's engine."""

    def __init__(self, *, num_questions: int) -> None:
        config = demo_config(Sizes("podsrl", 16, 16), task__num_eval=num_questions)
        self._trainer = Trainer(config)
        self._num_models = 0

    def __call__(self, model: Any) -> float:
        self._num_models += 1
        sync_weights(model, self._trainer.engine, self._num_models)
        return round(evaluate(self._trainer).result.accuracy, 6)

    def close(self) -> None:
        self._trainer.close()


class _PauseBetweenSteps(TrainerCallback):  # type: ignore[misc]  # transformers' classes are untyped
    def __init__(self, training: Stepwise) -> None:
        self._training = training

    def on_train_begin(self, *arguments: Any, **named: Any) -> None:
        self._training.pause()

    def on_step_end(self, *arguments: Any, **named: Any) -> None:
        self._training.pause()
