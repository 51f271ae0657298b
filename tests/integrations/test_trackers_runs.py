"""Real runs into W&B, TensorBoard, trackio and MLflow, on disk; each is read back by the tool's own reader."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

import small_options
from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig
from podsrl.integrations.trackers import start as trackers_start
from podsrl.integrations.trackers import tracking
from podsrl.run.before.checks import is_installed
from podsrl.run.session import resume, start
from waiting import is_alive, wait_for, words_of

NAMES = ("wandb", "tensorboard", "trackio", "mlflow")
SMALL = (
    *small_options.SMALL,
    "--eval.num_samples=2",
    "--eval.every_steps=4",
    "--record.groups_every_steps=3",
    "--checkpoint.every_seconds=0",
    "--checkpoint.every_steps=4",
)
PATIENCE_SECONDS = 300.0
"""How long a test waits for a tracker's process, on a busy machine."""
Json = dict[str, Any]
Points = dict[str, dict[int, list[float]]]

pytestmark = [pytest.mark.skipif(not is_installed(name), reason=f"{name} is not installed") for name in NAMES]


def config_of(*overrides: str) -> RunConfig:
    return build(RunConfig, apply_overrides(read_tree("pods"), [*SMALL, *overrides]), "of the test")


def lines_of(folder: Path, log: str = "metrics.jsonl") -> list[Json]:
    return [json.loads(line) for line in (folder / log).read_text().splitlines()]


def without_clock(lines: list[Json]) -> list[Json]:
    return [{k: v for k, v in line.items() if not k.startswith(("seconds/", "memory/"))} for line in lines]


def left_behind() -> list[list[str]]:
    """Command lines of this process's children that belong to trackers."""
    running = [words_of(child.pid) for child in psutil.Process().children(recursive=True) if is_alive(child.pid)]
    return [words for words in running if "trackers.follow" in " ".join(words) or "wandb" in " ".join(words)]


@pytest.fixture(scope="module")
def tracked_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A run of 8 steps that was killed after step 6 and resumed from step 4, so that it made two steps twice."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        temporary = tmp_path_factory.mktemp("temporary")
        patch.setattr("tempfile.tempdir", str(temporary))
        patch.setenv("NETRC", os.devnull)
        patch.setattr(trackers_start, "END_SECONDS", PATIENCE_SECONDS)
        patch.chdir(tmp_path_factory.mktemp("where"))
        folder, said = tmp_path_factory.mktemp("runs") / "tracked", list[str]()
        config = config_of("--stop.steps=6", f"--record.trackers={','.join(NAMES)}")
        watched: Any = {"on_record": lambda line: None, "say": said.append, "tracking": tracking}
        start(config, folder, **watched)
        shutil.rmtree(folder / "checkpoints" / "step-00000006")
        (folder / "finished.json").unlink()
        resume(folder, ["--stop.steps=8"], **watched)
        assert list(temporary.glob("podsrl-*")) == []
        yield folder, said


def every_number(folder: Path) -> dict[tuple[str, int], float]:
    """All numbers of a run's metrics by name and step."""
    return {
        (name, line["step"]): float(value)
        for line in lines_of(folder)
        for name, value in line.items()
        if name != "step" and isinstance(value, int | float)
    }


def check_points(points: Points, folder: Path, relative: float = 0.0, rename: Callable[[str], str] = str) -> None:
    """All numbers of the metrics are there, once each; clocks and memory differ in what was made again."""
    expected = every_number(folder)
    assert len(expected) > 300 and ("eval/pass@2", 8) in expected
    for (name, step), value in expected.items():
        found = points.get(rename(name), {}).get(step, [])
        if name.startswith(("seconds/", "memory/")):
            assert len(found) == 1, (name, step, found)
        else:
            assert found == [pytest.approx(value, rel=relative, abs=relative)], (name, step)
    assert {step for steps in points.values() for step in steps} <= set(range(9))


def recorded_rollouts(folder: Path) -> Counter[tuple[int, str, bool]]:
    return Counter(
        (line["step"], rollout["text"], rollout["kept"])
        for line in lines_of(folder, "groups.jsonl")
        for rollout in line["rollouts"]
    )


HISTOGRAMS = {f"histogram/{name}" for name in ("rewards", "rewards_kept", "lengths", "advantages")}
NUM_ROLLOUTS, NUM_KEPT = 16, 8
"""Of a step."""


def check_histograms(totals: dict[str, dict[int, list[int]]]) -> None:
    """Name -> step -> the sum of its counts: each histogram is there once per step, of all or of the kept rollouts."""
    kept = {"histogram/rewards_kept", "histogram/advantages"}
    assert totals == {
        name: {step: [NUM_KEPT if name in kept else NUM_ROLLOUTS] for step in range(1, 9)} for name in HISTOGRAMS
    }


FIGURES = {"accuracy", "reward", "reward_std", "train_accuracy", "length", "seconds", "tokens"}


def test_all_trackers_say_where_their_run_is(tracked_run: tuple[Path, list[str]]) -> None:
    folder, said = tracked_run
    assert not [line for line in said if "switched off" in line]
    for command in ("wandb sync", "tensorboard --logdir", "trackio show", "mlflow ui"):
        assert len([line for line in said if command in line]) == 2, command
    assert len([line for line in said if line.startswith("wandb: offline")]) == 2
    wait_for(lambda: left_behind() == [], "no process of a tracker is left")  # wandb's ends by itself, a little later
    assert {path.name for path in folder.iterdir()} >= {"trackers", "metrics.jsonl"}
    assert list(Path.cwd().iterdir()) == []


def test_tensorboard_holds_the_run(tracked_run: tuple[Path, list[str]]) -> None:
    folder, _ = tracked_run
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(
        str(folder / "trackers" / "tensorboard" / folder.name),
        {"scalars": 0, "images": 0, "tensors": 0, "histograms": 0},
    ).Reload()
    points: Points = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            points.setdefault(tag, {}).setdefault(event.step, []).append(event.value)
    check_points(points, folder, relative=1e-6)
    totals: dict[str, dict[int, list[int]]] = {}
    for tag in events.Tags()["histograms"]:
        for event in events.Histograms(tag):
            totals.setdefault(tag, {}).setdefault(event.step, []).append(int(sum(event.histogram_value.bucket)))
    check_histograms(totals)
    assert not [tag for tag in events.Tags()["tensors"] if "digest" in tag]
    pictures = {tag: events.Images(tag) for tag in events.Tags()["images"]}
    assert {f"figures/{name}" for name in FIGURES} <= pictures.keys()
    assert all(image.encoded_image_string.startswith(b"\x89PNG") for images in pictures.values() for image in images)
    tables = {event.step: event.tensor_proto.string_val[0].decode() for event in events.Tensors("groups/text_summary")}
    rows = {step: text.count("\n") - 1 for step, text in tables.items()}
    assert rows == Counter(step for step, _, _ in recorded_rollouts(folder).elements())
    assert "not&#95;selected" in "".join(tables.values())
    config = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"select.num_kept" in config


def wandb_records(folder: Path) -> Iterator[Any]:
    """Records of the offline files, in W&B's own protobuf; the files are logs in LevelDB's format."""
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    for file in sorted(folder.glob("trackers/wandb/wandb/offline-run-*/*.wandb")):
        data, at, text = file.read_bytes(), 7, b""
        while at + 7 <= len(data):
            if (room := 32768 - at % 32768) < 7:
                at += room
                continue
            _, size, kind = struct.unpack("<IHB", data[at : at + 7])
            text, at = text + data[at + 7 : at + 7 + size], at + 7 + size
            if kind in (1, 4):  # whole, or the last part
                yield record_type.FromString(text)
                text = b""


def test_wandb_holds_the_run(tracked_run: tuple[Path, list[str]]) -> None:
    folder, _ = tracked_run
    points: Points = {}
    totals: dict[str, dict[int, list[int]]] = {}
    steps, ids, options, names = [], set(), {}, set()
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            steps.append(record.history.step.num)
            for item in record.history.item:
                name, value = item.key or "/".join(item.nested_key), json.loads(item.value_json)
                if isinstance(value, int | float) and not name.startswith("_"):
                    points.setdefault(name, {}).setdefault(steps[-1], []).append(value)
                if (histogram := name.removesuffix("/values")) in HISTOGRAMS and histogram != name:
                    totals.setdefault(histogram, {}).setdefault(steps[-1], []).append(sum(value))
                names.add(name)
        elif record.WhichOneof("record_type") == "run":
            ids.add((record.run.run_id, record.run.project, record.run.display_name))
        elif record.WhichOneof("record_type") == "config":
            options |= {item.key: json.loads(item.value_json) for item in record.config.update}
    check_points(points, folder)
    check_histograms(totals)
    assert "sync/weights_digest" not in names
    assert steps == sorted(steps) and len(ids) == 1
    assert next(iter(ids))[1:] == ("podsrl", folder.name)
    assert options["select.num_kept"] == 4 and options["select.rule"] == "max_variance"
    assert {f"figures/{figure}" for figure in FIGURES} <= {"/".join(name.split("/")[:2]) for name in names}
    pictures = [path.name for path in folder.glob("trackers/wandb/wandb/offline-run-*/files/media/**/*.png")]
    assert all(len([name for name in pictures if name.startswith(f"{figure}_8_")]) == 1 for figure in FIGURES)
    tables = list(folder.glob("trackers/wandb/wandb/offline-run-*/files/media/table/*.json"))
    rows = [dict(zip(table["columns"], row, strict=True)) for table in map(load, tables) for row in table["data"]]
    check_rows(rows, folder)


def load(path: Path) -> Json:
    found: Json = json.loads(path.read_text())
    return found


def check_rows(rows: list[Json], folder: Path) -> None:
    assert Counter((row["step"], row["completion"], row["kept"]) for row in rows) == recorded_rollouts(folder)
    assert all((row["advantage"] is not None) == row["kept"] for row in rows)
    assert {row["why"] for row in rows if not row["kept"]} == {"not_selected"}
    assert all(isinstance(row["reward"], float) and row["prompt"].startswith("What is") for row in rows)


def test_trackio_holds_the_run(tracked_run: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = tracked_run
    storage, utils = import_module("trackio.sqlite_storage"), import_module("trackio.utils")
    for module in (storage, utils):
        monkeypatch.setattr(module, "TRACKIO_DIR", folder / "trackers" / "trackio")
    (run,) = storage.SQLiteStorage.get_runs("podsrl")
    points: Points = {}
    totals: dict[str, dict[int, list[int]]] = {}
    pictures, rows = set(), []
    for entry in storage.SQLiteStorage.get_logs("podsrl", run):
        for name, value in entry.items():
            if isinstance(value, int | float) and name != "step":
                points.setdefault(name, {}).setdefault(entry["step"], []).append(value)
            elif name in HISTOGRAMS:
                totals.setdefault(name, {}).setdefault(entry["step"], []).append(sum(value["values"]))
            elif name.startswith("figures/"):
                pictures.add((name, entry["step"]))
                assert (folder / "trackers" / "trackio" / "media" / value["file_path"]).is_file()
            elif name == "groups":
                rows += value["_value"]
    check_points(points, folder)
    check_histograms(totals)
    assert {(f"figures/{name}", 8) for name in FIGURES} <= pictures
    check_rows(rows, folder)
    config = storage.SQLiteStorage.get_run_config("podsrl", run)
    assert config["select.num_kept"] == 4 and "allow_val_change" not in config


def test_mlflow_holds_the_run(tracked_run: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = tracked_run
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = import_module("mlflow")
    uri = (folder / "trackers" / "mlflow").as_uri()
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("podsrl").experiment_id])
    points: Points = {}
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            points.setdefault(name, {}).setdefault(metric.step, []).append(metric.value)
    check_points(points, folder, rename=lambda name: name.replace("@", "_"))
    assert run.data.params["select.num_kept"] == "4" and run.info.status == "FINISHED"
    assert run.info.run_name == folder.name
    pictures = {Path(file.path).stem for file in client.list_artifacts(run.info.run_id, "figures")}
    assert pictures >= FIGURES
    rows = []
    for file in client.list_artifacts(run.info.run_id, "groups"):
        path = client.download_artifacts(run.info.run_id, file.path)
        table = load(Path(path))
        rows += [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    check_rows(rows, folder)


def process_of(name: str) -> psutil.Process:
    """The process of a tracker of this test."""
    return next(child for child in psutil.Process().children() if f'["{name}",' in " ".join(words_of(child.pid)))


def test_each_tracker_breaks_in_its_own_way_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B's service is killed, TensorBoard's folder becomes a file, trackio's process is killed, MLflow's server is
    not there: one line each, and the numbers of a run without trackers."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "TRACKIO_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", os.devnull)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # its client tries again for minutes
    monkeypatch.setattr(trackers_start, "END_SECONDS", 2.0)
    monkeypatch.setattr(trackers_start, "PATIENCE_SECONDS", 1.0)
    folder, said = tmp_path / "broken", list[str]()
    files = folder / "trackers"

    def on_record(line: Json) -> None:
        if line["step"] == 2:
            for name in ("wandb", "tensorboard", "trackio"):
                wait_for(lambda name=name: '"step": 2' in (files / f"{name}.json").read_text(), name)  # type: ignore[misc]
            next(iter(process_of("wandb").children())).kill()
            process_of("trackio").kill()
            (files / "tensorboard").rename(tmp_path / "elsewhere")
            (files / "tensorboard").write_text("no folder")
        if line["step"] == 3:
            wait_for(lambda: len([text for text in said if "switched off" in text]) == 3, "three lines")

    for name in ("wandb", "tensorboard", "trackio"):  # so that they can be read before a process is there
        files.mkdir(parents=True, exist_ok=True)
        (files / f"{name}.json").write_text("")
    start(
        config_of("--stop.steps=6", f"--record.trackers={','.join(NAMES)}"),
        folder,
        on_record=on_record,
        say=said.append,
        tracking=tracking,
    )
    for name in ("wandb", "tensorboard", "trackio"):
        assert len([line for line in said if f"tracker {name} is switched off" in line]) == 1, said
    assert len([line for line in said if "tracker mlflow did not finish" in line]) == 1, said
    assert left_behind() == []
    start(config_of("--stop.steps=6"), tmp_path / "plain", on_record=lambda line: None, say=lambda text: None)
    assert without_clock(lines_of(folder)) == without_clock(lines_of(tmp_path / "plain"))
    weights = [
        (tmp_path / run / "checkpoints" / "step-00000006" / "model" / "model.safetensors").read_bytes()
        for run in ("broken", "plain")
    ]
    assert weights[0] == weights[1]
