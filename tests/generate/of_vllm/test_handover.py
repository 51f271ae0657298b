"""The folder of weights and the lock of a server: who may read them, and that nothing stays."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

import children
from podsrl.errors import PodsError, UsageError
from podsrl.generate.vllm.handover import ServerLock, WeightFolder, name_of

URL = "http://127.0.0.1:8000"
HOLD = """
import sys, time, torch
from podsrl.generate.vllm.handover import ServerLock, WeightFolder
lock, weights = ServerLock(sys.argv[1], sys.argv[2]), WeightFolder(sys.argv[1])
weights.write([("a", torch.ones(3))])
print("ready", flush=True)
sys.stdin.read()
"""


def test_weights_are_files_of_their_owner_that_replace_each_other(tmp_path: Path) -> None:
    def temporary() -> Iterator[tuple[str, torch.Tensor]]:
        buffer = torch.zeros(2)
        for name in ("a", "b"):
            buffer.add_(1.0)
            yield name, buffer

    weights = WeightFolder(str(tmp_path))
    first = Path(weights.write(temporary()))
    assert first.name.startswith("podsrl-") and stat.S_IMODE(first.stat().st_mode) == 0o700
    [file] = first.iterdir()
    assert {name: tensor.tolist() for name, tensor in load_file(file).items()} == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    second = Path(weights.write([("a", torch.ones(3))]))
    assert sorted(tmp_path.iterdir()) == [second, second.with_suffix(".lock")]
    weights.close()
    weights.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_of_a_write_that_fails(tmp_path: Path) -> None:
    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.ones(3)
        raise KeyboardInterrupt

    weights = WeightFolder(str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        weights.write(tensors())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match=r"options\.vllm\.folder"):
        WeightFolder(str(tmp_path / "nothing")).write([("a", torch.ones(3))])


def test_weights_that_find_no_room_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(PodsError, match=r"options\.vllm\.folder.*No space left"):
        WeightFolder(str(tmp_path)).write([("a", torch.ones(3))])
    assert list(tmp_path.iterdir()) == []


def test_weights_go_with_the_object_that_wrote_them(tmp_path: Path) -> None:
    weights, lock = WeightFolder(str(tmp_path)), ServerLock(str(tmp_path), URL)
    weights.write([("a", torch.ones(3))])
    del weights, lock
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    (tmp_path / f"{name_of(URL)}.lock").symlink_to(aim)
    with pytest.raises(UsageError, match="cannot be opened"):
        ServerLock(str(tmp_path), URL)
    assert not aim.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, None])
def test_what_another_process_leaves_is_removed_by_the_next_and_never_while_it_lives(
    tmp_path: Path, how: signal.Signals | None
) -> None:
    other = children.Popen([sys.executable, "-c", HOLD, str(tmp_path), URL], stdin=children.PIPE, stdout=children.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        with pytest.raises(UsageError, match=f"process {other.pid}"):
            ServerLock(str(tmp_path), URL)
        ServerLock(str(tmp_path), URL + "0").close()
        WeightFolder(str(tmp_path)).write(())
        assert len(list(tmp_path.iterdir())) == 3  # the server's lock, the weights and their lock
        if how is not None:
            os.kill(other.pid, how)
        other.communicate(timeout=300)
    finally:
        other.kill()
        other.wait()
    assert bool(list(tmp_path.iterdir())) == (how == signal.SIGKILL)
    lock, weights = ServerLock(str(tmp_path), URL), WeightFolder(str(tmp_path))
    weights.write(())
    assert len(list(tmp_path.iterdir())) == 3
    weights.close()
    lock.close()
    assert list(tmp_path.iterdir()) == []
