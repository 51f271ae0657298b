"""`python -m benchmarks soak`: growth per step and what processes hold, by hand; and a small run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.soak.processes import held, kind_of
from benchmarks.soak.result import slope, summary

MIB = 1 << 20


def test_the_slope_is_the_median_one_and_outliers_do_not_move_it() -> None:
    assert slope([(0, 10.0), (10, 30.0)]) == 2.0
    assert slope([(step, 3.0 * step + 7) for step in range(1000)]) == 3.0
    assert slope([(0, 1.0), (1, 2.0), (2, 1000.0), (3, 4.0), (4, 5.0)]) == 1.0
    assert slope([(5, 1.0), (5, 9.0), (6, 5.0)]) == 0.0  # 4 and -4; the two at the same step have no slope
    assert slope([]) == slope([(1, 1.0)]) == slope([(1, 1.0), (1, 2.0)]) == 0.0


def test_what_a_process_holds_is_read_from_its_files(tmp_path: Path) -> None:
    process = tmp_path / "7"
    for name in ("fd/0", "fd/1", "fd/5", "task/7", "task/8"):
        (process / name).mkdir(parents=True)
    (process / "smaps_rollup").write_text("7f-7ff ---p 0 00:00 0  [rollup]\nRss:     20 kB\nPss:     12 kB\n")
    (process / "cmdline").write_text("python\0-c\0from podsrl.scale.generators.child import main\0")
    assert held(7, tmp_path) == {"pss": 12 * 1024, "rss": 20 * 1024, "files": 3, "threads": 2}
    assert kind_of(7, tmp_path) == "generator"
    assert held(8, tmp_path) is None and kind_of(8, tmp_path) == "other"


def ended_soak(folder: Path) -> Path:
    """Of 101 samples of each run, 10 steps apart: "pods" grows by 512 bytes per step, "ahead" by 2 KiB."""
    options: dict[str, Any] = {"pods": {}, "ahead": {}}
    (folder / "soak.json").write_text(json.dumps({"quick": False, "options": options, "commit": "abc"}))
    again = {"steps": 1000, "seconds": 2.0, "code": 0}
    left: dict[str, list[str]] = {"processes": [], "segments": [], "temporary_files": []}
    end = {"pods": 130, "ahead": 130, "left": left, "resumed": {"pods": again, "ahead": again}}
    (folder / "end.json").write_text(json.dumps(end))
    with (folder / "samples.jsonl").open("w") as log:
        for step in range(0, 1001, 10):
            for name, per_step, num_files in (("pods", 512, 4), ("ahead", 2048, 4 + step // 100)):
                own = {"rss": 100 * MIB + per_step * step, "pss": MIB, "files": num_files, "threads": 3, "count": 1}
                sizes = {"metrics.jsonl": 100 * step, "groups.jsonl": 7 * step, "checkpoints": 5}
                sample = {"seconds": 3.6 * step, "command": name, "step": step, "processes": {"main": own}}
                more = {"segments": 0, "temporary_files": 1, "output_bytes": step, "folder_bytes": sizes}
                log.write(json.dumps(sample | more) + "\n")
    return folder


def test_the_result_has_growth_per_step_after_warm_up(tmp_path: Path) -> None:
    found = summary(ended_soak(tmp_path))
    assert (found["minutes"], found["steps"]) == (60.0, {"pods": 1000, "ahead": 1000})
    pods, ahead = found["processes"]
    assert (pods["steps"], pods["bytes_per_1000_steps"], pods["files_per_1000_steps"]) == (750, 512_000, 0.0)
    assert ahead["bytes_per_1000_steps"] == 2_048_000 and ahead["files_per_1000_steps"] == pytest.approx(10, rel=0.1)
    assert (pods["files_most"], ahead["files_most"]) == (4, 14)
    assert [(each["command"], each["bytes_per_step"]) for each in found["files"]] == [
        ("pods", 100.0),
        ("pods", 7.0),
        ("ahead", 100.0),
        ("ahead", 7.0),
    ]
    assert found["temporary_files"] == 1


@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="wants Linux's /proc/PID/smaps_rollup")
def test_a_small_soak_ends_with_nothing_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--quick", "--minutes", "0.1", "--out", str(tmp_path / "soak"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["left"] == {"processes": [], "segments": [], "temporary_files": []}
    assert (result["pods"], result["ahead"], result["page"]) == (130, 130, 130)
    assert all(each["code"] == 0 for each in result["resumed"].values())
    kinds = {(each["command"], each["kind"]) for each in result["processes"]}
    assert kinds >= {("pods", "main"), ("ahead", "main"), ("ahead", "generator"), ("watch", "main"), ("page", "main")}
    assert all(each["bytes"] > 0 for each in result["files"] if each["file"] == "metrics.jsonl")
