"""Whether a config fits the processes and the model that it meets."""

from __future__ import annotations

from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate.decode.limits import row_limit


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


def check_window(model: Any, longest_prompt: int, max_new_tokens: int) -> None:
    """The longest prompt with the longest completion lies within what the model can see, and the engine decode."""
    limit = row_limit(model)
    if limit is None or longest_prompt + max_new_tokens <= limit.tokens:
        return
    most = {
        "rollouts.max_new_tokens": limit.tokens - longest_prompt,
        "rollouts.max_prompt_tokens": limit.tokens - max_new_tokens,
    }
    cure = ", or ".join(f"{option} to {tokens} or less" for option, tokens in most.items() if tokens > 0)
    raise UsageError(
        f"prompts of {longest_prompt} tokens + rollouts.max_new_tokens = {max_new_tokens} exceed {limit.name}: lower "
        f"{cure or 'both'}"
    )
