"""A run's folder: one run each, logs that only grow or are cut back, files that are never half written."""

from __future__ import annotations

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import children
from podsrl.errors import UsageError
from podsrl.run.saving.folder import FolderGone, RunFolder


def new_folder(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.check_is_free()
    folder.create("seed = 1\n")
    return folder


def test_a_new_run_holds_its_config_and_a_folder_for_checkpoints(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "a" / "b")
    assert folder.config.read_text() == "seed = 1\n"
    assert folder.checkpoints.is_dir() and not folder.finished.exists()
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoints", "config.toml"]


def test_a_folder_that_holds_a_run_is_refused_with_the_way_to_go_on(tmp_path: Path) -> None:
    new_folder(tmp_path)
    with pytest.raises(UsageError, match=f"holds a run already; go on with --resume {tmp_path}, or choose another"):
        RunFolder(tmp_path).check_is_free()


def test_an_empty_folder_and_one_with_other_files_are_free(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).check_is_free()
    RunFolder(tmp_path / "new").check_is_free()


@pytest.mark.parametrize("below", [".", "run", "runs/mine"])
def test_a_path_that_is_a_file_or_leads_through_one_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file is a file, wanted a folder"):
        RunFolder(tmp_path / "file" / below).check_is_free()


def test_logs_are_one_object_a_line_and_are_cut_back_to_their_sizes_at_a_checkpoint(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    assert folder.log_sizes() == {"metrics.jsonl": 0, "groups.jsonl": 0}
    folder.append("metrics.jsonl", {"step": 1, "text": "zwei\nZeilen ü"})
    sizes = folder.log_sizes()
    folder.append("metrics.jsonl", {"step": 2})
    folder.append("groups.jsonl", {"step": 2})
    assert sizes == {
        "metrics.jsonl": len((tmp_path / "metrics.jsonl").read_bytes().splitlines()[0]) + 1,
        "groups.jsonl": 0,
    }
    folder.rewind("seed = 1\n", sizes)
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()] == [{"step": 1, "text": "zwei\nZeilen ü"}]
    assert (tmp_path / "groups.jsonl").read_bytes() == b""
    folder.append("metrics.jsonl", {"step": 2})
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").open()] == [1, 2]


def test_rewinding_without_sizes_empties_the_logs_and_never_makes_one_longer(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    folder.append("metrics.jsonl", {"step": 1})
    folder.rewind("seed = 2\n", {"metrics.jsonl": 10_000})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    folder.rewind("seed = 2\n", {})
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""
    assert not (tmp_path / "groups.jsonl").exists() and folder.config.read_text() == "seed = 2\n"


def test_a_folder_in_which_a_process_trains_is_closed_to_others_until_that_process_ends(tmp_path: Path) -> None:
    code = "import sys, pathlib; from podsrl.run.saving.folder import RunFolder\n"
    code += "with RunFolder(pathlib.Path(sys.argv[1])).lock(): print('locked', flush=True); sys.stdin.read()"
    holder = children.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=children.PIPE, stdout=children.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    with pytest.raises(UsageError, match="another process"), RunFolder(tmp_path).lock():
        pass
    holder.kill()
    holder.communicate()
    with RunFolder(tmp_path).lock():
        pass


def test_of_two_runs_that_start_at_once_one_begins_and_the_other_writes_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").lock():
        with pytest.raises(UsageError, match="another process is training"):
            begin(tmp_path / "run", "second")
        assert os.listdir(tmp_path / "run") == [".lock"]
    for i in range(50):
        with ThreadPoolExecutor(2) as pool:
            begun = [pool.submit(begin, tmp_path / str(i), text) for text in ("first", "second")]
        errors = [each.exception() for each in begun]
        [winner] = [text for text, error in zip(("first", "second"), errors, strict=True) if error is None]
        assert (tmp_path / str(i) / "config.toml").read_text() == winner
        assert any(text in str(errors) for text in ("another process is training", "holds a run already"))


def begin(path: Path, text: str) -> None:
    """As a new run does."""
    folder = RunFolder(path)
    folder.check_is_free()
    with folder.lock():
        folder.create(text)


STEPS = "".join(f'{{"step": {step}}}\n' for step in range(1, 6))  # each step takes twelve bytes
LOST = {
    "shorter": (STEPS[:30], 60, 5, "metrics.jsonl has 30 bytes, and had 60"),
    "gone": (None, 60, 5, "metrics.jsonl has 0 bytes, and had 60"),
    "cut within a line": (STEPS, 42, 5, "line 4 of .*metrics.jsonl is broken"),
    "damaged": (STEPS[:24] + "x" * 11 + STEPS[35:], 60, 5, "line 3 of .* is broken"),
    "of later steps": (STEPS, 60, 3, "line 4 of .* of a step after 3"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_log_that_does_not_hold_what_a_checkpoint_remembers_is_told(tmp_path: Path, case: str) -> None:
    text, size, step, reason = LOST[case]
    folder = new_folder(tmp_path)
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(UsageError, match=reason):
        folder.check_logs({"metrics.jsonl": size, "groups.jsonl": 0}, step)


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_log_that_is_as_remembered_or_longer_is_sound(tmp_path: Path, step: int) -> None:
    folder = new_folder(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(STEPS + '{"step": 6, "torn')
    folder.check_logs({"metrics.jsonl": 12 * step, "groups.jsonl": 0}, step)


def test_a_run_whose_folder_is_gone_says_so(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    for use in (lambda: folder.append("metrics.jsonl", {}), folder.log_sizes):
        with pytest.raises(FolderGone, match="moved or removed"):
            use()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "groups.jsonl", "finished.json", ".lock"])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_file_of_a_run_that_is_a_link_is_refused_and_what_it_leads_to_stays(
    tmp_path: Path, name: str, is_new: bool
) -> None:
    mine, path = tmp_path / "mine", tmp_path / "run"
    mine.write_text("seed = 1\n")
    folder = RunFolder(path) if is_new else new_folder(path)
    path.mkdir(exist_ok=True)
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(mine)
    check = folder.check_is_free if is_new and name != "config.toml" else folder.check_files
    with pytest.raises(UsageError, match=f"{name}: is a link"):
        check()
    if name == ".lock":
        with pytest.raises(UsageError, match="cannot be written to"), folder.lock():
            pass
    assert mine.read_text() == "seed = 1\n"


def test_a_pipe_in_a_runs_folder_is_refused(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(UsageError, match=r"metrics\.jsonl: is no file"):
        folder.check_files()


def test_checkpoints_may_lie_on_another_disk(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "run")
    folder.checkpoints.rename(tmp_path / "elsewhere")
    folder.checkpoints.symlink_to(tmp_path / "elsewhere")
    folder.check_files()


def test_a_folder_is_locked_while_its_lock_is_held_and_asking_takes_no_lock(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    if folder.is_locked() is None:
        pytest.skip("this system does not list its locks")
    assert folder.is_locked() is False
    with folder.lock():
        assert folder.is_locked() is True
        assert RunFolder(tmp_path).is_locked() is True
    assert folder.is_locked() is False


def test_a_lock_is_found_where_a_file_and_the_list_of_locks_name_different_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, stat = RunFolder(tmp_path), os.stat

    def of_another_device(*args: Any, **options: Any) -> os.stat_result:
        fields = list(stat(*args, **options))
        return os.stat_result([*fields[:2], fields[2] + 1, *fields[3:]])

    if folder.is_locked() is None:
        pytest.skip("this system does not list its locks")
    with folder.lock():
        monkeypatch.setattr(os, "stat", of_another_device)
        assert folder.is_locked() is True
