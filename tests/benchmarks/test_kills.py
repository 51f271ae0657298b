"""`python -m benchmarks kills`: what is compared and counted, by hand; and a few kills."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.kills import page
from benchmarks.kills.compare import differences, ends
from benchmarks.kills.schedules import SCHEDULES

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")


def ended_run(folder: Path) -> Path:
    last = folder / "checkpoints" / "step-00000002"
    (last / "model").mkdir(parents=True)
    (folder / "checkpoints" / "step-00000001").mkdir()
    (last / "model" / "model.safetensors").write_bytes(b"weights")
    (last / "state.json").write_text(json.dumps({"step": 2, "train_seconds": 1.0, "files": {}, "log_bytes": {}}))
    (folder / "finished.json").write_text('{"step": 2}')
    (folder / "groups.jsonl").write_text('{"step": 2}\n')
    lines = [{"step": step, "loss": 0.5, "seconds/total": 1.0, "memory/peak": 7} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_runs_are_compared_but_for_seconds_and_memory(tmp_path: Path) -> None:
    one, other = (ended_run(tmp_path / name) for name in ("one", "other"))
    log, state = other / "metrics.jsonl", other / "checkpoints" / "step-00000002" / "state.json"
    log.write_text(log.read_text().replace('total": 1.0', 'total": 2.5').replace('peak": 7', 'peak": 9'))
    state.write_text(state.read_text().replace('train_seconds": 1.0', 'train_seconds": 2.5'))
    assert differences(ends(one), ends(other)) == []
    changes = {
        "metrics.jsonl": (log, '"loss": 0.5', '"loss": 0.25'),
        "state.json": (state, '"step": 2', '"step": 3'),
        "groups.jsonl": (other / "groups.jsonl", "}\n", "} \n"),
        "model/model.safetensors": (other / "checkpoints/step-00000002/model/model.safetensors", "weights", "Weights"),
        "finished.json": (other / "finished.json", "2", "3"),
    }
    for name, (file, old, new) in changes.items():
        before = file.read_text()
        file.write_text(before.replace(old, new))
        assert differences(ends(one), ends(other)) == [name]
        file.write_text(before)
    (other / "checkpoints" / ".step-00000001.tmp").mkdir()
    assert differences(ends(one), ends(other)) == ["files"]


def test_the_result_counts_kills_and_runs_that_differ(tmp_path: Path) -> None:
    one, other, *_ = SCHEDULES
    kill = {"was_resumed": True, "unfinished": ["a line"], "left_processes": [], "left_segments": []}
    lines: list[dict[str, Any]] = [
        {**kill, "kill": 1, "schedule": one, "is_fresh": False},
        {**kill, "kill": 2, "schedule": one, "is_fresh": True, "left_processes": [5]},
        {"end": one, "kills": 2, "differences": []},
        {**kill, "kill": 3, "schedule": other, "is_fresh": False, "was_resumed": False},
        {"end": other, "kills": 1, "differences": ["groups.jsonl"]},
    ]
    (tmp_path / "kills.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "facts.json").write_text(json.dumps({"quick": False, "commit": "abc", "temporary_files": []}))
    found = page.summary(tmp_path)
    assert (found["kills"], found["kills_of_resumed"], found["ends"], found["most_kills_of_one_run"]) == (3, 2, 2, 2)
    assert found["unfinished"] == {"a line": 3}
    assert [line["end"] for line in found["failed"]] == [other] and found["left_processes"] == 1


@pytest.mark.timeout(900)
@needs_linux
def test_killed_runs_end_in_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["kills", "--quick", "--kills", "4", "--out", str(tmp_path / "kills"), "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["kills"] == 4 and result["failed"] == [] and result["ends"] >= 2
    assert result["left_processes"] == 0 == len(result["temporary_files"])
