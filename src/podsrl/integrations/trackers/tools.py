"""The four tools behind the same few verbs. All but the making of one is called in its tracker's thread."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from podsrl.integrations.trackers.table import COLUMNS, markdown
from podsrl.lib.callbacks import Say


class Histogram(NamedTuple):
    """Counts of n bins, and their n + 1 edges."""

    counts: Sequence[int]
    edges: Sequence[float]


class Tool(ABC):
    """A tracking tool with one run in it."""

    package: ClassVar[str]
    environment: ClassVar[Mapping[str, str]] = {}
    """Environment variables that are set unless the user has set them: nothing is sent without being asked for."""
    run: Any
    """What the tool gives for a run."""
    where: str
    """How to look at the run, in a line."""

    def __init__(self, project: str, name: str, folder: Path, id: str) -> None:
        """`folder` is for the tool's own files; `id` names the run in it for good, also over resumes."""
        self.project, self.name, self.folder, self.id = project, name, folder, id
        for variable, value in self.environment.items():
            os.environ.setdefault(variable, value)
        self.module = self.load()

    def load(self) -> Any:
        """Import the package."""
        return importlib.import_module(self.package)

    @abstractmethod
    def start(self, options: Mapping[str, Any], last_step: int | None, say: Say) -> None:
        """Begin the run with its options, or go on with it where it has steps until `last_step`."""

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Give it what belongs to a step: numbers, texts, histograms, pictures [height, width, 3], and `rows_of`."""
        self.run.log({name: self._made(value) for name, value in values.items()}, step=step)

    def _made(self, value: Any) -> Any:
        """As W&B and trackio want it."""
        if isinstance(value, Histogram):
            return self.module.Histogram(np_histogram=tuple(value))
        if isinstance(value, list):
            pandas = importlib.import_module("pandas")
            return self.module.Table(dataframe=pandas.DataFrame(value, columns=list(COLUMNS), dtype=object))
        return self.module.Image(value) if hasattr(value, "shape") else value

    def finish(self, *, is_failed: bool) -> None:
        """Write and send all that is still held, and how the run ended where the tool knows that."""
        self.run.finish()


class Wandb(Tool):
    """Weights & Biases; offline where no one is logged in."""

    package = "wandb"
    environment: ClassVar = {
        "WANDB_SILENT": "true",  # it also asks nothing then
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_FINISH_TIMEOUT": "50",  # also of what it waits for when Python ends
        "WANDB_FINISH_TIMEOUT_RAISES": "true",
    }

    def start(self, options: Mapping[str, Any], last_step: int | None, say: Say) -> None:
        begun: dict[str, Any] = {
            "project": self.project,
            "name": self.name,
            "id": self.id,
            "resume": "allow",
            "reinit": "create_new",  # beside a run that the user's own code has
            "dir": os.environ.get("WANDB_DIR") or str(self.folder),
            "settings": self.module.Settings(console="off", silent=True, init_timeout=20, disable_git=True),
        }
        try:
            self.run = self.module.init(**begun)
        except self.module.errors.Error as error:
            # Where no server was reached, W&B's service holds the id; to end it would end the user's own run.
            if not isinstance(error, self.module.errors.UsageError):
                if self.module.run is None:
                    self.module.teardown()
                else:
                    begun["id"] = self.id = uuid.uuid4().hex[:12]
            self.run = self.module.init(**begun, mode="offline")
            reason = next(iter(str(error).splitlines()), "")
            say(f"wandb: offline, since W&B could not be reached or no one is logged in ({reason})")
        self.run.config.update(dict(options), allow_val_change=True)
        if self.run.offline:
            self.where = f"wandb: wandb sync {shown(Path(self.run.dir).parents[1])}/offline-run-*-{self.id}"
        else:
            self.where = f"wandb: {self.run.url or 'nothing was written (WANDB_MODE)'}"

    def finish(self, *, is_failed: bool) -> None:
        self.run.finish(exit_code=int(is_failed))


class TensorBoard(Tool):
    """TensorBoard, which has no tables: groups are text."""

    package = "torch.utils.tensorboard"

    def start(self, options: Mapping[str, Any], last_step: int | None, say: Say) -> None:
        # What an interrupted process may have written behind the last step is hidden.
        purge = None if last_step is None else last_step + 1
        self.run = self.module.SummaryWriter(str(self.folder / self.name), purge_step=purge)
        if last_step is None:  # in the run's own file: `add_hparams` makes a second run of them in TensorBoard's list
            for summary in self.module.summary.hparams(dict(options), {"eval/accuracy": None}):
                self.run.file_writer.add_summary(summary)
        self.where = f"tensorboard: tensorboard --logdir {shown(self.folder)}"

    def log(self, values: Mapping[str, Any], step: int) -> None:
        for name, value in values.items():
            if isinstance(value, Histogram):  # it wants sums too, and shows none
                low, *highs = value.edges
                self.run.add_histogram_raw(name, low, highs[-1], sum(value.counts), 0.0, 0.0, highs, value.counts, step)
            elif hasattr(value, "shape"):
                self.run.add_image(name, value, step, dataformats="HWC")
            elif isinstance(value, str | list):
                self.run.add_text(name, value if isinstance(value, str) else markdown(value), step)
            else:
                self.run.add_scalar(name, value, step)
        self.run.flush()

    def finish(self, *, is_failed: bool) -> None:
        self.run.close()


class Trackio(Tool):
    """trackio, in a folder of the run unless TRACKIO_DIR names another."""

    package = "trackio"
    environment: ClassVar = {"HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_ANALYTICS_ENABLED": "False"}

    def load(self) -> Any:
        """Import it anew: it takes its folder from the environment when it is imported."""
        self._forget()
        chosen = os.environ.get("TRACKIO_DIR")
        os.environ["TRACKIO_DIR"] = chosen or str(self.folder)
        try:
            return super().load()
        finally:
            if not chosen:
                del os.environ["TRACKIO_DIR"]

    def start(self, options: Mapping[str, Any], last_step: int | None, say: Say) -> None:
        name = f"{self.name}-{self.id}"
        self.run = self.module.init(self.project, name, config=dict(options), resume="allow", embed=False)
        folder = shown(self.module.TRACKIO_DIR)
        self.where = f"trackio: TRACKIO_DIR={folder} trackio show --project {shlex.quote(self.project)}"

    def finish(self, *, is_failed: bool) -> None:
        super().finish(is_failed=is_failed)
        self._forget()  # the next import, perhaps of the user's own code, has another folder

    def _forget(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == self.package]:
            del sys.modules[name]


class MLflow(Tool):
    """MLflow, in files of the run's folder unless MLFLOW_TRACKING_URI names a server or a database."""

    package = "mlflow"
    environment: ClassVar = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",  # it would draw from Python's generator, which a reward may use
    }

    def start(self, options: Mapping[str, Any], last_step: int | None, say: Say) -> None:
        chosen = os.environ.get("MLFLOW_TRACKING_URI")
        self.run = self.module.MlflowClient(chosen or self.folder.absolute().as_uri())
        if last_step is None:
            experiment = self.run.get_experiment_by_name(self.project)
            number = experiment.experiment_id if experiment else self.run.create_experiment(self.project)
            self.id = self.run.create_run(number, run_name=self.name).info.run_id
            params = [self.module.entities.Param(_mlflow_name(name), str(value)) for name, value in options.items()]
            for place in range(0, len(params), 100):  # as many as it takes at a time
                self.run.log_batch(self.id, params=params[place : place + 100])
        else:
            self.run.update_run(self.id, "RUNNING")
        command = f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {shown(self.folder)}"
        self.where = f"mlflow: run {self.id} on {chosen}" if chosen else f"mlflow: {command}"

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """MLflow has no texts and no histograms by step."""
        now, numbers = round(1000 * time.time()), []
        for name, value in values.items():
            if hasattr(value, "shape"):
                self.run.log_image(self.id, value, f"{name}.png")
            elif isinstance(value, list):
                self.run.log_dict(self.id, {"columns": COLUMNS, "data": value}, f"{name}/step-{step:08d}.json")
            elif isinstance(value, int | float):
                numbers.append(self.module.entities.Metric(_mlflow_name(name), value, now, step))
        self.run.log_batch(self.id, numbers)

    def finish(self, *, is_failed: bool) -> None:
        self.run.set_terminated(self.id, "FAILED" if is_failed else "FINISHED")


def _mlflow_name(name: str) -> str:
    """MLflow knows few characters: "eval/pass@2" is "eval/pass_2" there."""
    return re.sub(r"[^/\w.\- :]", "_", name)


TOOLS: dict[str, type[Tool]] = {"wandb": Wandb, "tensorboard": TensorBoard, "trackio": Trackio, "mlflow": MLflow}


def shown(path: Path) -> str:
    """A path as a command takes it: from here where it is below here."""
    absolute = path.absolute()
    return shlex.quote(str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute))
