"""The largest step that a config may have: its parts say by `most` how many groups and rollouts they ask for.

`work` counts what one process has of such a step.
"""

from __future__ import annotations

from dataclasses import dataclass

from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import resolve_generator
from podsrl.lib.parts import Parts, make_parts
from podsrl.tasks import MOST_HELD_OUT
from podsrl.update.token_logprobs import SHARE_FROM

EVAL_SIZES = {"gsm8k": 1319, "math": 500, "math500": 500, "svamp": 300}
"""Test questions of the known sets: what `task.num_eval = 0` means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much one process has at once; counts and tokens at most."""

    row_tokens: int
    """Prompt and completion."""
    num_rows: int
    """Rows that a step asks for at once, while training."""
    num_eval_rows: int
    """Rows that an evaluation asks for; 0 where their number is not known before the data is read."""
    update_tokens: int
    """Tokens of a step that go through the model; a prompt counts once per group where it is shared, else per row."""
    micro_batch_tokens: int
    target_tokens: int
    """Tokens of a micro-batch whose log-probs are wanted: those of completions."""


def parts_of(config: RunConfig) -> Parts:
    """Make the parts of a run.

    Raises:
        UsageError: as of `make_parts`.
    """
    generator = resolve_generator(config.rollouts.generator, config.options)
    others = (generator.options_name, config.task.name)
    options = {name: table for name, table in config.options.items() if name not in others}
    return make_parts(config.systems, options)


def at_most(config: RunConfig, parts: Parts | None = None) -> RunConfig:
    """The config with P and n of the largest round that its budget may ask, for whatever is sized by them.

    Args:
        parts: what `parts_of` gave; by default it is called.

    Example:
        >>> at_most(RunConfig()) == RunConfig()
        True
    """
    parts, num_groups = parts or parts_of(config), config.order.num_groups(config.rollouts.num_prompts)
    num_prompts, num_rollouts = parts.most(num_groups, config.rollouts.num_rollouts)
    if (num_prompts, num_rollouts) == (config.rollouts.num_prompts, config.rollouts.num_rollouts):
        return config
    return with_values(config, rollouts={"num_prompts": num_prompts, "num_rollouts": num_rollouts})


def sized(
    config: RunConfig, parts: Parts | None = None, *, longest_prompt: int = 0, num_eval: int | None = None
) -> RunConfig:
    """`at_most` with what the data decides, where it was read: tokens of the longest prompt, and held-out questions.

    With a guide a prompt may have all tokens that the limit allows.
    """
    parts = parts or parts_of(config)
    config = at_most(config, parts)
    if longest_prompt and not parts.has("guide"):
        config = with_values(config, rollouts={"max_prompt_tokens": longest_prompt})
    return config if num_eval is None else with_values(config, task={"num_eval": num_eval})


def work(config: RunConfig, num_processes: int, *, can_share: bool = False) -> Work:
    """The most that one of so many processes generates and trains on.

    Args:
        can_share: the model's update can have the rows of a group behind one prompt (`estimate.can_share`).
    """
    rollouts, optim = config.rollouts, config.optim
    row = rollouts.max_prompt_tokens + rollouts.max_new_tokens
    prompts = -(-rollouts.num_prompts // num_processes)
    num_eval = MOST_HELD_OUT if config.task.num_eval is None else config.task.num_eval
    questions = num_eval or EVAL_SIZES.get(config.task.name, 0)
    rows = -(-rollouts.num_prompts * config.select.most_kept(rollouts.num_rollouts) // num_processes)
    update, shared = rows * row, prompts * rollouts.max_prompt_tokens + rows * rollouts.max_new_tokens
    if can_share and (optim.prefix_sharing == "on" or shared <= SHARE_FROM * update):
        update = shared
    micro_batch = min(update, max(optim.micro_batch_tokens, row))
    return Work(
        row_tokens=row,
        num_rows=prompts * rollouts.num_rollouts,
        num_eval_rows=-(-questions * config.eval.num_samples // num_processes),
        update_tokens=update,
        micro_batch_tokens=micro_batch,
        target_tokens=min(micro_batch - rollouts.max_prompt_tokens, rows * rollouts.max_new_tokens),
    )


def check_sizes(config: RunConfig, parts: Parts) -> int:
    """Check what the largest round that the parts may ask for has to fit.

    Returns:
        The most rollouts of a group.

    Raises:
        UsageError: rollouts that no memory holds at once, `select.num_kept` above every group's size, or chunks of
            groups that are not equal.
    """
    rollouts, select = config.rollouts, config.select
    largest = at_most(config, parts).rollouts
    names = f"systems = {', '.join(config.systems)}" if config.systems else f"order.take = {config.order.take!r}"
    product = f"{names} with up to {largest.num_prompts} groups in a round of up to {largest.num_rollouts} rollouts"
    if problem := config.too_many(product, largest.num_prompts * largest.num_rollouts):
        raise UsageError(problem)
    if select.num_chunks > 1 and largest.num_rollouts > rollouts.num_rollouts:
        raise UsageError(
            f"select.num_chunks = {select.num_chunks} cuts equal groups, and {names} makes unequal ones, of up to "
            f"{largest.num_rollouts} rollouts: set select.num_chunks = 1, or choose another system"
        )
    if select.num_kept > largest.num_rollouts and select.rule != "keep_all":
        bound = "" if largest.num_rollouts == rollouts.num_rollouts else f" ({names} asks for at most "
        bound += f"{largest.num_rollouts} of a question)" if bound else ""
        raise UsageError(
            f"select.num_kept = {select.num_kept} is more than rollouts.num_rollouts = {rollouts.num_rollouts}{bound}; "
            "keep at most as many as are generated: lower select.num_kept or raise rollouts.num_rollouts"
        )
    return largest.num_rollouts


def grows_groups(parts: Parts) -> bool:
    """Whether groups may have other numbers of rollouts than the config's."""
    return any(map(parts.has, ("enough", "questions", "rollouts", "guide", "keep"))) or bool(
        parts.breaks("equal_groups")
    )
