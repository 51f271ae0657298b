"""A thread per tracker: it reads the logs of the run while they grow, and gives each new line to the tool."""

from __future__ import annotations

import json
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.errors import one_line
from podsrl.integrations.trackers.table import rows_of
from podsrl.integrations.trackers.tools import TOOLS, Histogram, shown
from podsrl.lib.callbacks import Say
from podsrl.lib.logs import LogTail, write_atomically

Json = dict[str, Any]
POLL_SECONDS = 1.0
"""Between two looks at the logs."""
FIRST_DRAWING_SECONDS, DRAWING_SHARE = 60.0, 0.01
"""The figures are first drawn after so long, then as often as this share of the time allows, and once at the end."""
PATIENCE_SECONDS, END_SECONDS = 5.0, 60.0
"""After so long a line says what the ended run is waiting for, and after so long it waits no longer."""
_drawing = threading.Lock()
"""Matplotlib draws in one thread at a time."""


@contextmanager
def tracking(config: RunConfig, folder: Path, say: Say) -> Iterator[None]:
    """Run the trackers of `record.trackers` beside the block, and wait for them to finish after it, within a bound.

    Args:
        folder: of the run; its logs are read while they grow.
        say: gets a line where a tracker is switched off, and one with where its run can be seen. It is called
            from other threads.

    Nothing that happens to a tracker raises an exception here.
    """
    trackers = [_Tracker(name, config, folder, say) for name in config.record.trackers]
    for tracker in trackers:
        tracker.prepare()
    trackers = [tracker for tracker in trackers if tracker.is_ready]
    for tracker in trackers:
        tracker.start()
    try:
        yield
    except Exception:
        for tracker in trackers:
            tracker.is_failed = True
        _end(trackers, folder, say)
        raise
    finally:  # after Ctrl-C too: a process that lives on, as a notebook's, may resume the run
        for tracker in trackers:
            tracker.ended.set()
    _end(trackers, folder, say)


def _end(trackers: Sequence[_Tracker], folder: Path, say: Say) -> None:
    """Let all finish at the same time; a thread that hangs is left behind."""
    started = time.monotonic()
    for tracker in trackers:
        tracker.ended.set()
    for seconds, line in (
        (PATIENCE_SECONDS, f"waiting for {{}} to finish, at most {END_SECONDS:g} s"),
        (END_SECONDS, f"warning: {{}} did not finish; what it lacks it gets by pods train --resume {shown(folder)}"),
    ):
        for tracker in trackers:
            tracker.join(max(0.0, started + seconds - time.monotonic()))
        for tracker in filter(_Tracker.is_alive, trackers):
            say(line.format(tracker.name))


@dataclass(slots=True)
class State:
    """What a resumed run has to know of a tracker's run; RUN/trackers/NAME.json."""

    id: str
    """The tool's id of the run."""
    last_step: dict[str, int] = field(default_factory=dict)
    """Kind of line -> last step that the tool has."""

    @classmethod
    def read(cls, path: Path) -> State:
        """The state in a file; a new one where there is none, or where the file holds something else."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            value = json.loads(path.read_bytes())
            if value["id"].isalnum() and all(type(step) is int for step in value["last_step"].values()):
                return cls(value["id"], value["last_step"])
        return cls(uuid.uuid4().hex[:12])

    def lacks(self, kind: str, step: int) -> bool:
        """Whether the tool has no line of this kind yet; a resumed run makes some steps again."""
        return step > self.last_step.get(kind, -1)


class _Tracker(threading.Thread):
    """The logs of a run, and the tool that gets their lines."""

    def __init__(self, name: str, config: RunConfig, folder: Path, say: Say) -> None:
        super().__init__(name=f"tracker {name}", daemon=True)
        self._config, self._folder, self._say, self._own = config, folder, say, folder / "trackers" / name
        self._metrics, self._groups = LogTail(folder / "metrics.jsonl"), LogTail(folder / "groups.jsonl")
        self._waiting: list[Json] = []  # groups of a step whose metrics are not written yet
        self._step, self._drawn_step, self._saved = -1, -1, ""
        self.is_ready, self.ended = False, threading.Event()  # the tool is imported; the logs are complete
        self.is_failed = False  # the run ended with an error

    def prepare(self) -> None:
        """Import the tool, before any thread runs."""
        with self._switched_off_by_errors():
            self._own.mkdir(parents=True, exist_ok=True)
            self._state = State.read(self._own.with_suffix(".json"))
            make = TOOLS[self._own.name]
            self._tool = make(self._config.record.project, self._folder.name, self._own, self._state.id)
            self.is_ready = True

    def run(self) -> None:
        with self._switched_off_by_errors():
            self._save()  # the id: a run that is killed while its tracker begins goes on with it
            options = flat(self._config.model_dump(mode="json"))
            self._tool.start(options, max(self._state.last_step.values(), default=None), self._say)
            self._state.id = self._tool.id
            self._state.last_step.setdefault("step", -1)  # it has begun
            self._save()
            next_drawing, is_last = time.monotonic() + FIRST_DRAWING_SECONDS, False
            while not is_last:
                is_last = self.ended.wait(POLL_SECONDS)
                try:
                    self._take_new_lines()
                finally:
                    self._save()
                if is_last or time.monotonic() >= next_drawing:
                    next_drawing = time.monotonic() + self._draw() / DRAWING_SHARE
            self._tool.finish(is_failed=self.is_failed)
            self._say(self._tool.where)

    @contextmanager
    def _switched_off_by_errors(self) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            log, where = self._own.with_suffix(".log"), ""
            with suppress(OSError):  # a full disk
                log.write_text(traceback.format_exc())
                where = f" ({shown(log)})"
            reason = one_line(f"{type(error).__name__}: {error}", 300).rstrip(".")
            self._say(f"warning: {self.name} is switched off: {reason}; the run goes on without it{where}")

    def _take_new_lines(self) -> None:
        """Give the tool what is new, in ascending steps, as tools want them: a step's groups after its metrics."""
        lines = self._metrics.new_lines()
        self._step = max(self._step, *(line["step"] for line in lines)) if lines else self._step
        groups = self._waiting + self._groups.new_lines()
        self._waiting = [line for line in groups if line["step"] > self._step]
        lines += [line for line in groups if line["step"] <= self._step]
        for step, of_step in groupby(sorted(lines, key=itemgetter("step")), itemgetter("step")):
            recorded, notes = [], []
            for line in of_step:
                kind = "evaluation" if "eval/accuracy" in line else "step"
                if "rollouts" in line:
                    recorded.append(line)
                elif "note" in line:
                    notes.append(line["note"])
                elif self._state.lacks(kind, step):
                    if kind == "evaluation" and not self._state.lacks("step", step):
                        line.pop("seconds/train_elapsed", None)  # the step's own line has given it
                    self._tool.log(logged(line), step)
                    self._state.last_step[kind] = step
            for kind, value in (("note", "; ".join(notes)), ("groups", rows_of(recorded))):
                if value and self._state.lacks(kind, step):
                    self._tool.log({kind: value}, step)
                    self._state.last_step[kind] = step

    def _draw(self) -> float:
        """Draw the run's figures if there are new steps; returns the seconds that it took."""
        started = time.monotonic()
        if self._step > self._drawn_step:
            with _drawing:
                pictures = _pictures(self._folder, self._step)
            self._tool.log(pictures, self._step)
            self._drawn_step = self._step
        return time.monotonic() - started

    def _save(self) -> None:
        if (text := json.dumps(asdict(self._state))) != self._saved:
            write_atomically(self._own.with_suffix(".json"), text)
            self._saved = text


@lru_cache(maxsize=1)
def _pictures(folder: Path, step: int) -> Json:
    """The figures of the run's report up to a step, by name; all trackers of a run get the same."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from podsrl.report.figures.run import run_figures
    from podsrl.report.read import read_run

    found = {}
    for name, figure in run_figures({folder.name: [read_run(folder)]}).items():
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        found[f"figures/{name}"] = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return found


def flat(tree: Mapping[str, Any], prefix: str = "") -> Json:
    """The options of a config by their dotted names; those that are not set are left out.

    Example:
        >>> flat({"seed": 0, "lora": None, "select": {"rule": "random", "options": {}}, "record": {"trackers": ["a"]}})
        {'seed': 0, 'select.rule': 'random', 'record.trackers': 'a'}
    """
    found: Json = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return found


def logged(line: Mapping[str, Any]) -> Json:
    """The numbers of a line, its histograms, and the texts that say what went wrong; without what is null or empty.

    Example:
        >>> logged({"step": 3, "loss": 0.5, "kl": None, "invalid_reasons": ["a", "b"], "reward_timeout_reasons": []})
        {'loss': 0.5, 'invalid_reasons': 'a; b'}
        >>> logged({"step": 3, "histogram/rewards": {"low": 0.0, "high": 1.0, "counts": [3, 1]}})
        {'histogram/rewards': Histogram(counts=[3, 1], edges=[0.0, 0.5, 1.0])}
    """
    found: Json = {}
    for name, value in line.items():
        if name.startswith("histogram/") and value:
            low, high, counts = value["low"], value["high"], value["counts"]
            places = (i / len(counts) for i in range(len(counts) + 1))
            found[name] = Histogram(counts, [low * (1 - place) + high * place for place in places])
        elif isinstance(value, list):
            found[name] = "; ".join(map(str, value))
        elif not isinstance(value, dict) and name not in ("step", "sync/weights_digest", "eval/examples"):
            found[name] = value
    return {name: value for name, value in found.items() if value not in (None, "")}
