"""What a person sees while something runs: a bar with time left, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from podsrl.cli.console import errors
from podsrl.config.schema import RunConfig

PLAIN_SECONDS = 5.0
"""Without a terminal, a line at most this often."""
SILENT_STEPS = 10
"""Steps in a row without anything to learn, after which a person is told."""


def new_progress() -> Progress:
    """A bar, its share, time passed and left, and a text that the caller sets."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
        console=errors,
    )


@contextmanager
def bar(description: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar driven by (done, total, text)."""
    with new_progress() as progress:
        task = progress.add_task(description, total=None, text="")
        yield lambda done, total, text: progress.update(task, completed=done, total=total, text=text)


class TrainDisplay:
    """Shows a training run from the lines it records.

    Args:
        config: of the run.
        is_plain: lines instead of a live bar.
    """

    def __init__(self, config: RunConfig, is_plain: bool) -> None:
        self._steps, self._seconds = config.stop.steps, config.stop.seconds
        self._rollouts = config.rollouts.num_prompts * config.rollouts.num_rollouts
        self._progress = None if is_plain or not errors.is_terminal else new_progress()
        self._task = self._progress.add_task("training", total=1.0, text="loading") if self._progress else None
        self._groups = config.rollouts.num_prompts * config.select.num_chunks
        self._accuracy = "–"
        self._last_line = 0.0
        self._num_invalid = self._num_stopped = self._num_silent = 0

    def __enter__(self) -> TrainDisplay:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()

    def say(self, text: str) -> None:
        """Print one line above the bar."""
        (self._progress.console if self._progress else errors).print(
            text, markup=False, highlight=False, soft_wrap=True
        )

    def show(self, record: dict[str, Any]) -> None:
        """Take over a line of `metrics.jsonl`."""
        if "eval/accuracy" in record:
            self._accuracy = _accuracy_text(record)
            self._print(record, f"step {record['step']}: held-out accuracy {self._accuracy}", is_important=True)
            return
        self._notice(record)
        reward = record["reward/all"]
        shown = "–" if reward is None else f"{reward:.3f}"
        speed = self._rollouts / record["seconds/total"]
        text = f"step {record['step']}  accuracy {self._accuracy}  reward {shown}  {speed:,.0f} rollouts/s"
        self._print(record, text, is_important=False)

    def _notice(self, record: dict[str, Any]) -> None:
        """Say once that rollouts are invalid, that answers were not judged, and that nothing is being learned."""
        invalid = record["rollouts/invalid"]
        if invalid and not self._num_invalid:
            reasons = "; ".join(record["invalid_reasons"])
            self.say(
                f"warning: {invalid} of {self._rollouts} rollouts of step {record['step']} are invalid and not trained "
                f"on ({reasons}); later ones are counted in metrics.jsonl (rollouts/invalid)"
            )
        self._num_invalid += invalid
        stopped = record.get("rollouts/reward_timeouts", 0)
        if stopped and not self._num_stopped:
            reasons = "; ".join(record["reward_timeout_reasons"])
            self.say(
                f"warning: {stopped} of {self._rollouts} answers of step {record['step']} could not be judged within "
                f"the limits and count as wrong ({reasons}); later ones are counted in metrics.jsonl "
                "(rollouts/reward_timeouts)"
            )
        self._num_stopped += stopped
        self._num_silent = self._num_silent + 1 if record["groups/zero_signal"] == self._groups else 0
        if self._num_silent == SILENT_STEPS:
            self.say(
                f"warning: in {SILENT_STEPS} steps no group had rewards that differ, so nothing was learned: look at "
                "the rollouts (pods report), try more rollouts a question, easier questions or another reward"
            )

    def _print(self, record: dict[str, Any], text: str, is_important: bool) -> None:
        if self._progress and self._task is not None:
            self._progress.update(self._task, completed=self._share(record), text=text)
        elif is_important or time.monotonic() - self._last_line > PLAIN_SECONDS:
            self._last_line = time.monotonic()
            errors.print(f"{self._share(record):4.0%}  {text}", highlight=False, soft_wrap=True)

    def _share(self, record: dict[str, Any]) -> float:
        by_steps = record["step"] / self._steps if self._steps else 0.0
        by_time = record["seconds/train_elapsed"] / self._seconds if self._seconds else 0.0
        return min(1.0, max(by_steps, by_time))


def _accuracy_text(record: dict[str, Any]) -> str:
    """Right answers, and beside them those that also have the wanted form, where the two differ."""
    right, both = record["eval/accuracy"], record.get("eval/accuracy_and_format")
    return f"{right:.1%}" if both is None or both == right else f"{right:.1%} ({both:.1%} in the wanted form)"
