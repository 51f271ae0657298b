"""Whatever happened to the files of a run: a resume goes through the numbers of the run that was not touched, from the
newest checkpoint or the one before, or ends with one line."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import CheckpointError
from podsrl.lib.logs import read_object
from runs import final_tensors, flags, numbers

Pods = Callable[..., tuple[int, str, str]]
OPTIONS = (
    *("rollouts.max_new_tokens=24", "task.num_eval=8", "eval.every_steps=3"),
    *("record.groups_every_steps=1", "checkpoint.every_seconds=0", "checkpoint.every_steps=2"),
)
CHECKPOINTED = ("optimizer.safetensors", "model/model.safetensors", "state.json", "manifest.json")
OF_THE_RUN = ("config.toml", "metrics.jsonl", "groups.jsonl", "finished.json", "checkpoints", ".lock")


def damage(rng: random.Random, file: Path) -> None:
    """Cut a file, change bytes of it, or put something else in its place."""
    if file.is_dir():
        shutil.rmtree(file)
        file.write_text("")
        return
    content = file.read_bytes()
    place = rng.randrange(len(content) or 1)
    kind = rng.randrange(5)
    if kind == 4:
        file.unlink()
        file.mkdir()
    else:
        changed = content[:place] + b"\xff" * 8 + content[place + 8 :]
        file.write_bytes((b"", content[:place], changed, b"[" * 100_000)[kind])


@pytest.mark.timeout(1800)
def test_a_resume_from_odd_files_gives_the_same_numbers_or_one_line(pods: Pods, tmp_path: Path) -> None:
    def results(run: Path) -> Any:
        return final_tensors(run), numbers(run), (run / "groups.jsonl").read_text()

    assert pods("train", "pods", *flags(*OPTIONS), "--out", "whole")[0] == 0
    whole, expected = tmp_path / "whole", results(tmp_path / "whole")
    counts = dict.fromkeys(["as before", "fell back", "one line"], 0)
    for seed in range(20):
        rng, run = random.Random(seed), tmp_path / "odd"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        if seed % 4 == 3:
            damaged = [run / rng.choice(OF_THE_RUN)]
        else:  # of the newest checkpoint, or of both
            steps = ("step-00000004", "step-00000002")[: 1 + (seed % 8 == 6)]
            damaged = [run / "checkpoints" / step / rng.choice(CHECKPOINTED) for step in steps]
        for file in filter(Path.exists, damaged):
            damage(rng, file)
        code, _, errors = pods("train", "--resume", str(run))
        shown = f"seed {seed}, {damaged}: exit code {code}, {errors[-1500:]}"
        assert code in (0, 1, 2) and "Traceback" not in errors, shown
        if code == 0 and damaged != [run / "checkpoints"]:
            assert results(run) == expected, shown
            counts["fell back" if "the checkpoint before it" in errors else "as before"] += 1
        elif code != 0:
            last = errors.splitlines()[-1]
            assert last.startswith(("error: ", "failed: ")) and len(last) < 1050, shown
            counts["one line"] += 1
    assert counts["fell back"] > 9 and counts["one line"] > 2, counts


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", None]
)
def test_a_file_that_is_no_json_object_is_a_checkpoint_error(content: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir() if content is None else (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.json is"):
        read_object(tmp_path / "state.json")
