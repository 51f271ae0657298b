"""Whether a config fits the processes and the model that it meets."""

from __future__ import annotations

from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError


def check_processes(config: RunConfig, num_processes: int) -> None:
    """Every process has a prompt of its own, and what the processes share out can be shared out."""
    if config.rollouts.num_prompts < num_processes:
        raise UsageError(
            f"rollouts.num_prompts = {config.rollouts.num_prompts} is fewer than the {num_processes} processes: each "
            "generates whole groups, so start fewer processes or raise rollouts.num_prompts"
        )
    strategy, is_8bit = config.scale.strategy, config.optim.name == "adamw_8bit"
    if num_processes > 1 and strategy != "ddp" and (is_8bit or config.model.load_in_4bit):
        what = "optim.name = 'adamw_8bit'" if is_8bit else "model.load_in_4bit"
        raise UsageError(
            f"scale.strategy = {strategy!r} shares out weights, which {what} cannot take: use 'ddp', or leave it out"
        )


def check_dtype(config: RunConfig) -> None:
    """Weights and activations have a type that gradients fit into."""
    if config.model.dtype == "float16":
        raise UsageError(
            "model.dtype = 'float16' cannot be trained, with or without adapters: a step's gradients are small, and "
            "float16 rounds them away under 6e-8; use 'bfloat16' or 'float32' (evaluation takes float16)"
        )


def check_window(model: Any, longest_prompt: int, max_new_tokens: int) -> None:
    """The longest prompt with the longest completion lies within what the model can see."""
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if window is None or longest_prompt + max_new_tokens <= window:
        return
    cures = {"rollouts.max_new_tokens": window - longest_prompt, "rollouts.max_prompt_tokens": window - max_new_tokens}
    cure = ", or ".join(f"{option} to {most} or less" for option, most in cures.items() if most > 0)
    raise UsageError(
        f"prompts of {longest_prompt} tokens + rollouts.max_new_tokens = {max_new_tokens} exceed the model's "
        f"window of {window}: lower {cure or 'both'}"
    )
