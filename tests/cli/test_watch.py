"""`pods watch`: the picture at several sizes, lines, JSON, and runs that ended, were killed or are broken."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import children
import run_folders
from podsrl.cli import watch as command
from podsrl.report.picture import picture
from podsrl.report.read import Run, read_run
from podsrl.report.standing import as_json, plain_line, standing
from podsrl.run.saving.folder import RunFolder
from run_folders import kept, rollout_entry

Pods = Callable[..., tuple[int, str, str]]
EVIL = "\x1b[2J\x07evil\nline"
CONFIG = 'seed = 1\n[stop]\nsteps = 40\n[rollouts]\nnum_rollouts = 4\n[select]\nrule = "max_variance"\nnum_kept = 2\n'


def step_line(step: int, **changes: Any) -> dict[str, Any]:
    """A step of 1 s, half of which generates."""
    own = {"seconds/update": 0.3, "seconds/total": 1.0, "seconds/train_elapsed": float(step), "logprob_gap": 1e-8}
    own |= {"reward/all": 0.02 * step, "accuracy/all": 0.025 * step, "groups/all": 2, "groups/zero_signal": 0}
    own |= {"rollouts/all": 8, "rollouts/truncated": 0, "rollouts/invalid": 0}
    return run_folders.step_line(step, **(own | changes))


def write_run(folder: Path, num_steps: int = 20, **changes: Any) -> Path:
    rollouts = [
        rollout_entry(i, float(i), text=f"{EVIL} {i}", is_correct=i == 3, **(kept(1.0) if i in (0, 3) else {}))
        for i in range(4)
    ]
    task = {"id": EVIL, "prompt": "1+1=", "answer": "2"}
    return run_folders.write_run(
        folder,
        steps=[step_line(step, **changes) for step in range(1, num_steps + 1)],
        evaluations=[(0, 0.0, 0.1), (num_steps, float(num_steps), 0.6)],
        groups=[run_folders.group_line(num_steps, task=task, rollouts=rollouts)],
        config=CONFIG,
    )


def followed(folder: Path) -> Run:
    return read_run(folder, only_newest_group=True)


def words(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


@pytest.mark.parametrize("height", [10, 23, 40, None])
@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_picture_fits_and_steers_no_terminal(tmp_path: Path, width: int, height: int | None) -> None:
    run = followed(write_run(tmp_path / "run", **{"groups/zero_signal": 2}))
    for runs in ([run], [run, followed(write_run(tmp_path / "other"))]):
        lines = picture(runs, width, height)
        assert max(line.cell_len for line in lines) <= width
        assert height is None or len(lines) <= height
        text = words(lines)
        assert "\x1b" not in text and "\x07" not in text
        assert "step 20" in text
        assert height == 10 or "groups without signal" in text.replace("\n", " ")


@pytest.mark.parametrize("width", [1, 9, 25, 30])
def test_a_narrow_terminal_gets_the_beginning_of_the_lines(tmp_path: Path, width: int) -> None:
    run = followed(write_run(tmp_path / "a-run-with-a-long-name"))
    for runs in ([run], [run, run]):
        assert max(line.cell_len for line in picture(runs, width, 23)) <= width


@pytest.mark.parametrize("value", [-1e99, 1e99, 1e308, 10**400, float("inf"), float("nan"), None, "text"])
@pytest.mark.parametrize("name", ["seconds/train_elapsed", "seconds/total", "tokens/generated", "reward/all"])
def test_numbers_that_cannot_be_are_drawn_all_the_same(tmp_path: Path, name: str, value: Any) -> None:
    folder = write_run(tmp_path / "run", num_steps=3, **{name: value})
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps(step_line(4)) + "\n")
    run = followed(folder)
    assert "step 4" in words(picture([run], 80, 40)) and "step 4" in plain_line(run)
    json.dumps(as_json(run), allow_nan=False)


def test_the_picture_says_how_far_how_fast_what_was_kept_and_why(tmp_path: Path) -> None:
    text = words(picture([followed(write_run(tmp_path / "run"))], 100, None))
    for part in (
        "50%",
        "1 s per step",
        "8 rollouts/s",
        "20 s left",
        "held out",
        "60.0%",
        "generate 50%",
        "trained 50%",
    ):
        assert part in text
    for part in (
        "2 of 4 kept by max_variance, 1 correct",
        "dropped, not selected",
        "no warning",
        "step 20, 1+1=",
        "\\x1b[2J\\x07evil",
    ):
        assert part in text


def test_the_time_left_is_by_the_runs_own_clock(tmp_path: Path) -> None:
    at = standing(followed(write_run(tmp_path / "run", num_steps=10)))
    assert (at.step, at.steps, at.share) == (10, 40, 0.25)
    assert at.seconds_left == pytest.approx(30.0)
    assert standing(followed(write_run(tmp_path / "short", num_steps=0))).seconds_left is None


def test_a_run_that_was_killed_says_so_with_the_way_to_go_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = time.time() - 600
    os.utime(folder / "metrics.jsonl", (before, before))
    if RunFolder(folder).is_locked() is None:
        pytest.skip("this system does not list its locks")
    text = words(picture([followed(folder)], 300, None))
    assert "no new line for 10 min" in text and f"pods train --resume {folder}" in text
    with RunFolder(folder).lock():
        text = words(picture([followed(folder)], 300, None))
    assert "training, but no new line for 10 min" in text


def test_once_prints_a_picture_and_json_the_same_numbers(pods: Pods, tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    code, out, _ = pods("watch", "run", "--once")
    assert code == 0 and "step 20 of 40" in out and "\x1b" not in out
    code, out, _ = pods("watch", "run", "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert (found["step"], found["steps"], found["share_done"], found["seconds_left"]) == (20, 40, 0.5, 20.0)
    assert found["accuracy"] == {"start": 0.1, "best": 0.6, "last": 0.6, "training": 0.5}
    assert found["warnings"] == []


def test_without_a_terminal_lines_follow_until_no_process_trains(pods: Pods, tmp_path: Path) -> None:
    (write_run(tmp_path / "run") / "finished.json").write_text("{}")
    code, out, _ = pods("watch", "run")
    assert code == 0
    assert out == (
        "run: finished, step 20 of 40, 1 s per step, 8 rollouts/s, training 50.0%, held out 60.0%, mean reward 0.400\n"
    )


def test_a_comparison_shows_each_of_its_runs(pods: Pods, tmp_path: Path) -> None:
    for name in ("grpo-seed0", "pods-seed0"):
        write_run(tmp_path / "cmp" / "runs" / name)
    (tmp_path / "cmp" / "compare.toml").touch()
    (tmp_path / "cmp" / "runs" / "pods-seed0" / "finished.json").touch()
    code, out, _ = pods("watch", "cmp", "--once")
    assert code == 0
    assert "1 of 2 runs done" in out and "grpo-seed0" in out and "60.0%" in out


def test_a_comparison_in_which_no_run_has_begun(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "cmp").mkdir()
    (tmp_path / "cmp" / "compare.toml").touch()
    assert pods("watch", "cmp", "--once")[:2] == (0, "no run has begun yet\n")
    code, _, err = pods("report", "cmp")
    assert code == 2 and "cmp: this comparison has no result yet" in err


def test_lines_of_a_comparison_go_on_between_two_runs(
    pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cmp").mkdir()
    (tmp_path / "cmp" / "compare.toml").touch()
    first, second = (tmp_path / "cmp" / "runs" / name for name in ("a-seed0", "b-seed0"))
    events = iter(
        [
            lambda: (write_run(first) / "finished.json").touch(),
            lambda: None,
            lambda: (write_run(second) / "finished.json").touch(),
            lambda: monkeypatch.setattr(command, "BETWEEN_RUNS_SECONDS", -1.0),
        ]
    )
    monkeypatch.setattr(command.time, "sleep", lambda _: next(events)())
    code, out, _ = pods("watch", "cmp")
    assert code == 0
    said = dict.fromkeys(line.split(",")[0] for line in out.splitlines())
    assert list(said) == ["no run has begun yet", "a-seed0: finished", "b-seed0: finished"]


def test_a_run_without_a_line_yet(pods: Pods, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    (folder / "groups.jsonl").unlink()
    code, out, _ = pods("watch", "run", "--once")
    assert code == 0 and "step 0" in out
    code, out, _ = pods("watch", "run", "--plain")
    assert code == 0 and "step 0" in out


def test_bad_input_is_one_line(pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "APPEAR_SECONDS", 0.0)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "broken")
    (tmp_path / "broken" / "metrics.jsonl").write_text("no json\n")
    for arguments, wanted in (
        (("nowhere",), "nowhere is no folder"),
        (("empty",), "empty has no config.toml"),
        (("broken", "--once"), "line 1"),
        (("broken", "--once", "--json"), "--once, --plain and --json"),
    ):
        code, out, err = pods("watch", *arguments)
        assert (code, out) == (2, "") and wanted in err and err.count("\n") == 1


def test_a_folder_that_appears_soon_is_waited_for(pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def appear(_: float) -> None:
        (write_run(tmp_path / "run") / "finished.json").write_text("{}")

    monkeypatch.setattr(command.time, "sleep", appear)
    assert pods("watch", "run")[0] == 0


def test_lines_follow_a_run_to_the_word_of_its_end(pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it ends without a new line in its log."""
    folder = write_run(tmp_path / "run")
    if RunFolder(folder).is_locked() is None:
        pytest.skip("this system does not list its locks")
    with ExitStack() as training:
        training.enter_context(RunFolder(folder).lock())
        events = iter([lambda: None, lambda: training.close()])
        monkeypatch.setattr(command.time, "sleep", lambda _: next(events)())
        code, out, _ = pods("watch", "run")
    assert code == 0
    assert [line.split()[1].rstrip(":,") for line in out.splitlines()] == ["training", "stopped"]


@pytest.mark.parametrize("arguments", [("watch", "RUN", "--plain"), ("report", "RUN", "--live", "--out", "PAGE")])
def test_ctrl_c_ends_it_and_leaves_the_run_as_it_was(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = write_run(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with RunFolder(folder).lock():
        words = [{"RUN": str(folder), "PAGE": str(tmp_path / "page.html")}.get(word, word) for word in arguments]
        process = children.Popen(
            [sys.executable, "-m", "podsrl.cli", *words], stdout=children.PIPE, stderr=children.PIPE, text=True
        )
        try:
            assert process.stdout is not None and process.stdout.readline() != ""
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "interrupted\n")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before | {".lock": b""}
