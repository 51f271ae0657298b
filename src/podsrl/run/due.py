"""What is due between two steps: an evaluation, a checkpoint, the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.run.step.counters import Progress

SAVED = ("last_eval_step", "next_eval_seconds", "last_signal_step", "last_valid_step")


@dataclass(slots=True)
class Due:
    """Asked after every step. All its fields but the last are saved with a checkpoint.

    Example: with eval.every_steps = 2 an evaluation is due at step 0, 2, 4 … and at the end, once each.
    """

    last_eval_step: int = -1
    next_eval_seconds: float = 0.0
    """Training seconds."""
    last_signal_step: int = 0
    """The last step with an advantage to learn from; 0: none yet."""
    last_valid_step: int = 0
    """The last step with a usable reward."""
    last_save: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(state: Mapping[str, Any]) -> Due:
        """As a checkpoint remembers it."""
        return Due(**state["schedule"])

    def is_end(self, config: RunConfig, progress: Progress) -> bool:
        """Whether the config says stop."""
        stop = config.stop
        return 0 < stop.steps <= progress.step or 0 < stop.seconds <= progress.train_seconds

    def is_evaluation(self, config: RunConfig, progress: Progress) -> bool:
        """At the start, at the end, and each time the config's seconds or steps have passed; at most once per step."""
        if progress.step == self.last_eval_step:
            return False
        every = config.eval.every_seconds
        by_time = every > 0 and progress.train_seconds >= self.next_eval_seconds
        by_steps = _is_multiple(progress.step, config.eval.every_steps)
        return by_time or by_steps or progress.step == 0 or self.is_end(config, progress)

    def evaluated(self, config: RunConfig, progress: Progress) -> None:
        """An evaluation was made."""
        self.last_eval_step = progress.step
        if (every := config.eval.every_seconds) > 0:
            self.next_eval_seconds = (progress.train_seconds // every + 1) * every

    def learned(self, progress: Progress, *, has_signal: bool, has_valid: bool) -> None:
        """A step was made; whether it had something to learn from, and any usable reward."""
        self.last_signal_step = progress.step if has_signal else self.last_signal_step
        self.last_valid_step = progress.step if has_valid else self.last_valid_step

    def num_silent(self, progress: Progress) -> int:
        """Steps in a row, up to the newest, that had nothing to learn from."""
        return progress.step - self.last_signal_step

    def is_save_by_steps(self, config: RunConfig, progress: Progress) -> bool:
        """Each time the config's steps are done."""
        return _is_multiple(progress.step, config.checkpoint.every_steps)

    def is_save_by_time(self, config: RunConfig) -> bool:
        """Each time the config's wall-clock seconds have passed; process 0's answer counts."""
        every = config.checkpoint.every_seconds
        return every > 0 and time.monotonic() - self.last_save >= every

    def saved(self) -> None:
        """A checkpoint was written."""
        self.last_save = time.monotonic()

    def schedule(self) -> dict[str, Any]:
        """What a checkpoint remembers."""
        return {name: getattr(self, name) for name in SAVED}

    def is_group_record(self, config: RunConfig, progress: Progress) -> bool:
        """Whether whole groups of this step are recorded: each time the config's steps are done, first and last."""
        every = config.record.groups_every_steps
        is_end = progress.step == 1 or self.is_end(config, progress)
        return every > 0 and (is_end or _is_multiple(progress.step, every))


def _is_multiple(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
