"""What a person sees while something runs: a bar with the time left, or plain lines where there is no terminal.

In a notebook, one line is written over.
Without a terminal, a line appears every ten seconds, even when there is nothing new: this tells a slow phase from a
process that hangs. Lines printed by `say` come on top.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from podsrl.cli.console import counted, errors
from podsrl.cli.picture import LEAST_HEIGHT, Picture
from podsrl.config.schema import RunConfig
from podsrl.errors import cut
from podsrl.lib.callbacks import Progress as ReportProgress
from podsrl.lib.time_left import Clock, TimeLeft, share_done

LINE_SECONDS = 10.0
"""Without a terminal, the time between two lines."""
FIRST_LINE_SECONDS = 3.0
"""Without a terminal, the first line comes after this long."""
BEAT_SECONDS = 0.5
"""Between two looks at whether a line is due, and between two lines of a notebook."""


class Display(Protocol):
    """A display of progress; a context manager that shows it while entered."""

    def update(self, done: float, total: float | None, text: str = "") -> None:
        """Report `done` out of `total` (None: not known), in any unit."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *error: Any) -> None: ...


def shown(name: str, *, folder: Path | None = None, is_plain: bool = False) -> Display:
    """A live bar in a terminal, or the picture of a folder's runs; elsewhere, or where asked for, plain lines."""
    if is_plain or not _is_live():
        return Cell(name) if errors.is_jupyter else Lines(name)
    return Live(name) if folder is None or errors.height < LEAST_HEIGHT else Picture(folder, errors)


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


class Lines:
    """Whole lines for a log, with `name` in front of each."""

    _open: ClassVar[list[Lines]] = []
    """Entered and not left; the innermost one speaks, in the name of all."""

    def __init__(self, name: str, clock: Clock = time.monotonic, console: Console = errors) -> None:
        self._name, self._clock, self._console = name, clock, console
        self._left = TimeLeft(clock)
        self._share: float | None = None
        self._text = ""
        self._due = clock() + FIRST_LINE_SECONDS
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="progress lines", daemon=True)

    def __enter__(self) -> Lines:
        Lines._open.append(self)
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ended.set()
        self._thread.join()
        Lines._open.remove(self)

    def update(self, done: float, total: float | None, text: str = "") -> None:
        """Report (see `Display`)."""
        with self._lock:
            self._text, self._share = text, done / total if total else None
            if self._share is not None:
                self._left.report(self._share)
        self.beat()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._print(text)

    def beat(self) -> None:
        """Print how far it is, where that is due."""
        with self._lock:
            if self._clock() < self._due:
                return
            self._due = self._clock() + LINE_SECONDS
            self._print(_line(self._name, self._share, self._left, self._text))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if Lines._open[-1] is self:
                self.beat()


class Cell:
    """One line of a notebook's cell, written over twice a second; of the lines that stay there are warnings alone."""

    def __init__(self, name: str, clock: Clock = time.monotonic) -> None:
        self._name, self._clock, self._left = name, clock, TimeLeft(clock)
        self._newest, self._shown, self._due = "", "", clock()

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._newest:
            self._write(self._newest, "\n")

    def update(self, done: float, total: float | None, text: str = "") -> None:
        """Report (see `Display`)."""
        share = done / total if total else None
        if share is not None:
            self._left.report(share)
        self._newest = _line(self._name, share, self._left, text)
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


def _line(name: str, share: float | None, left: TimeLeft, text: str) -> str:
    percent = "" if share is None else f"{share:4.0%}  "
    return f"{name}  {percent}{left.text}  {text}".rstrip()


class _Bars(Progress):
    """A bar, and below it a line of text that has the terminal's whole width."""

    note = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.note:
            yield Text(self.note)


class Live:
    """A bar in a terminal that redraws itself."""

    def __init__(self, name: str, console: Console = errors) -> None:
        self._bars = _Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            _LeftColumn("", table_column=Column(no_wrap=True)),
            console=console,
        )
        self._task, self._left = self._bars.add_task(name, total=None, left=(left := TimeLeft())), left

    def __enter__(self) -> Live:
        self._bars.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bars.stop()

    def update(self, done: float, total: float | None, text: str = "") -> None:
        """Report (see `Display`); the text stands below the bar."""
        if total:
            self._left.report(done / total)
        self._bars.note = text
        self._bars.update(self._task, completed=done, total=total)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


class _LeftColumn(TextColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.finished else task.fields["left"].text)


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
        self._steps, self._seconds = config.stop.steps, config.stop.seconds
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
                self.say(
                    f"warning: {record[metric]} {what} ({'; '.join(record[reasons])}); later ones are counted in "
                    f"metrics.jsonl ({metric})"
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
