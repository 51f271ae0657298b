"""What a person sees while something runs: a bar with the time left, the picture of `pods watch`, or plain lines.

Without a terminal a line appears every ten seconds, even when there is nothing new: this tells a slow phase from a
process that hangs. Lines printed by `say` come on top. In a notebook, one line is written over.
"""

from __future__ import annotations

import re
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from podsrl.cli.console import counted, errors
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, cut
from podsrl.lib.callbacks import Progress as ReportProgress
from podsrl.lib.time_left import Clock, TimeLeft, share_done

if TYPE_CHECKING:
    from podsrl.report.follow import Followed

LINE_SECONDS = 10.0
"""Without a terminal, the time between two lines."""
FIRST_LINE_SECONDS = 3.0
"""Without a terminal, the first line comes after this long."""
BEAT_SECONDS = 0.5
"""Between two looks at whether a line is due, and between two lines of a notebook."""
LEAST_HEIGHT = 30
"""Lines of a terminal from which on it has room for the picture."""
TICK_SECONDS = 1.0
COST = 100
"""The pause between two looks is at least this many times the processor time of a look: about 1 % of a core."""


class Display:
    """A display of progress; a context manager that shows it while entered."""

    def __init__(self, name: str, console: Console = errors, clock: Clock = time.monotonic) -> None:
        self._name, self._console, self._left = name, console, TimeLeft(clock)
        self._share: float | None = None
        self._text = ""

    def update(self, done: float, total: float | None, text: str = "") -> None:
        """Report `done` out of `total` (None: not known), in any unit."""
        self._text, self._share = text, done / total if total else None
        if self._share is not None:
            self._left.report(self._share)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @property
    def line(self) -> str:
        """How far it is."""
        share = "" if self._share is None else f"{self._share:4.0%}  "
        return f"{self._name}  {share}{self._left.text}  {self._text}".rstrip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


def shown(name: str, *, folder: Path | None = None, is_plain: bool = False) -> Display:
    """A live bar in a terminal, or the picture of a folder's runs; elsewhere, or where asked for, plain lines."""
    if is_plain or not _is_live():
        return Cell(name) if errors.is_jupyter else Lines(name)
    return Bar(name) if folder is None or errors.height < LEAST_HEIGHT else Picture(folder, errors)


@contextmanager
def bar(name: str) -> Iterator[ReportProgress]:
    """A bar driven by (done, total, text)."""
    with shown(name) as display:
        yield display.update


def waiting(name: str) -> AbstractContextManager[Any]:
    """Show that something of unknown length goes on: a spinner in a terminal, else lines."""
    return errors.status(name) if _is_live() else shown(name)


def _is_live() -> bool:
    """FORCE_COLOR makes rich take a file for a terminal; a bar that redraws itself would garble it."""
    return errors.is_interactive and errors.file.isatty()


class Lines(Display):
    """Whole lines for a log, with `name` in front of each."""

    _open: ClassVar[list[Lines]] = []
    """Entered and not left; the innermost one speaks, in the name of all."""

    def __init__(self, name: str, console: Console = errors, clock: Clock = time.monotonic) -> None:
        super().__init__(name, console, clock)
        self._clock, self._due = clock, clock() + FIRST_LINE_SECONDS
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="progress lines", daemon=True)

    def __enter__(self) -> Self:
        Lines._open.append(self)
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ended.set()
        self._thread.join()
        Lines._open.remove(self)

    def update(self, done: float, total: float | None, text: str = "") -> None:
        with self._lock:
            super().update(done, total, text)
        self.beat()

    def say(self, text: str) -> None:
        with self._lock:
            super().say(text)

    def beat(self) -> None:
        """Print how far it is, where that is due."""
        with self._lock:
            if self._clock() < self._due:
                return
            self._due = self._clock() + LINE_SECONDS
            super().say(self.line)

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if Lines._open[-1] is self:
                self.beat()


class Cell(Display):
    """One line of a notebook's cell, written over twice a second; of the lines that stay there are warnings alone."""

    def __init__(self, name: str, clock: Clock = time.monotonic) -> None:
        super().__init__(name, clock=clock)
        self._clock, self._due = clock, clock()
        self._newest = self._shown = ""

    def __exit__(self, *error: Any) -> None:
        if self._newest:
            self._write(self._newest, "\n")

    def update(self, done: float, total: float | None, text: str = "") -> None:
        super().update(done, total, text)
        self._newest = self.line
        if self._clock() >= self._due:
            self._due = self._clock() + BEAT_SECONDS
            self._write(self._newest)

    def say(self, text: str) -> None:
        """Print a warning; metrics.jsonl, starts.jsonl and the report have the rest."""
        if text.startswith("warning: "):
            self._write(text, "\n")

    def _write(self, text: str, end: str = "") -> None:
        sys.stdout.write(f"\r{text.ljust(len(self._shown))}{end}")
        sys.stdout.flush()
        self._shown = "" if end else text


class Drawn(Display):
    """What redraws itself in a terminal; what is said stands above it."""

    per_second: ClassVar[float] = 4

    def __init__(self, name: str, console: Console = errors) -> None:
        super().__init__(name, console)
        self._live = Live(
            console=console,
            get_renderable=self.draw,
            refresh_per_second=self.per_second,
            vertical_overflow="crop",
        )

    def draw(self) -> RenderableType:
        """What there is to see now."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.stop()


class Bar(Drawn):
    """A bar with the time left, and below it a line of text that has the terminal's whole width."""

    def draw(self) -> RenderableType:
        share = self._share
        row = Table.grid(padding=(0, 1))
        row.add_row(
            Text(self._name),
            ProgressBar(width=16, completed=100 * (share or 0), pulse=share is None),
            Text("" if share is None else f"{share:4.0%}", "progress.percentage"),
            Text("" if share == 1 else self._left.text, no_wrap=True),
        )
        return Group(row, *([Text(self._text)] if self._text else []))


class Picture(Drawn):
    """A folder's runs, drawn from their logs as `pods watch` draws them, and below them what goes on now."""

    per_second = 1

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder = folder
        self._followed: Followed | None = None
        self._lines: list[Text] = []
        self._due = 0.0
        super().__init__("", console)  # which draws once

    def __exit__(self, *error: Any) -> None:
        self._due, self._text = 0.0, ""
        super().__exit__(*error)

    def draw(self) -> RenderableType:
        if time.monotonic() >= self._due:
            begun = time.thread_time()
            with suppress(OSError, UsageError):  # there is no folder yet, or none any more: the trainer's to say
                self._look()
            self._due = time.monotonic() + max(TICK_SECONDS, COST * (time.thread_time() - begun))
        return Group(*self._lines, Text(self._text, "dim", no_wrap=True, overflow="ellipsis"))

    def _look(self) -> None:
        from podsrl.report.follow import Followed
        from podsrl.report.picture import picture

        self._followed = self._followed or Followed(self._folder)
        self._followed.poll()
        runs, console = self._followed.runs, self._console
        self._lines = picture(runs, console.width, console.height - 2) if runs else []


_WARNINGS = {
    "rollouts/invalid": ("{} rollouts {} are invalid and not trained on", "invalid_reasons"),
    "rollouts/reward_timeouts": (
        "{} answers {} could not be judged within the limits and count as wrong",
        "reward_timeout_reasons",
    ),
}
"""Metric -> what it counts, and where its reasons stand."""


class TrainDisplay:
    """Shows a training run from the lines it records: in plain lines, a live bar, or a picture where it has room.

    Args:
        folder: of the run.
    """

    def __init__(self, config: RunConfig, is_plain: bool, folder: Path) -> None:
        self._steps, self._seconds, self._folder = config.stop.steps, config.stop.seconds, folder
        self._shown = shown("training", folder=folder, is_plain=is_plain)
        self._share = 0.0
        self._total: float | None = None  # until the first evaluation, which is no part of the pace
        self._held_out = ""
        self._seen, self._told = Counter[str](), dict[str, int]()
        self._num_asked = 0
        self.num_steps = 0
        """Steps shown so far."""

    def __enter__(self) -> TrainDisplay:
        self._shown.__enter__()
        self._shown.update(0, None, "loading")
        return self

    def __exit__(self, *error: Any) -> None:
        for metric, (what, _) in _WARNINGS.items():
            if self._seen[metric] > self._told.get(metric, 0):
                what = what.format(f"of {self._num_asked:,}", f"in {counted(self.num_steps, 'step')}")
                self.say(f"{self._seen[metric]:,} {what}; why stands in metrics.jsonl ({metric})")
        self._shown.__exit__(*error)

    def say(self, text: str) -> None:
        """Print one line above the bar."""
        self._shown.say(text)

    def evaluating(self, num_answered: int, num_asked: int) -> None:
        """Show how far an evaluation is; the run as a whole stands where it was."""
        self._shown.update(self._share, self._total, f"evaluating: {num_answered:,} of {num_asked:,} answers")

    def show(self, record: dict[str, Any]) -> None:
        """Show a line of `metrics.jsonl`."""
        self._share, self._total = share_done(record, self._steps, self._seconds), 1.0
        if "eval/accuracy" in record:
            is_first = not self._held_out
            self._held_out = f"held out {record['eval/accuracy']:.1%} (step {record['step']})"
            self._shown.update(self._share, self._total, self._held_out)
            self._shown.say(evaluation_text(record))
            if (is_first or self._share == 1) and (examples := record.get("eval/examples")):
                self._shown.say(example_text(examples[0]))
            return
        self.num_steps += 1
        self._notice(record)
        accuracy, reward = record["accuracy/all"], record["reward/all"]
        parts = (
            f"step {record['step']}: accuracy: training {'–' if accuracy is None else f'{accuracy:.1%}'}",
            self._held_out,
            f"mean reward {'–' if reward is None else f'{reward:.3f}'}",
            f"{record['rollouts/all'] / record['seconds/total']:,.0f} rollouts/s",
        )
        self._shown.update(self._share, self._total, ", ".join(part for part in parts if part))

    def _notice(self, record: dict[str, Any]) -> None:
        """Warn, once each, that rollouts are invalid, and that answers were not judged; the end says how many."""
        self._num_asked += record["rollouts/all"]
        for metric, (what, reasons) in _WARNINGS.items():
            self._seen[metric] += record.get(metric) or 0
            if record.get(metric) and metric not in self._told:
                self._told[metric] = record[metric]
                what = what.format(f"of {record['rollouts/all']}", f"of step {record['step']}")
                self.say(f"warning: {record[metric]} {what}; later ones are counted in metrics.jsonl ({metric})")
                for line in self._why(record[reasons], record.get("invalid_example", "")):
                    self.say(f"    {line}")

    def _why(self, reasons: Sequence[str], example: str) -> Iterator[str]:
        """Each reason in a line; of a reward that failed also an answer that it failed on, and what to do."""
        from podsrl.score.base import CURE

        yield from reasons
        if failed := re.match("reward '(.+?)' (?:raised|returned) ", reasons[0]):
            if example:
                yield f"on the answer {example!r}"
            yield (
                f"{CURE}; to try it alone: pods check-reward {self._folder / 'groups.jsonl'} --reward "
                f"{shlex.quote(failed[1])}"
            )


def example_text(example: dict[str, Any]) -> str:
    """A question with its answer, of `eval/examples` in `metrics.jsonl`.

    Example:
        >>> example_text({"prompt": "1 + 1 =\\n", "text": "3", "is_correct": False})
        "    '1 + 1 =' → '3', wrong"
    """
    asked, answered = (repr(cut(example[name].strip())) for name in ("prompt", "text"))
    return f"    {asked} → {answered}, {'correct' if example['is_correct'] else 'wrong'}"


def evaluation_text(record: dict[str, Any]) -> str:
    """All there is to say of an evaluation: right answers, and those that also have the wanted form if these differ."""
    right, both = record["eval/accuracy"], record.get("eval/accuracy_and_format")
    form = "" if both is None or both == right else f" ({both:.1%} in the wanted form)"
    after = f"after {record['seconds/train_elapsed']:.1f} s of training"
    return f"step {record['step']}: held-out accuracy {right:.1%}{form} {after}"
