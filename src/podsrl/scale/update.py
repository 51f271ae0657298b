"""One update shared by several processes: each has its own rows, and all divide by the whole step's counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace

import numpy as np

from podsrl.scale.processes import Processes
from podsrl.update import Batch, Updater, UpdateStats


def forward_backward(updater: Updater, batch: Batch, processes: Processes, *, is_sharded: bool) -> UpdateStats:
    """Gradients of this process's rows (perhaps none), and the stats of all processes; all call this.

    Where the processes share the weights (`is_sharded`), all run as many micro-batches.
    """
    if processes.is_alone:
        return updater.forward_backward(batch)
    own = [batch.num_sequences, batch.num_tokens, updater.num_micro_batches(batch) if is_sharded else 0]
    num_sequences, num_tokens, num_micro_batches = zip(*processes.gather(own), strict=True)
    stats = updater.forward_backward(
        batch,
        num_sequences=sum(num_sequences),
        num_tokens=sum(num_tokens),
        min_micro_batches=max(num_micro_batches),
    )
    return combine_stats([UpdateStats(**values) for values in processes.gather(asdict(stats))])


def with_start(updater: Updater, batch: Batch, processes: Processes, *, is_sharded: bool) -> Batch:
    """This process's batch with its log-probs under the weights as they are; all processes call it."""
    own = updater.num_micro_batches(batch) if is_sharded else 0
    most = own if processes.is_alone else max(processes.gather(own))
    return updater.with_start(batch, min_micro_batches=most)


def combine_stats(parts: Sequence[UpdateStats]) -> UpdateStats:
    """The stats of several processes as one: losses and counts add up, means are weighted by trained tokens.

    Example:
        >>> from dataclasses import replace
        >>> one = UpdateStats(
        ...     loss=0.5, entropy=1.0, kl=None, clip_fraction=0.0, logprob_gap=0.0, ratio_max=1.0, num_sequences=2,
        ...     num_tokens=9, num_trained_rows=1, num_trained_tokens=3, num_micro_batches=1,
        ... )
        >>> both = combine_stats([one, replace(one, entropy=2.0, num_trained_tokens=9)])
        >>> both.loss, both.entropy, both.num_tokens
        (1.0, 1.75, 18)
    """
    tokens = sum(part.num_trained_tokens for part in parts)

    def mean(name: str) -> float:
        return float(sum(getattr(part, name) * part.num_trained_tokens for part in parts)) / max(tokens, 1)

    counts = {
        field.name: sum(getattr(part, field.name) for part in parts)
        for field in fields(UpdateStats)
        if field.name.startswith("num_")
    }
    return UpdateStats(
        loss=sum(part.loss for part in parts),
        entropy=mean("entropy"),
        kl=None if parts[0].kl is None else mean("kl"),
        clip_fraction=mean("clip_fraction"),
        logprob_gap=mean("logprob_gap"),
        ratio_max=max(part.ratio_max for part in parts),
        capped_fraction=None if parts[0].capped_fraction is None else mean("capped_fraction"),
        limited_fraction=mean("limited_fraction"),
        dropped_fraction=None if parts[0].dropped_fraction is None else mean("dropped_fraction"),
        log_weights=_log_sum([part.log_weights for part in parts]),
        log_squares=_log_sum([part.log_squares for part in parts]),
        **counts,
    )


def _log_sum(logs: Sequence[float | None]) -> float | None:
    """The logarithm of the sum of what has these logarithms; None where there is none."""
    known = [log for log in logs if log is not None]
    return float(np.logaddexp.reduce(known)) if known else None


def pass_stats(steps: Sequence[UpdateStats]) -> UpdateStats:
    """The stats of a pass over a batch, from those of its optimizer steps: the loss is their mean."""
    if len(steps) == 1:
        return steps[0]
    found = combine_stats(steps)
    return replace(found, loss=found.loss / len(steps))
