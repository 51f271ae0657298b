"""The four tools, each behind the same few verbs, by Accelerate's classes where these have them.

Only a tracker's own process uses this module.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from podsrl.config.schema import RunConfig
from podsrl.integrations.trackers.start import Histogram, shown
from podsrl.integrations.trackers.table import COLUMNS, Row, markdown

INIT_SECONDS = 20
"""How long W&B's server may take to answer at the start."""


class Tool(ABC):
    """A tracking tool with one run in it."""

    name: ClassVar[str]
    environment: ClassVar[Mapping[str, str]] = {}
    """Environment variables that are set unless the user has set them: nothing is sent without being asked for."""
    keeps_config: ClassVar[bool] = True
    """Whether the options are still there when the run is gone on with."""

    def __init__(self, config: RunConfig, run_name: str, folder: Path, id: str) -> None:
        """`folder` is for the tool's own files; `id` names the run in it for good, also over resumes."""
        self.project, self.run_name, self.folder, self.id = config.record.project, run_name, folder, id
        self.tracker: Any = None
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)

    @abstractmethod
    def start(self, last_step: int | None) -> Sequence[str]:
        """Begin the run, or go on with it where `last_step` is the last one that it has. Returns lines for the user."""

    def _begin(self, *args: Any, **options: Any) -> None:
        """Make Accelerate's tracker and start it."""
        accelerate = importlib.import_module("accelerate")
        tracking = importlib.import_module("accelerate.tracking")
        accelerate.PartialState(cpu=True)  # its logger and its trackers ask for it
        self.tracker = tracking.LOGGER_TYPE_TO_CLASS[self.name](*args, **options)
        self.tracker.start()

    def log_config(self, options: Mapping[str, Any]) -> None:
        """The run's options, as hyper-parameters."""
        self.tracker.store_init_configuration(dict(options))

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Numbers and texts of a step."""
        self.tracker.log(dict(values), step=step)

    def log_histograms(self, histograms: Mapping[str, Histogram], step: int) -> None:
        """Counts and edges, by name."""
        tool = importlib.import_module(self.name)
        self.log({name: tool.Histogram(np_histogram=found) for name, found in histograms.items()}, step)

    @abstractmethod
    def log_figures(self, figures: Mapping[str, Any], step: int) -> None:
        """matplotlib figures, by name."""

    @abstractmethod
    def log_table(self, rows: Sequence[Row], step: int) -> None:
        """Recorded groups."""

    def finish(self) -> None:
        """Write and send all that is still held."""
        self.tracker.finish()

    @property
    @abstractmethod
    def where(self) -> str:
        """How to look at the run, in a line."""


class Wandb(Tool):
    """Weights & Biases; offline where no one is logged in."""

    name = "wandb"
    environment: ClassVar = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}

    def start(self, last_step: int | None) -> Sequence[str]:
        wandb = importlib.import_module("wandb")
        settings = wandb.Settings(
            console="off", silent=True, init_timeout=INIT_SECONDS, x_stats_pid=os.getppid(), disable_git=True
        )
        folder = os.environ.get("WANDB_DIR") or str(self.folder)
        options = {"name": self.run_name, "id": self.id, "resume": "allow", "dir": folder, "settings": settings}
        project = self.project
        try:
            self._begin(project, **options)
        except wandb.errors.Error as error:
            wandb.teardown()  # its service holds the id of a run that did not begin
            self._begin(project, **options, mode="offline")
            reason = next(iter(str(error).splitlines()), "")
            return [f"wandb: offline, since W&B could not be reached or no one is logged in ({reason})"]
        return []

    def log_figures(self, figures: Mapping[str, Any], step: int) -> None:
        self.tracker.log_images({f"figures/{name}": [pixels(figure)] for name, figure in figures.items()}, step=step)

    def log_table(self, rows: Sequence[Row], step: int) -> None:
        self.tracker.log_table("groups", columns=list(COLUMNS), data=[list(row) for row in rows], step=step)

    @property
    def where(self) -> str:
        run = self.tracker.run
        if run.offline:
            folder = shown(Path(run.dir).parents[1])
            return f"wandb: wandb sync {shlex.quote(folder)}/offline-run-*-{self.id}"
        return f"wandb: {run.url or 'nothing was written (WANDB_MODE)'}"


class TensorBoard(Tool):
    """TensorBoard, which has no tables: groups are text."""

    name = "tensorboard"

    def start(self, last_step: int | None) -> Sequence[str]:
        # What an interrupted process may have written behind the last step is hidden.
        purge = {} if last_step is None else {"purge_step": last_step + 1}
        self._begin(self.run_name, self.folder, **purge)
        return []

    def log_config(self, options: Mapping[str, Any]) -> None:
        """In the run's own file: Accelerate's way makes a second run of them in TensorBoard's list."""
        hparams = importlib.import_module("torch.utils.tensorboard.summary").hparams
        writer = self.tracker.tracker
        for summary in hparams(dict(options), {"eval/accuracy": None}):
            writer.file_writer.add_summary(summary)
        writer.flush()

    def log_histograms(self, histograms: Mapping[str, Histogram], step: int) -> None:
        """TensorBoard also stores sums, which it does not show: those of the bins' middles."""
        for name, (counts, edges) in histograms.items():
            middles = [(low + high) / 2 for low, high in pairwise(edges)]
            sums = [sum(n * x**power for n, x in zip(counts, middles, strict=True)) for power in (1, 2)]
            self.tracker.tracker.add_histogram_raw(
                name, edges[0], edges[-1], sum(counts), *sums, edges[1:], counts, global_step=step
            )

    def log_figures(self, figures: Mapping[str, Any], step: int) -> None:
        arrays = {f"figures/{name}": pixels(figure)[None] for name, figure in figures.items()}
        self.tracker.log_images(arrays, step=step, dataformats="NHWC")
        self.tracker.tracker.flush()

    def log_table(self, rows: Sequence[Row], step: int) -> None:
        self.log({"groups": markdown(rows)}, step)

    @property
    def where(self) -> str:
        return f"tensorboard: tensorboard --logdir {shlex.quote(shown(self.folder))}"


class Trackio(Tool):
    """trackio, in a folder of the run unless TRACKIO_DIR names another."""

    name = "trackio"
    environment: ClassVar = {"HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
    keeps_config = False

    def start(self, last_step: int | None) -> Sequence[str]:
        os.environ.setdefault("TRACKIO_DIR", str(self.folder))
        self._begin(self.project, name=f"{self.run_name}-{self.id}", resume="allow", embed=False)
        return []

    def log_config(self, options: Mapping[str, Any]) -> None:
        """Accelerate's way adds an option of its own to them."""
        importlib.import_module("trackio").config.update(dict(options))

    def log_figures(self, figures: Mapping[str, Any], step: int) -> None:
        trackio = importlib.import_module("trackio")
        self.log({f"figures/{name}": trackio.Image(pixels(figure)) for name, figure in figures.items()}, step)

    def log_table(self, rows: Sequence[Row], step: int) -> None:
        trackio, pandas = importlib.import_module("trackio"), importlib.import_module("pandas")
        self.log({"groups": trackio.Table(dataframe=pandas.DataFrame(rows, columns=list(COLUMNS), dtype=object))}, step)

    @property
    def where(self) -> str:
        folder = shlex.quote(shown(Path(os.environ["TRACKIO_DIR"])))
        return f"trackio: TRACKIO_DIR={folder} trackio show --project {shlex.quote(self.project)}"


class MLflow(Tool):
    """MLflow, in files of the run's folder unless MLFLOW_TRACKING_URI names a server or a database."""

    name = "mlflow"
    environment: ClassVar = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}

    def start(self, last_step: int | None) -> Sequence[str]:
        os.environ.setdefault("MLFLOW_TRACKING_URI", self.folder.absolute().as_uri())
        is_known = last_step is not None
        self._begin(self.project, run_id=self.id if is_known else None, run_name=self.run_name)
        self.id = self.tracker.tracker.info.run_id
        return []

    def log_config(self, options: Mapping[str, Any]) -> None:
        super().log_config({_mlflow_name(name): value for name, value in options.items()})

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Numbers alone: MLflow has no texts by step."""
        numbers = {_mlflow_name(name): value for name, value in values.items() if not isinstance(value, str)}
        super().log(numbers, step)

    def log_histograms(self, histograms: Mapping[str, Histogram], step: int) -> None:
        """MLflow has none."""

    def log_figures(self, figures: Mapping[str, Any], step: int) -> None:
        for name, figure in figures.items():
            self.tracker.log_figure(figure, f"figures/{name}.png")

    def log_table(self, rows: Sequence[Row], step: int) -> None:
        mlflow = importlib.import_module("mlflow")
        mlflow.log_dict({"columns": COLUMNS, "data": rows}, f"groups/step-{step:08d}.json")

    @property
    def where(self) -> str:
        uri = os.environ["MLFLOW_TRACKING_URI"]
        if not uri.startswith("file:"):
            return f"mlflow: run {self.id} on {uri}"
        where = shlex.quote(shown(self.folder))
        return f"mlflow: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {where}"


def _mlflow_name(name: str) -> str:
    """MLflow knows few characters: "eval/pass@2" is "eval/pass_2" there."""
    return re.sub(r"[^/\w.\- :]", "_", name)


TOOLS: dict[str, type[Tool]] = {tool.name: tool for tool in (Wandb, TensorBoard, Trackio, MLflow)}


def pixels(figure: Any) -> Any:
    """A figure as [height, width, 3] of uint8."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
