"""Real runs into W&B, TensorBoard, trackio and MLflow, on disk; each is read back by the tool's own reader."""

from __future__ import annotations

import html
import json
import shutil
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import small_options
import tracker_tools
from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig
from podsrl.integrations.trackers import follow, tracking
from podsrl.integrations.trackers.table import COLUMNS
from podsrl.run.before.checks import is_installed
from podsrl.run.session import resume, start
from runs import lines_of, numbers
from waiting import wait_for, words_of

NAMES = ("wandb", "tensorboard", "trackio", "mlflow")
SMALL = (
    *small_options.SMALL,
    "--eval.num_samples=2",
    "--eval.every_steps=4",
    "--record.groups_every_steps=3",
    "--checkpoint.every_seconds=0",
    "--checkpoint.every_steps=4",
)
Json = dict[str, Any]
Points = dict[str, dict[int, list[float]]]

pytestmark = [pytest.mark.skipif(not is_installed(name), reason=f"{name} is not installed") for name in NAMES]


def config_of(*overrides: str) -> RunConfig:
    return build(RunConfig, apply_overrides(read_tree("pods"), [*SMALL, *overrides]), "of the test")


@pytest.fixture(scope="module")
def tracked_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A run of 8 steps that was killed after step 6 and resumed from step 4, so that it made two steps twice."""
    with tracker_tools.only_here(tmp_path_factory.mktemp("temporary")) as patch:
        patch.setattr(follow, "END_SECONDS", 300.0)  # on a busy machine
        patch.chdir(tmp_path_factory.mktemp("where"))
        folder, said = tmp_path_factory.mktemp("runs") / "tracked", list[str]()
        config = config_of("--stop.steps=6", f"--record.trackers={','.join(NAMES)}")
        watched: Any = {"on_record": lambda line: None, "say": said.append, "tracking": tracking}
        start(config, folder, **watched)
        shutil.rmtree(folder / "checkpoints" / "step-00000006")
        (folder / "finished.json").unlink()
        resume(folder, ["--stop.steps=8"], **watched)
    yield folder, said


class Held(NamedTuple):
    """What a tool's own reader finds of a run."""

    points: Points
    """Name -> step -> values."""
    histograms: Points
    """Name -> step -> sums of the counts."""
    pictures: set[str]
    rows: list[Json]
    option: str
    """`select.num_kept`."""


def added(points: Points, name: str, step: int, value: float) -> None:
    points.setdefault(name, {}).setdefault(step, []).append(value)


def table_rows(columns: list[str], data: list[list[Any]]) -> list[Json]:
    return [dict(zip(columns, row, strict=True)) for row in data]


def of_tensorboard(folder: Path, tmp_path: Path) -> Held:
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    where = str(folder / "trackers" / "tensorboard" / folder.name)
    kept = dict.fromkeys(("scalars", "images", "tensors", "histograms"), 0)
    events = accumulator.EventAccumulator(where, kept).Reload()
    tags = events.Tags()
    points, totals, rows = Points(), Points(), []
    for tag in tags["scalars"]:
        for event in events.Scalars(tag):
            added(points, tag, event.step, event.value)
    for tag in tags["histograms"]:
        for event in events.Histograms(tag):
            added(totals, tag, event.step, sum(event.histogram_value.bucket))
    for event in events.Tensors("groups/text_summary"):
        for line in event.tensor_proto.string_val[0].decode().splitlines()[2:]:
            cells = [html.unescape(cell.strip().replace("<br>", "\n")) for cell in line.strip("|").split(" | ")]
            rows += table_rows(list(COLUMNS), [cells])
            assert int(rows[-1]["step"]) == event.step
    for row in rows:
        row |= {"step": int(row["step"]), "kept": row["kept"] == "yes", "reward": float(row["reward"])}
        row["advantage"] = float(row["advantage"]) if row["advantage"] else None
    config = str(events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content)
    pictures = {tag for tag in tags["images"] if events.Images(tag)[-1].encoded_image_string.startswith(b"\x89PNG")}
    return Held(points, totals, pictures, rows, "4" if "select.num_kept" in config else "")


def wandb_records(folder: Path) -> Iterator[Any]:
    """Records of the offline files, in W&B's own protobuf; the files are logs in LevelDB's format."""
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    for file in sorted(folder.glob("offline-run-*/*.wandb")):
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


def of_wandb(folder: Path, tmp_path: Path) -> Held:
    own = folder / "trackers" / "wandb" / "wandb"
    points, totals, steps, ids, options, names = Points(), Points(), [], set(), {}, set()
    for record in wandb_records(own):
        if record.WhichOneof("record_type") == "history":
            steps.append(record.history.step.num)
            for item in record.history.item:
                name, value = item.key or "/".join(item.nested_key), json.loads(item.value_json)
                names.add("/".join(name.split("/")[:2]))
                if isinstance(value, int | float) and not name.startswith("_"):
                    added(points, name, steps[-1], value)
                if (histogram := name.removesuffix("/values")) != name:
                    added(totals, histogram, steps[-1], sum(value))
        elif record.WhichOneof("record_type") == "run":
            ids.add((record.run.run_id, record.run.project, record.run.display_name))
        elif record.WhichOneof("record_type") == "config":
            options |= {item.key: item.value_json for item in record.config.update}
    assert steps == sorted(steps)
    ((_, *named),) = ids
    assert named == ["podsrl", folder.name]
    files = [path.name for path in own.glob("offline-run-*/files/media/**/*.png")]
    pictures = {name for name in names if any(file.startswith(f"{name.split('/')[-1]}_8_") for file in files)}
    tables = [json.loads(path.read_text()) for path in own.glob("offline-run-*/files/media/table/*.json")]
    rows = [row for table in tables for row in table_rows(table["columns"], table["data"])]
    return Held(points, totals, pictures, rows, options["select.num_kept"])


def of_trackio(folder: Path, tmp_path: Path) -> Held:
    own = folder / "trackers" / "trackio"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(own))  # read when it is imported, which is anew: the tracker has forgotten it
        storage = import_module("trackio.sqlite_storage")
    (run,) = storage.SQLiteStorage.get_runs("podsrl")
    points, totals, pictures, rows = Points(), Points(), set(), []
    for entry in storage.SQLiteStorage.get_logs("podsrl", run):
        for name, value in entry.items():
            if isinstance(value, int | float) and name != "step":
                added(points, name, entry["step"], value)
            elif name.startswith("histogram/"):
                added(totals, name, entry["step"], sum(value["values"]))
            elif name.startswith("figures/") and (own / "media" / value["file_path"]).is_file():
                pictures.add(name)
            elif name == "groups":
                rows += value["_value"]
    return Held(
        points, totals, pictures, rows, str(storage.SQLiteStorage.get_run_config("podsrl", run)["select.num_kept"])
    )


def of_mlflow(folder: Path, tmp_path: Path) -> Held:
    client = import_module("mlflow").MlflowClient((folder / "trackers" / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("podsrl").experiment_id])
    assert run.info.run_name == folder.name and run.info.status == "FINISHED"
    points, number = Points(), run.info.run_id
    for name in run.data.metrics:
        for metric in client.get_metric_history(number, name):
            added(points, name.replace("pass_", "pass@"), metric.step, metric.value)
    pictures = {file.path.removesuffix(".png") for file in client.list_artifacts(number, "figures")}
    tables = [
        json.loads(path.read_text())
        for path in Path(client.download_artifacts(number, "groups", str(tmp_path))).iterdir()
    ]
    rows = [row for table in tables for row in table_rows(table["columns"], table["data"])]
    return Held(points, {}, pictures, rows, run.data.params["select.num_kept"])


FIGURES = {"accuracy", "reward", "reward_std", "train_accuracy", "length", "seconds", "tokens"}
KEPT = {"histogram/rewards_kept", "histogram/advantages"}
HISTOGRAMS = KEPT | {"histogram/rewards", "histogram/lengths"}
NUM_ROLLOUTS, NUM_KEPT = 16, 8
"""Of a step."""


@pytest.mark.parametrize("read", [of_wandb, of_tensorboard, of_trackio, of_mlflow])
def test_a_tracker_holds_the_run(
    tracked_run: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[..., Held]
) -> None:
    """Each number, histogram and row is there once; clocks and memory differ in the steps that were made again."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder, _ = tracked_run
    held = read(folder, tmp_path)
    expected = {
        (name, line["step"]): float(value)
        for line in lines_of(folder)
        for name, value in line.items()
        if name != "step" and isinstance(value, int | float)
    }
    assert len(expected) > 300 and ("eval/pass@2", 8) in expected
    for (name, step), value in expected.items():
        found = held.points.get(name, {}).get(step, [])
        is_clock = name.startswith(("seconds/", "memory/"))
        assert len(found) == 1 if is_clock else found == [pytest.approx(value, rel=1e-6, abs=1e-6)], (name, step)
    assert {step for steps in held.points.values() for step in steps} <= set(range(9))
    sizes = {name: NUM_KEPT if name in KEPT else NUM_ROLLOUTS for name in HISTOGRAMS}
    each_step = {name: {step: [size] for step in range(1, 9)} for name, size in sizes.items()}
    assert held.histograms == ({} if read is of_mlflow else each_step)
    assert held.pictures >= {f"figures/{name}" for name in FIGURES}
    recorded = Counter(
        (line["step"], rollout["text"], rollout["kept"])
        for line in lines_of(folder, "groups.jsonl")
        for rollout in line["rollouts"]
    )
    assert Counter((row["step"], row["completion"], row["kept"]) for row in held.rows) == recorded
    assert all((row["advantage"] is not None) == row["kept"] for row in held.rows)
    assert {row["why"] for row in held.rows if not row["kept"]} == {"not_selected"}
    assert all(isinstance(row["reward"], float) and row["prompt"].startswith("What is") for row in held.rows)
    assert held.option == "4"


def test_all_trackers_say_where_their_run_is(tracked_run: tuple[Path, list[str]]) -> None:
    folder, said = tracked_run
    assert not [line for line in said if "switched off" in line]
    for command in ("wandb: offline", "wandb sync", "tensorboard --logdir", "trackio show", "mlflow ui"):
        assert len([line for line in said if command in line]) == 2, command
    assert {path.name for path in (folder / "trackers").iterdir()} == {*NAMES, *(f"{name}.json" for name in NAMES)}


def test_an_error_makes_a_run_failed_and_all_notes_of_a_step_are_there(
    tracked_run: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "failed"
    shutil.copytree(tracked_run[0], folder, ignore=shutil.ignore_patterns("trackers"))
    with (folder / "metrics.jsonl").open("a") as log:
        log.writelines(json.dumps({"step": 8, "note": note}) + "\n" for note in ("one", "two"))
    with tracker_tools.only_here(tmp_path) as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(follow, "END_SECONDS", 300.0)
        with tracking(config_of("--stop.steps=8", "--record.trackers=wandb,mlflow"), folder, print):
            raise ZeroDivisionError
    records = list(wandb_records(folder / "trackers/wandb/wandb"))
    assert [each.exit.exit_code for each in records if each.HasField("exit")] == [1]
    items = [item for each in records for item in each.history.item if "note" in (item.key, *item.nested_key)]
    assert [item.value_json for item in items] == ['"one; two"']
    [state] = (folder / "trackers/mlflow").glob("*/*/meta.yaml")
    assert "status: 4\n" in state.read_text()  # MLflow's number for FAILED; 3 is FINISHED


def test_each_tracker_breaks_in_its_own_way_and_the_run_goes_on(tmp_path: Path) -> None:
    """W&B's service is killed, files are in the way of TensorBoard's and trackio's folders, MLflow's server never
    answers: one line each, and the numbers of a run without trackers."""
    folder, said = tmp_path / "broken", list[str]()
    files = folder / "trackers"
    files.mkdir(parents=True)
    (files / "wandb.json").write_text("")  # so that it can be read before the tracker is there
    for name in ("tensorboard", "trackio"):
        (files / name).write_text("no folder")

    def on_record(line: Json) -> None:
        if line["step"] == 2:
            wait_for(lambda: '"step": 2' in (files / "wandb.json").read_text(), "W&B has the step")
            for child in psutil.Process().children():
                if any("wandb-core" in word for word in words_of(child.pid)):
                    child.kill()
        if line["step"] == 3:
            wait_for(lambda: any("tracker wandb is switched off" in text for text in said), "W&B's line")

    with tracker_tools.only_here(tmp_path) as patch, socket.create_server(("127.0.0.1", 0)) as server:
        patch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        patch.setattr(follow, "PATIENCE_SECONDS", 0.5)
        patch.setattr(follow, "END_SECONDS", 1.0)
        config = config_of("--stop.steps=6", f"--record.trackers={','.join(NAMES)}")
        start(config, folder, on_record=on_record, say=said.append, tracking=tracking)
        assert "waiting for tracker mlflow to finish" in said[-2] and "tracker mlflow did not finish" in said[-1]
        server.close()
        wait_for(lambda: "tracker mlflow is switched off" in said[-1], "the thread that was left behind ends")
    for name in NAMES:
        assert len([line for line in said if f"tracker {name} is switched off" in line]) == 1, said
    start(config_of("--stop.steps=6"), tmp_path / "plain", on_record=lambda line: None, say=lambda text: None)
    assert numbers(folder) == numbers(tmp_path / "plain")
    weights = [
        (tmp_path / run / "checkpoints" / "step-00000006" / "model" / "model.safetensors").read_bytes()
        for run in ("broken", "plain")
    ]
    assert weights[0] == weights[1]
