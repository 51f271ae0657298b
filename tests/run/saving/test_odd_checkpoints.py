"""Whatever stands in a checkpoint whose manifest agrees with it: a resume goes through the numbers of the run that was
not touched, from this checkpoint or the one before, or ends with one line. It never believes what cannot be."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from loops import each
from podsrl.config.schema import RunConfig
from podsrl.errors import CheckpointError
from podsrl.run.due import Due
from podsrl.run.saving.state import MAX_BYTES, check_state, read_object
from runs import final_tensors, flags, numbers

Pods = Callable[..., tuple[int, str, str]]
Json = dict[str, Any]
OPTIONS = (
    *("rollouts.max_new_tokens=24", "task.num_eval=8", "eval.every_steps=3"),
    *("record.groups_every_steps=1", "checkpoint.every_seconds=0", "checkpoint.every_steps=2"),
)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2.5, float("nan"), float("inf"), 10**30, -(10**30), "", "x", "\0", "../..", [], {}, [1],
    {"a": 1}, [[[[]]]], 10**12, 1e300,
)  # fmt: skip


# --- what is odd ---


def mutate_json(rng: random.Random, tree: Any) -> Any:
    """Another value, a key less or a key more, somewhere in a tree."""
    node, places = tree, []
    while isinstance(node, dict) and node:
        key = rng.choice(list(node))
        places.append((node, key))
        if rng.random() < 0.5:
            break
        node = node[key]
    parent, key = places[-1]
    kind = rng.random()
    if kind < 0.2:
        del parent[key]
    elif kind < 0.3:
        parent[rng.choice(["more", "", "a" * 5000, "step "])] = rng.choice(ODD)
    elif kind < 0.5 and isinstance(parent[key], int | float):
        parent[key] = parent[key] + rng.choice([-1, 1, 0.5, 10**6, -(10**6)])
    else:
        parent[key] = rng.choice(ODD)
    return tree


def mutate_tensors(rng: random.Random, file: Path) -> None:
    tensors = load_file(file)
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    kind = rng.randrange(7)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[rng.choice(["more", "exp_avg/more", "", "a" * 5000])] = torch.ones(3)
    elif kind == 2:
        tensors[name] = tensor.to(rng.choice([torch.float64, torch.int32, torch.float16, torch.uint8]))
    elif kind == 3:
        tensors[name] = torch.zeros([*tensor.shape, 2])
    elif kind == 4:
        odd = [float("nan"), float("inf"), *([] if name.startswith("exp_avg/") else [-1.0])]  # -1 may be a mean
        tensors[name] = torch.full_like(tensor, rng.choice(odd))
    elif kind == 5:
        tensors = {}
    else:
        tensors[name] = tensor.flatten()[:0]
    save_file(tensors, file)


def mutate_bytes(rng: random.Random, file: Path) -> None:
    content = file.read_bytes()
    place = rng.randrange(len(content) or 1)
    kind = rng.randrange(6)
    if kind == 5:
        file.unlink()
        file.mkdir()
        return
    file.write_bytes(
        [
            b"",
            content[:place],
            bytes(rng.randrange(256) for _ in range(64)) + content[64:],
            content[:place] + b"\xff" * 8 + content[place + 8 :],
            b"[" * 100_000,
        ][kind]
    )


def seal(path: Path, *, with_table: bool) -> None:
    """Make the manifest anew, and where asked the table in the state too, so that both agree with the files."""
    state = path / "state.json"
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != "manifest.json"]
    digests = {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    if with_table and state.is_file():
        try:
            tree = json.loads(state.read_bytes())
            tree["files"] = {name: digest for name, digest in digests.items() if name != "state.json"}
            state.write_text(json.dumps(tree))
            digests["state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
    sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
    manifest = {name: {"bytes": sizes[name], "sha256": digest} for name, digest in digests.items()}
    (path / "manifest.json").write_text(json.dumps(manifest))


def damage(rng: random.Random, run: Path, path: Path) -> str:
    """Change one file of a checkpoint. Returns what was done."""
    tensors = [path / "optimizer.safetensors", path / "model" / "model.safetensors"]
    older = run / "checkpoints" / "step-00000002"
    kinds = ["state", "state", "state", "manifest", "tensors", "tensors", "bytes", "swapped"]
    kind = rng.choice(kinds if path == older else [*kinds, "older"])
    if kind in ("state", "manifest"):
        file = path / f"{kind}.json"
        file.write_text(json.dumps(mutate_json(rng, json.loads(file.read_text()))))
    elif kind == "tensors":
        mutate_tensors(rng, tensors[0])
    elif kind == "bytes":
        file = rng.choice([*tensors, path / "state.json", path / "manifest.json"])
        mutate_bytes(rng, file)
        kind = f"bytes of {file.name}"
        if file.name == "manifest.json":
            return kind
    elif kind == "swapped":
        other = path / "other"
        tensors[0].rename(other)
        tensors[1].rename(tensors[0])
        other.rename(tensors[1])
    else:
        name = rng.choice(["optimizer.safetensors", "model/model.safetensors", "state.json"])
        shutil.copy(older / name, path / name)
        kind = f"{name} of another checkpoint"
    if kind != "manifest":
        is_believable = kind.endswith("of another checkpoint")  # by itself: only the table tells
        seal(path, with_table=not is_believable and rng.random() < 0.7)
    return kind


def damage_folder(rng: random.Random, run: Path) -> str:
    """Change one of a run's own files, or put something in its place."""
    file = run / rng.choice(["config.toml", "metrics.jsonl", "groups.jsonl", "finished.json", "checkpoints", ".lock"])
    if file.is_dir():
        shutil.rmtree(file)
        file.write_text("")
    elif file.exists():
        mutate_bytes(rng, file)
    return f"folder: {file.name}"


# --- what must come of it ---


@pytest.mark.timeout(1800)
def test_a_resume_from_an_odd_checkpoint_gives_the_same_numbers_or_one_line(pods: Pods, tmp_path: Path) -> None:
    def results(run: Path) -> Any:
        return final_tensors(run), numbers(run), (run / "groups.jsonl").read_text()

    assert pods("train", "pods", *flags(*OPTIONS), "--out", "whole")[0] == 0
    whole, expected = tmp_path / "whole", results(tmp_path / "whole")
    counts = dict.fromkeys(["as before", "fell back", "one line"], 0)
    for seed in range(30):
        rng, run = random.Random(seed), tmp_path / "odd"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        newest = run / "checkpoints" / "step-00000004"
        done = damage_folder(rng, run) if seed % 10 == 9 else damage(rng, run, newest)
        if seed % 10 == 8:
            done += " and " + damage(random.Random(seed), run, run / "checkpoints" / "step-00000002")
        code, _, errors = pods("train", "--resume", str(run))
        shown = f"seed {seed}, {done}: exit code {code}, {errors[-1500:]}"
        assert code in (0, 1, 2) and "Traceback" not in errors, shown
        if code == 0 and not done.startswith("folder: checkpoints"):
            assert results(run) == expected, shown
            counts["fell back" if "the checkpoint before it" in errors else "as before"] += 1
        elif code != 0:
            last = errors.splitlines()[-1]
            assert last.startswith(("error: ", "failed: ")) and len(last) < 1050, shown
            counts["one line"] += 1
    assert counts["fell back"] > 12 and counts["one line"] > 2, counts


# --- the state alone ---


SCHEDULE = {"last_eval_step": 0, "next_eval_seconds": 0.0, "last_signal_step": 4, "last_valid_step": 4}


def state(step: int = 4) -> Json:
    side = {"questions": 3, "ids": "a", "prompts": "b", "answers": "c", "columns": "d"}
    return {
        "step": step,
        "version": 3,
        "data_position": 8 * step,
        "train_seconds": 1.5,
        "optimizer": {"num_steps": 3, "num_skipped_steps": 1},
        "config": RunConfig().model_dump(mode="json"),
        "schedule": SCHEDULE,
        "log_bytes": {"metrics.jsonl": 10, "groups.jsonl": 0},
        "inputs": {"train": side, "eval": side, "sources": {}},
        "parts": {},
        "device": "cpu",
    }


PATH = Path("step-00000004")


def test_a_state_as_it_is_saved_passes() -> None:
    check_state(PATH, state())
    check_state(PATH, {**state(), "of a newer version": 1})


@each(
    ("changes", "named"),
    [
        ({"step": 5}, "step"),
        ({"step": "4"}, "step"),
        ({"step": 4.0}, "step"),
        ({"step": True}, "step"),
        ({"version": -1}, "version"),
        ({"version": 2}, "version = 2, wanted 3"),
        ({"data_position": 31}, "data_position"),
        ({"train_seconds": float("nan")}, "train_seconds"),
        ({"train_seconds": -1.0}, "train_seconds"),
        ({"train_seconds": 1e300}, "train_seconds"),
        ({"optimizer": {"num_steps": 3}}, "optimizer.num_skipped_steps"),
        ({"optimizer": {"num_steps": 3, "num_skipped_steps": 2}}, "optimizer steps"),
        ({"optimizer": []}, "optimizer"),
        ({"config": {"seed": "x"}}, "seed"),
        ({"config": 7}, "config"),
        ({"schedule": {**SCHEDULE, "last_eval_step": 5}}, "last_eval_step"),
        ({"schedule": {**SCHEDULE, "next_eval_seconds": 3.0}}, "next_eval_seconds"),
        ({"schedule": {}}, "schedule.last_eval_step"),
        ({"log_bytes": {"metrics.jsonl": 1}}, "groups.jsonl"),
        ({"log_bytes": {"metrics.jsonl": -1, "groups.jsonl": 0}}, "log_bytes"),
        ({"inputs": {"train": {}}}, "inputs"),
        ({"device": 3}, "device"),
    ],
)
def test_what_cannot_be_is_named(changes: Json, named: str) -> None:
    with pytest.raises(CheckpointError, match=f"state.json is damaged: .*{named}"):
        check_state(PATH, {**state(), **changes})


@pytest.mark.parametrize("key", sorted(state()))
def test_what_is_missing_is_named(key: str) -> None:
    with pytest.raises(CheckpointError, match=key):
        check_state(PATH, {name: value for name, value in state().items() if name != key})


def test_a_schedule_from_before_steps_without_signal_were_counted_has_none_of_them() -> None:
    old = {name: SCHEDULE[name] for name in ("last_eval_step", "next_eval_seconds")}
    check_state(PATH, state() | {"schedule": old})
    due = Due.of(state() | {"schedule": old})
    assert (due.last_eval_step, due.last_signal_step, due.last_valid_step) == (0, state()["step"], state()["step"])


def test_two_hundred_seeded_changes_pass_or_are_a_checkpoint_error() -> None:
    refused = 0
    for seed in range(200):
        tree = mutate_json(random.Random(seed), state())
        try:
            check_state(PATH, tree)
        except CheckpointError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_a_file_that_is_no_json_object_is_a_checkpoint_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.json is"):
        read_object(tmp_path / "state.json")


def test_a_file_that_is_a_folder_missing_or_huge_is_a_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for name in ("folder", "missing", "huge"):
        with pytest.raises(CheckpointError, match=name):
            read_object(tmp_path / name)
