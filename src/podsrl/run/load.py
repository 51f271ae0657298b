"""What a step needed of the machine: counts over all processes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from podsrl.run.collected import Collected
from podsrl.score import ScoreStats

if TYPE_CHECKING:
    from podsrl.run.trainer import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Counts are summed over the processes; memory is that of the process which needed most."""

    num_decode_steps: int
    """Of the process that took most."""
    num_forwarded: int
    """Tokens that the model read one at a time to generate."""
    num_reread: int
    """Tokens whose keys and values were computed again."""
    peak_generate_bytes: int
    peak_update_bytes: int | None
    """None on a CPU."""
    num_stopped: int
    """Rollouts counted as wrong because a known reward ran into a limit."""
    num_hurried: int
    """Rollouts whose judging was stopped at a lowered limit."""
    stopped_reasons: tuple[str, ...]
    num_postponed: int
    """Completions that came back unfinished and are in no group."""
    num_postponed_tokens: int


def start_load(trainer: Trainer) -> None:
    """Count from 0: what an evaluation needed is not the next step's. The collector counts what is generated."""
    trainer.scorer.stats = ScoreStats()


def gather_load(trainer: Trainer, collected: Collected) -> Load:
    """The counts since `start_load`, and those of what was collected. Every process calls it."""
    stats, scored, postponed = collected.stats, trainer.scorer.stats, collected.postponed
    own = (
        *(stats.steps, stats.forwarded, stats.recomputed_tokens),
        *(collected.peak_kv_bytes, trainer.learner.updater.peak_bytes()),
        *(scored.num_stopped, scored.num_hurried, list(scored.reasons)),
        *(len(postponed), sum(len(completion.token_ids) for completion in postponed)),
    )
    steps, forwarded, reread, generate_bytes, update_bytes, stopped, hurried, reasons, late, late_tokens = zip(
        *trainer.processes.gather(own), strict=True
    )
    return Load(
        num_decode_steps=max(steps),
        num_forwarded=sum(forwarded),
        num_reread=sum(reread),
        peak_generate_bytes=max(generate_bytes),
        peak_update_bytes=None if update_bytes[0] is None else max(update_bytes),
        num_stopped=sum(stopped),
        num_hurried=sum(hurried),
        stopped_reasons=tuple(dict.fromkeys(chain.from_iterable(reasons))),
        num_postponed=sum(late),
        num_postponed_tokens=sum(late_tokens),
    )
