"""What both sides of `python -m benchmarks trl` share (a small model, prompts, a reward), and TRL's trainer."""

from __future__ import annotations

import importlib.util
import logging
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import log
from typing import Any, Literal

import torch
from transformers import PrinterCallback, TrainerCallback

from benchmarks.models import shaped_model
from benchmarks.timing import Clock, Taken
from podsrl.errors import UsageError
from podsrl.tools.pretrain import character_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz "
_CPU_PAGES = {"page_size": 32, "num_blocks": 2048}
"""Key-value memory of transformers' continuous batching on a CPU: 65,536 tokens, more than 128 rollouts fill here."""

Generation = Literal["generate", "continuous batching"]
Rows = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The model and the prompts of one step."""

    model: Any
    tokenizer: Any
    prompts: tuple[str, ...]
    """P texts, one token per character."""
    num_rollouts: int
    max_new_tokens: int


def check_trl() -> str:
    """TRL's version. UsageError: it is not installed."""
    if importlib.util.find_spec("trl") is None:
        raise UsageError("benchmark trl: wanted TRL, which is not installed: pip install -e '.[trl]'")
    from importlib.metadata import version

    return version("trl")


def make_scene(
    shape: str,
    *,
    num_prompts: int,
    num_rollouts: int,
    prompt_tokens: tuple[int, int],
    mean_tokens: float | None,
    max_new_tokens: int,
    seed: int = 0,
) -> Scene:
    """A random model of a named shape (but with one token per character), and random prompts.

    A completion's length before the limit is geometric with the mean `mean_tokens`; None: all run to the limit.
    """
    draw = random.Random(seed)
    tokenizer = character_tokenizer()
    texts = ("".join(draw.choices(LETTERS, k=draw.randint(*prompt_tokens))) for _ in range(num_prompts))
    return Scene(
        model=_model(shape, tokenizer, mean_tokens, seed),
        tokenizer=tokenizer,
        prompts=tuple(texts),
        num_rollouts=num_rollouts,
        max_new_tokens=max_new_tokens,
    )


def share_of_vowels(completions: list[str], **columns: Any) -> list[float]:
    """A reward in TRL's form: cheap, and rarely equal for two texts, so that almost every rollout has a gradient."""
    return [sum(map(text.lower().count, "aeiou")) / (len(text) + 1) for text in completions]


def grpo_trainer(
    scene: Scene,
    *,
    rows_at_once: int,
    generation: Generation = "generate",
    batch_tokens: int | None = None,
    completions: Rows | None = None,
    reward: Callable[..., list[float]] = share_of_vowels,
    num_kept: int | None = None,
    **options: Any,
) -> Any:
    """TRL's trainer for the scene, without logging, saving, checkpointing of activations or a reference model.

    `rows_at_once` divides P · n. `completions` are P · n lists of token ids to use instead of generating. With
    `num_kept` it is podsrl's PODSTrainer. `options` are further ones of `GRPOConfig`, such as `loss_type`.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = {**_settings(scene, rows_at_once, generation, batch_tokens), **options}
    kind, config = GRPOTrainer, GRPOConfig
    if num_kept is not None:
        from podsrl.integrations.trl import PODSConfig, PODSTrainer

        kind, config, settings = PODSTrainer, PODSConfig, {**settings, "num_kept": num_kept}
    with quiet():
        trainer: Any = kind(
            model=scene.model,
            reward_funcs=reward,
            args=config(**settings),
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in scene.prompts]),
            processing_class=scene.tokenizer,
            rollout_func=_given(completions) if completions is not None else None,
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


class StepClock(TrainerCallback):  # type: ignore[misc]  # transformers' classes are untyped
    """Times TRL's own optimizer steps: from before the first rollout to after the weights have changed."""

    def __init__(self) -> None:
        self.taken = Taken()
        self._clock = Clock()

    def on_step_begin(self, *arguments: Any, **named: Any) -> None:
        self._clock = Clock()

    def on_step_end(self, *arguments: Any, **named: Any) -> None:
        self.taken = self._clock.read()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of TRL and transformers about experimental features and deprecations."""
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _settings(scene: Scene, rows_at_once: int, generation: Generation, batch_tokens: int | None) -> dict[str, Any]:
    rows = len(scene.prompts) * scene.num_rollouts
    return {
        **plain_settings(rows=rows, rows_at_once=rows_at_once, generation=generation, batch_tokens=batch_tokens),
        "num_generations": scene.num_rollouts,
        "max_completion_length": scene.max_new_tokens,
        "max_steps": 1,
        "learning_rate": 1e-6,
        "use_cpu": scene.model.device.type == "cpu",
    }


def plain_settings(
    *, rows: int, rows_at_once: int, generation: Generation, batch_tokens: int | None = None
) -> dict[str, Any]:
    """Options of `GRPOConfig` for one optimizer step per `rows` rollouts, and nothing beside training.

    Nothing is logged, saved, recomputed or shuffled, and there is no reference model. `rows_at_once` divides `rows`.
    """
    from trl import GRPOConfig

    checkpointing = "activation_checkpointing"
    if checkpointing not in {field.name for field in fields(GRPOConfig)}:
        checkpointing = "gradient_checkpointing"
    continuous = {
        "use_transformers_continuous_batching": True,
        "transformers_continuous_batching_config": {"max_batch_tokens": batch_tokens, **_CPU_PAGES},
    }
    return {
        "output_dir": tempfile.gettempdir(),  # nothing is saved
        "per_device_train_batch_size": rows_at_once,
        "gradient_accumulation_steps": rows // rows_at_once,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "bf16": False,
        checkpointing: False,
        **(continuous if generation == "continuous batching" else {}),
        "shuffle_dataset": False,
        "dataloader_pin_memory": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def _given(completions: Rows) -> Callable[..., dict[str, Any]]:
    """A rollout function for TRL that always returns these completions."""

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = trainer.processing_class(prompts)["input_ids"]
        return {"prompt_ids": ids, "completion_ids": [list(row) for row in completions], "logprobs": None}

    return rollouts


def _model(shape: str, tokenizer: Any, mean_tokens: float | None, seed: int) -> Any:
    model = shaped_model(
        shape,
        seed=seed,
        vocab_size=len(tokenizer),
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    _set_end_rate(model, tokenizer.eos_token_id, mean_tokens)
    return model


@torch.no_grad()
def _set_end_rate(model: Any, end: int, mean_tokens: float | None) -> None:
    """Make the end token's logit a constant: one dimension of every embedding is the same, and only it reads it."""
    vocabulary = len(model.lm_head.weight)
    model.model.embed_tokens.weight[:, 0] = 1.0
    level = float(model.model(torch.arange(vocabulary)[None]).last_hidden_state[..., 0].mean())
    wanted = -30.0 if mean_tokens is None else log(vocabulary / mean_tokens)
    model.lm_head.weight[:, 0] = 0.0
    model.lm_head.weight[end] = 0.0
    model.lm_head.weight[end, 0] = wanted / level
