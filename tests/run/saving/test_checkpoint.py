"""A checkpoint is complete or not there, and a damaged one is named and passed over."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from podsrl.errors import CheckpointError
from podsrl.run.saving.checkpoint import load_newest, save_checkpoint, verify

MOMENTS = {"weight.first": torch.tensor([1.0, 2.0]), "weight.second": torch.tensor([3.0, 4.0])}


def save(folder: Path, step: int, *, keep: int = 2, text: str = "0123456789") -> Path:
    def save_model(path: Path) -> None:
        path.mkdir(parents=True)
        (path / "model.safetensors").write_text(text)
        (path / "tokenizer.json").write_text("0123456789")

    return save_checkpoint(
        folder, save_model=save_model, optimizer=MOMENTS, state={"step": step, "seconds": 1.5}, keep=keep
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- saving ---


def test_a_saved_checkpoint_reads_back_with_its_state_and_moments(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoints", 12)
    assert path.name == "step-00000012"
    found = load_newest(tmp_path / "checkpoints")
    assert found is not None
    assert (found.path, found.state, found.damaged) == (path, {"step": 12, "seconds": 1.5}, ())
    assert found.model == path / "model"
    assert {name: tensor.tolist() for name, tensor in found.optimizer().items()} == {
        "weight.first": [1.0, 2.0],
        "weight.second": [3.0, 4.0],
    }


def test_the_manifest_lists_size_and_digest_of_every_other_file(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    files = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert files == manifest.keys() | {"manifest.json"}
    digest = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"  # of the ten digits
    assert manifest["model/model.safetensors"] == {"bytes": 10, "sha256": digest}


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10, 100):
        save(tmp_path, step, keep=3)
    assert names(tmp_path) == ["step-00000002", "step-00000010", "step-00000100"]


def test_a_kill_while_an_old_one_is_removed_leaves_nothing_that_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        next(file for file in path.rglob("*") if file.is_file()).unlink()
        raise KeyboardInterrupt

    save(tmp_path, 1, keep=2)
    save(tmp_path, 2, keep=2)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 3, keep=2)
    assert names(tmp_path) == [".step-00000001.tmp", "step-00000002", "step-00000003"]
    save(tmp_path, 3, keep=2)  # a run that had come to its end, resumed
    assert names(tmp_path) == ["step-00000002", "step-00000003"]


def test_a_folder_of_the_users_own_is_neither_read_nor_removed(tmp_path: Path) -> None:
    shutil.copytree(save(tmp_path, 1), tmp_path / "step-00000001-best")
    (tmp_path / "step-notes.txt").write_text("mine")
    for step in (2, 3, 4):
        save(tmp_path, step)
    assert names(tmp_path) == ["step-00000001-best", "step-00000003", "step-00000004", "step-notes.txt"]
    found = load_newest(tmp_path)
    assert found is not None and (found.state["step"], found.damaged) == (4, ())


def test_a_crash_before_the_rename_leaves_only_a_hidden_folder_which_the_next_save_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def crash(_: Path, __: Path) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(OSError, match="power cut"):
            save(tmp_path, 2)
    assert names(tmp_path) == [".step-00000002.tmp", "step-00000001"]
    found = load_newest(tmp_path)
    assert found is not None and (found.state["step"], found.damaged) == (1, ())
    save(tmp_path, 3)
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_everything_is_on_disk_before_the_rename_and_the_rename_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podsrl.run.saving import checkpoint

    events: list[str] = []
    rename = Path.rename
    monkeypatch.setattr(checkpoint, "_force_to_disk", lambda path: events.append(str(path.relative_to(tmp_path))))

    def noted_rename(old: Path, new: Path) -> Path:
        events.append("RENAME")
        return rename(old, new)

    monkeypatch.setattr(Path, "rename", noted_rename)
    save(tmp_path, 1)
    before, after = events[: events.index("RENAME")], events[events.index("RENAME") + 1 :]
    parts = ["", "/manifest.json", "/model", "/model/model.safetensors", "/model/tokenizer.json"]
    parts += ["/optimizer.safetensors", "/state.json"]
    assert sorted(before) == [f".step-00000001.tmp{part}" for part in parts]
    assert after == ["."]


def test_saving_a_sound_checkpoint_of_the_same_step_again_changes_nothing(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    before = (path / "model" / "model.safetensors").stat().st_mtime_ns
    assert save(tmp_path, 5, text="other") == path
    assert (path / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    (path / "state.json").write_text("{}")
    save(tmp_path, 5, text="new weights")
    verify(path)
    assert (path / "model" / "model.safetensors").read_text() == "new weights"


def test_newer_damaged_checkpoints_never_crowd_out_the_one_just_saved(tmp_path: Path) -> None:
    for step in (4, 6, 8):
        save(tmp_path, step, keep=3)
    for step in (6, 8):
        (tmp_path / f"step-{step:08d}" / "state.json").unlink()
    save(tmp_path, 5)
    found = load_newest(tmp_path)
    assert found is not None and found.state["step"] == 5 and len(found.damaged) == 2
    assert names(tmp_path) == ["step-00000004", "step-00000005", "step-00000006", "step-00000008"]


# --- damage ---


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def alter(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove(file: Path) -> None:
    file.unlink()


FILES = ["model/model.safetensors", "model/tokenizer.json", "optimizer.safetensors", "state.json"]
DAMAGES = [
    (truncate, "is truncated: "),
    (alter, "is damaged: its contents differ"),
    (remove, "is missing or "),
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("damage", "word"), DAMAGES)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used(
    tmp_path: Path, name: str, damage: Callable[[Path], None], word: str
) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    damage(path / name)
    with pytest.raises(CheckpointError, match=re.escape(f"{path / name} {word}")):
        verify(path)
    found = load_newest(tmp_path)
    assert found is not None and found.state["step"] == 1
    assert len(found.damaged) == 1 and f"{path / name} {word}" in found.damaged[0]


MANIFESTS = ["", "{", "[]", "7", "{}", '{"state.json": 3}', "\x00\x00"]


@pytest.mark.parametrize("text", [None, *MANIFESTS])
def test_a_missing_or_damaged_manifest_is_named_and_the_checkpoint_before_is_used(
    tmp_path: Path, text: str | None
) -> None:
    save(tmp_path, 1)
    manifest = save(tmp_path, 2) / "manifest.json"
    manifest.unlink() if text is None else manifest.write_text(text)
    found = load_newest(tmp_path)
    assert found is not None and found.state["step"] == 1
    assert str(manifest) in found.damaged[0] and "damaged" in found.damaged[0]


def test_where_all_are_damaged_each_is_named(tmp_path: Path) -> None:
    for step in (1, 2):
        (save(tmp_path, step) / "optimizer.safetensors").unlink()
    with pytest.raises(CheckpointError) as caught:
        load_newest(tmp_path)
    assert re.search(
        "step-00000002/optimizer.* is missing .*; .*step-00000001/optimizer.* is missing", str(caught.value)
    )


def test_where_none_was_ever_finished_there_is_none(tmp_path: Path) -> None:
    (tmp_path / ".step-00000001.tmp").mkdir()
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "nowhere") is None
