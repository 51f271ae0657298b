"""Sizes that suit the machine: where a run would need more memory than it has, what changes no result gives way.
On a GPU micro-batches grow instead, as far as its memory allows.

These are the key-values that are held at once, micro-batches and the tokens of a chunk of logits; each only where the
config leaves it at its default. The choice depends on the machine's whole memory, not on what is free, so it is the
same each time on one machine, and it goes into the run's config, so that a resumed run keeps it. It does not know of
other runs beside it. On CUDA the bound on key-values is found when the engine is made (`kv_bound`).
"""

from __future__ import annotations

from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.generate import resolve_generator
from podsrl.lib.machine import host_bytes, total_bytes
from podsrl.policy.device import choose_device
from podsrl.policy.source import find_device
from podsrl.run.before.estimate import can_share, estimate, generates_itself, kv_bytes_per_token, peak, phase_bytes
from podsrl.run.before.memory_advice import FREE, MemoryAdvice, advise, with_changes
from podsrl.run.before.model_shape import ModelShape, read_shape
from podsrl.run.before.sizes import sized, work

SHARE = 0.8
"""Of the machine's memory, what a run plans with: the rest is for the system, libraries and what allocators keep."""
LARGEST_MICRO_BATCH = 32_768
"""Tokens, on a GPU."""


def fit(
    config: RunConfig,
    *,
    longest_prompt: int,
    num_eval: int | None,
    num_processes: int = 1,
    num_here: int = 1,
    num_bytes: int = 0,
) -> tuple[RunConfig, tuple[str, ...]]:
    """The config with sizes that fit this machine, and a line that says which, and what the run then holds.

    Args:
        longest_prompt: tokens; 0: not known, so the limit counts.
        num_eval: held-out questions; None: as many as the config lets expect.
        num_here: processes of the run on this machine, which share its memory.
        num_bytes: memory of the machine; 0: this one's.

    Raises:
        UsageError: no such model or device.
    """
    if resolve_generator(config.rollouts.generator, config.options).training is not None:
        return config, ()  # no model is held here
    most = sized(config, longest_prompt=longest_prompt, num_eval=num_eval)
    if find_device(config.model.device).type == "cuda":
        return _grown(config, most, num_processes)
    shape = read_shape(config.model)
    num_bytes = num_bytes or host_bytes()
    bound = int(SHARE * num_bytes) // num_here
    if peak(estimate(most, shape, num_processes)) <= bound:
        return config, ()
    keys = [key for key in FREE if _value(config, key) == _value(RunConfig(), key)]
    advice = advise(most, shape, bound, num_processes, keys)
    if not advice.steps or not advice.is_possible:
        return config, ()
    fitting = with_changes(config, {step.key: step.new for step in advice.steps}, num_processes)
    return fitting, (_line(advice, shape, num_processes, num_bytes),)


def _grown(config: RunConfig, most: RunConfig, num_processes: int) -> tuple[RunConfig, tuple[str, ...]]:
    """Larger micro-batches than the default: the host starts the same kernels for each, whatever its size.

    Only where this process generates too, since another program's share of the GPU is not known.
    """
    model, tokens = config.model, config.optim.micro_batch_tokens
    place = choose_device(model) if num_processes == 1 else find_device(model.device)
    if place.type != "cuda" or tokens != RunConfig().optim.micro_batch_tokens or not generates_itself(config):
        return config, ()
    shape, num_bytes = read_shape(model), total_bytes(place)
    update = work(most, num_processes, can_share=can_share(most, shape)).update_tokens

    def held(tokens: int) -> int:
        larger = with_values(most, optim={"micro_batch_tokens": tokens})
        return phase_bytes(estimate(larger, shape, num_processes))[1]

    while tokens < min(update, LARGEST_MICRO_BATCH) and held(2 * tokens) <= SHARE * num_bytes:
        tokens *= 2
    if tokens == config.optim.micro_batch_tokens:
        return config, ()
    line = (
        f"optim.micro_batch_tokens = {tokens} here: the update holds at most {held(tokens) / 2**30:.1f} of "
        f"{num_bytes / 2**30:.1f} GiB"
    )
    return with_values(config, optim={"micro_batch_tokens": tokens}), (line,)


def _value(config: RunConfig, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _line(advice: MemoryAdvice, shape: ModelShape, num_processes: int, num_bytes: int) -> str:
    """What was chosen, what it holds, and how many rollouts run at a time."""
    options = " ".join(f"{step.key} = {step.new}" for step in advice.steps)
    held = f"{advice.least_bytes / 2**30:.1f} of {num_bytes / 2**30:.1f} GiB"
    todo, bound = work(advice.config, num_processes), advice.config.rollouts.kv_cache_bytes
    most = max(todo.num_rows, todo.num_eval_rows)
    rows = bound // (todo.row_tokens * kv_bytes_per_token(advice.config, shape))
    share = f"; {rows:,} of {most:,} answers at a time" if 0 < rows < most else ""
    return f"{options} here: the run holds at most {held}{share}"
