"""Steps that teach nothing, while a run goes on: it says why, says it again at its end, and stops where that is all."""

from __future__ import annotations

from podsrl.errors import PodsError
from podsrl.lib.callbacks import Say
from podsrl.run.due import Due
from podsrl.run.health import Answers, answers_of, example_of, reason_of
from podsrl.run.step.counters import Progress
from podsrl.run.step.step_result import StepResult

SAID_AFTER = 3
"""Steps in a row without signal after which a run says so."""
MAX_INVALID_STEPS = 3
"""Steps in a row without a usable reward after which a run stops."""


class NothingToLearn(PodsError):
    """A run has learned nothing since its start, or its rewards fail."""


class Silence:
    """The steps since the last one that taught something.

    Args:
        limit: steps without signal from a run's start after which it stops; 0: none.
        due: remembers, in checkpoints too, which step was the last with a signal.
        say: prints a line.
    """

    def __init__(self, limit: int, due: Due, say: Say) -> None:
        self._limit, self._due, self._say = limit, due, say
        self._answers, self._example = Answers(), ""
        self._said: set[bool] = set()  # of what taught nothing, and of what was solved

    def take(self, result: StepResult) -> None:
        """Look at a step; the first time that several in a row taught nothing, say why."""
        all_wait = result.load.num_waiting > 0 and not (result.groups or result.left_out)
        spared = (rollout for group in result.left_out for rollout in group.rollouts)
        self._due.learned(
            result.progress,
            has_signal=any(sample.has_advantage for sample in result.samples),
            has_valid=not result.is_empty or all_wait or any(rollout.is_valid for rollout in spared),
        )
        if self._due.num_silent(result.progress) == 0:
            self._answers, self._example = Answers(), ""
            return
        self._answers, self._example = self._answers + answers_of(result), example_of(result)
        if reason_of(self._answers).is_solved not in self._said:
            self.say(result.progress)

    def say(self, progress: Progress) -> None:
        """Say why the newest steps taught nothing, if there are enough of them to tell."""
        count, reason = self._due.num_silent(progress), reason_of(self._answers)
        if count < SAID_AFTER or self.is_end(progress):
            return
        self._said.add(reason.is_solved)
        if reason.is_solved:
            self._say(f"the last {count} steps had nothing left to teach: {reason.text}; {reason.cure}")
        else:
            self._say(f"warning: the last {count} steps taught nothing: {self._why}")

    def is_end(self, progress: Progress) -> bool:
        """Whether the run has to stop."""
        return self.is_hopeless(progress) or progress.step - self._due.last_valid_step >= MAX_INVALID_STEPS

    def is_hopeless(self, progress: Progress) -> bool:
        """Whether the run has taken as many steps as it may without having learned anything."""
        return self._due.last_signal_step == 0 and 0 < self._limit <= progress.step

    def error(self, progress: Progress) -> NothingToLearn:
        """What the run ends with then."""
        if self.is_hopeless(progress):
            what, cure = (
                f"none of {progress.step} steps taught anything",
                "; --resume with --stop.without_signal=0 goes on",
            )
        else:
            what, cure = f"{MAX_INVALID_STEPS} steps in a row had no group with two valid rollouts", ""
        return NothingToLearn(f"{what}: {self._why}; a checkpoint is saved{cure}")

    @property
    def _why(self) -> str:
        reason = reason_of(self._answers)
        return "; ".join(filter(None, (reason.text, reason.cure, self._example)))
