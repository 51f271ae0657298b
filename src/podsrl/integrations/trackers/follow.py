"""A tracker's process: read the logs of a run while they grow, and give each new line to the tool.

A message of the run, or the end of its channel, says that the logs are complete. Messages to the run are lines for the
user; what the tool itself prints goes to RUN/trackers/NAME.log.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import shutil
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError, one_line
from podsrl.integrations.trackers.start import END_SECONDS, FOLDER, SAID_WHY, TEMPORARY, Histogram, switched_off
from podsrl.lib.below import kill_below
from podsrl.lib.channel import Channel
from podsrl.lib.logs import LogTail, write_atomically

Json = dict[str, Any]
POLL_SECONDS = 1.0
"""Between two looks at the logs."""
FIRST_DRAWING_SECONDS = 60.0
"""The figures are first drawn after this long, and once more at the end."""
DRAWING_SHARE = 0.01
"""Most of the time that drawing may take."""
NICENESS = 5
"""The run's own processes come first."""


@dataclass(slots=True)
class State:
    """What the next process has to know of a tracker's run; RUN/trackers/NAME.json."""

    id: str
    """The tool's id of the run."""
    is_begun: bool = False
    """Whether the tool has the config."""
    last_step: dict[str, int] = field(default_factory=dict)
    """Kind of line -> last step that the tool has."""

    @classmethod
    def read(cls, path: Path) -> State:
        """The state in a file; a new one where there is none, or where the file holds something else."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            value = json.loads(path.read_bytes())
            last = {str(kind): step for kind, step in value["last_step"].items() if type(step) is int}
            if isinstance(value["id"], str) and value["id"].isalnum() and len(value["id"]) <= 64:
                return cls(value["id"], value["is_begun"] is True, last)
        return cls(uuid.uuid4().hex[:12])

    def is_new(self, kind: str, step: int) -> bool:
        """Whether the tool lacks a line. A resumed run makes some steps again, with the same numbers."""
        return step > self.last_step.get(kind, -1)


def kind_of(line: Mapping[str, Any]) -> str:
    """What a line of metrics.jsonl describes."""
    return "note" if "note" in line else "evaluation" if "eval/accuracy" in line else "step"


class Follower:
    """The logs of a run, and the tool that gets their lines."""

    def __init__(self, name: str, folder: Path, say: Callable[[str], None]) -> None:
        from podsrl.config.files import read_tree
        from podsrl.config.load import build
        from podsrl.config.schema import RunConfig
        from podsrl.integrations.trackers.tools import TOOLS

        self._folder, self._say = folder, say
        self._own = folder / FOLDER / name
        self._own.mkdir(exist_ok=True)
        self._state_file = folder / FOLDER / f"{name}.json"
        self._state = State.read(self._state_file)
        self._metrics, self._groups = LogTail(folder / "metrics.jsonl"), LogTail(folder / "groups.jsonl")
        self._waiting: list[Json] = []  # groups of a step whose metrics are not written yet
        self._step, self._drawn_step, self._saved = -1, -1, ""
        config = build(RunConfig, read_tree(folder / "config.toml"), "of the run")
        self._tool = TOOLS[name](config, folder.name, self._own, self._state.id)
        for line in self._tool.start(self._state.last_step.get("step")):
            say(line)
        self._state.id = self._tool.id
        if not (self._state.is_begun and self._tool.keeps_config):
            self._tool.log_config(flat(config.model_dump(mode="json")))
            self._state.is_begun = True
        self._save()
        self._identity = _identity(self._own)

    def follow(self, ended: threading.Event) -> None:
        """Give the tool what is new until the run has ended, then finish."""
        next_drawing = time.monotonic() + FIRST_DRAWING_SECONDS
        while True:
            is_last = ended.wait(POLL_SECONDS)
            if _identity(self._own) != self._identity:
                raise FileNotFoundError(f"{self._own} was moved or replaced")
            try:
                self._take_new_lines()
            finally:
                self._save()
            if is_last or time.monotonic() >= next_drawing:
                next_drawing = time.monotonic() + self._draw() / DRAWING_SHARE
            if is_last:
                self._tool.finish()
                self._say(self._tool.where)
                return

    def _take_new_lines(self) -> None:
        """Tools want ascending steps, so a step's groups follow its metrics."""
        lines = self._metrics.new_lines()
        self._waiting += self._groups.new_lines()
        for line in lines:
            if line["step"] > self._step:
                self._take_groups(before=line["step"])
            self._step = max(self._step, line["step"])
            if self._is_new(kind_of(line), line["step"]):
                values = logged(line)
                if kind_of(line) == "evaluation" and not self._state.is_new("step", line["step"]):
                    values.pop("seconds/train_elapsed", None)  # the step's own line has given it
                self._tool.log(values, line["step"])
                if found := histograms(line):
                    self._tool.log_histograms(found, line["step"])
        self._take_groups(before=self._step + 1)

    def _take_groups(self, before: int) -> None:
        from podsrl.integrations.trackers.table import rows_of

        ready = [line for line in self._waiting if line["step"] < before]
        self._waiting = [line for line in self._waiting if line["step"] >= before]
        for step in sorted({line["step"] for line in ready}):
            if self._is_new("groups", step):
                self._tool.log_table(rows_of(line for line in ready if line["step"] == step), step)

    def _is_new(self, kind: str, step: int) -> bool:
        """Whether the tool lacks a line, which it gets now."""
        if not self._state.is_new(kind, step):
            return False
        self._state.last_step[kind] = step
        return True

    def _draw(self) -> float:
        """Draw the run's figures if there are new steps; returns the seconds that it took."""
        from podsrl.report.figures.run import run_figures
        from podsrl.report.read import read_run

        started = time.monotonic()
        if self._step > self._drawn_step:
            run = read_run(self._folder)
            self._tool.log_figures(run_figures({self._folder.name: [run]}), self._step)
            self._drawn_step = self._step
        return time.monotonic() - started

    def _save(self) -> None:
        if (text := json.dumps(asdict(self._state))) != self._saved:
            write_atomically(self._state_file, text)
            self._saved = text


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
    """The numbers of a line, and the texts that say what went wrong; without what is null or empty.

    Example:
        >>> logged({"step": 3, "loss": 0.5, "kl": None, "invalid_reasons": ["a", "b"], "reward_timeout_reasons": []})
        {'loss': 0.5, 'invalid_reasons': 'a; b'}
    """
    joined = {name: "; ".join(map(str, value)) if isinstance(value, list) else value for name, value in line.items()}
    for name in ("step", "sync/weights_digest", "eval/examples"):  # the last two are for readers of the file
        joined.pop(name, None)
    return {name: value for name, value in joined.items() if value not in (None, "") and not isinstance(value, dict)}


def histograms(line: Mapping[str, Any]) -> dict[str, Histogram]:
    """The histograms of a line as counts and edges of bins.

    Example:
        >>> histograms({"step": 3, "histogram/rewards": {"low": 0.0, "high": 1.0, "counts": [3, 1]}})
        {'histogram/rewards': ([3, 1], [0.0, 0.5, 1.0])}
    """
    found = {name: value for name, value in line.items() if name.startswith("histogram/") and value is not None}
    return {name: (value["counts"], _edges(**value)) for name, value in found.items()}


def _edges(low: float, high: float, counts: Sequence[int]) -> list[float]:
    share = [place / len(counts) for place in range(len(counts) + 1)]
    return [low * (1 - part) + high * part for part in share]


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def main(channel: Channel, name: str, folder: str) -> int:
    """Follow a run; standard output and standard error are the tracker's log. Returns the exit code."""
    os.nice(NICENESS)

    def say(line: str) -> None:
        with suppress(OSError):  # the run was killed
            channel.send(one_line(line))

    ended = _when_ended(channel)
    try:
        fcntl.flock(1, fcntl.LOCK_EX)  # the process of a run that was killed may still be finishing
        Follower(name, Path(folder), say).follow(ended)
    except (Exception, SystemExit) as error:
        say(f"warning: {switched_off(name, _reason(error), Path(folder, FOLDER, f'{name}.log'))}")
        with suppress(OSError):  # a full disk
            traceback.print_exc()
        return SAID_WHY
    finally:
        _clear()
    return 0


def _reason(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return first if isinstance(error, UsageError) else f"{type(error).__name__}: {first}"


def _when_ended(channel: Channel) -> threading.Event:
    """Set when the run says that its logs are complete, or is gone; the process then ends within a bound.

    The run ends it at the same bound; this holds where the run is gone.
    """
    ended = threading.Event()

    def wait() -> None:
        channel.receive()
        faulthandler.dump_traceback_later(END_SECONDS + 10, exit=True)  # even where no thread of Python goes on
        ended.set()
        time.sleep(END_SECONDS + 5)
        _clear()
        kill_below(os.getpid())
        os._exit(1)  # without what tools do at Python's end, which may hang

    threading.Thread(target=wait, name="end of the run", daemon=True).start()
    return ended


def _clear() -> None:
    if temporary := os.environ.get(TEMPORARY):
        shutil.rmtree(temporary, ignore_errors=True)
