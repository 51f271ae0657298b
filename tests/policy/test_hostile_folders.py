"""Whatever is in a downloaded folder, a command ends soon, with one line that names the file, and writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.policy import load_model, load_tokenizer

Harm = Callable[[Path], object]


def edit(name: str, **changes: Any) -> Harm:
    """Values in a JSON file; None for what the file shall not have."""

    def harm(folder: Path) -> None:
        file = folder / name
        content = json.loads(file.read_text()) if file.exists() else {}
        content.update(changes)
        file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return harm


def config(**changes: Any) -> Harm:
    return edit("config.json", **changes)


def write(name: str, content: str | bytes) -> Harm:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def link(name: str, to: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(to)

    return harm


def link_to_copy_outside(name: str) -> Harm:
    def harm(folder: Path) -> None:
        shutil.move(folder / name, folder.parent / name)
        (folder / name).symlink_to(Path("..") / name)

    return harm


def index(**places: str) -> Harm:
    def harm(folder: Path) -> None:
        shutil.move(folder / "model.safetensors", folder / "part.safetensors")
        names = dict.fromkeys(load_file(folder / "part.safetensors"), "part.safetensors")
        content = {"metadata": {}, "weight_map": {**names, **places}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))

    return harm


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Harm:
    def harm(folder: Path) -> None:
        found = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
        change(found)
        save_file(found, folder / "model.safetensors", {"format": "pt"})

    return harm


def tokenizer_json(change: Callable[[dict[str, Any]], object]) -> Harm:
    def harm(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return harm


def without(name: str) -> Harm:
    return lambda folder: (folder / name).unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def header(length: int, text: bytes = b"{}") -> Harm:
    return write("model.safetensors", struct.pack("<Q", length) + text)


NORM = "model.norm.weight"
DESCRIPTIONS: dict[str, tuple[Harm, str]] = {
    "no config": (without("config.json"), "config.json"),
    "no JSON": (write("config.json", "{'a': 1}"), "config.json"),
    "bytes": (write("config.json", b"\xff\xfe\x00"), "config.json"),
    "a list": (write("config.json", "[1, 2]"), "model.path"),
    "3,000 brackets": (write("config.json", "[" * 3000), "model.path"),
    "negative width": (config(hidden_size=-32), "model.path"),
    "no width": (config(hidden_size=0), "model.path"),
    "NaN": (config(hidden_size=float("nan")), "model.path"),
    "a text": (config(num_attention_heads="4"), "model.path"),
    "layers that do not fit": (config(num_hidden_layers=7, layer_types=["full_attention"]), "7"),
    "unknown family": (config(model_type="no_such_family"), "no_such_family"),
    "no family": (config(model_type=None, architectures=None), "model_type"),
    "an encoder": (config(model_type="vit"), "model.path"),
    "an index that points nowhere": (index(more="nowhere.safetensors"), "nowhere.safetensors"),
    "a link to weights outside": (link_to_copy_outside("model.safetensors"), "model.safetensors is a link"),
    "a link to a config outside": (link_to_copy_outside("config.json"), "config.json is a link"),
    "a link to a system's file": (link("chat_template.jinja", "/etc/passwd"), "chat_template.jinja is a link"),
    "a link to itself": (link("config.json", "config.json"), "config.json"),
    "a folder as config": (lambda f: (without("config.json")(f), (f / "config.json").mkdir()), "config.json"),
    "a broken generation config": (write("generation_config.json", "{"), "generation_config.json"),
    "a broken tokenizer config": (write("tokenizer_config.json", "{"), "tokenizer_config.json"),
}
"""What the description says already."""

PARTS: dict[str, tuple[Harm, str]] = {
    "own code": (config(model_type="own", auto_map={"AutoConfig": "own.Config"}), "model.trust_remote_code"),
    "an unknown number format": (config(dtype="float99"), "float99"),
    "missing package": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "model.path"),
    "no tokenizer": (without("tokenizer.json"), "tokenizer"),
    "no JSON as tokenizer": (write("tokenizer.json", "{"), "cannot be read"),
    "a tokenizer that is a list": (write("tokenizer.json", "[]"), "cannot be read"),
    "a tokenizer without a model": (tokenizer_json(lambda c: c.update(model={"type": "no"})), "cannot be read"),
    "a vocabulary of texts": (tokenizer_json(lambda c: c["model"].update(vocab={"a": "b"})), "cannot be read"),
    "tokens beyond the model": (tokenizer_json(lambda c: c["model"]["vocab"].update(x=4000)), "does not match"),
    "no end": (edit("tokenizer_config.json", eos_token=None), "does not match"),
    "an end that is a number": (edit("tokenizer_config.json", eos_token=7), "model.path"),
    "a pickle": (pickled, "pytorch_model.bin is pickled"),
    "no weights": (without("model.safetensors"), "*.safetensors"),
    "empty weights": (write("model.safetensors", b""), "weights cannot be read"),
    "half the weights": (
        lambda f: write("model.safetensors", (f / "model.safetensors").read_bytes()[:9000])(f),
        "weights",
    ),
    "a header of 10^18 bytes": (header(10**18), "weights cannot be read"),
    "a header beyond the file": (header(90_000_000), "weights cannot be read"),
    "a header that is no JSON": (header(2, b"[["), "weights cannot be read"),
    "a weight beyond the file": (
        header(73, b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,399999999996]}}'),
        "weights cannot be read",
    ),
    "a weight of another shape": (weights(lambda w: w.update({NORM: torch.zeros(7)})), NORM),
    "a weight that is missing": (weights(lambda w: w.pop(NORM)), NORM),
    "an end that is a text": (edit("generation_config.json", eos_token_id="end"), "generation_config.json"),
    "an end that is negative": (edit("generation_config.json", eos_token_id=[1, -5]), "generation_config.json"),
    "ends in lists": (edit("generation_config.json", eos_token_id=[[1]]), "generation_config.json"),
}
"""What only the tokenizer or the weights show."""


def said_in_one_line(code: int, out: str, err: str, named: str) -> None:
    lines = [line for line in err.splitlines() if line.strip() and not line.startswith("warning:")]
    assert code == 2 and not out.strip(), (code, out, err)
    assert len(lines) == 1 and lines[0].startswith("error:") and len(lines[0]) < 1500, err
    assert named in lines[0], lines[0]


def everything_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize("name", [*DESCRIPTIONS, *PARTS])
def test_an_evaluation_says_what_is_wrong(folder: Path, pods: Any, name: str) -> None:
    harm, named = (DESCRIPTIONS | PARTS)[name]
    harm(folder)
    before = everything_in(folder.parent)
    said_in_one_line(*pods("eval", str(folder), "--task=arithmetic", "--num-questions=1"), named)
    assert everything_in(folder.parent) == before


@pytest.mark.parametrize("name", ["no JSON", "a list", "unknown family", "a link to a config outside", "own code"])
def test_a_dry_run_says_what_is_wrong(folder: Path, pods: Any, name: str) -> None:
    harm, named = (DESCRIPTIONS | PARTS)[name]
    harm(folder)
    said_in_one_line(*pods("train", "pods", f"--model.path={folder}", "--dry-run"), named)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for the superuser")
@pytest.mark.parametrize("what", [".", "config.json", "tokenizer.json", "model.safetensors"])
def test_what_cannot_be_read_is_said(folder: Path, pods: Any, what: str) -> None:
    (folder / what).chmod(0)
    try:
        said_in_one_line(*pods("eval", str(folder), "--task=arithmetic", "--num-questions=1"), "model.path")
    finally:
        (folder / what).chmod(0o700)


# --- what looks odd and is sound ---


def test_the_hubs_cache_is_links_to_its_blobs(folder: Path, tmp_path: Path, pods: Any) -> None:
    root = tmp_path / "hub" / "models--someone--tiny"
    snapshot = root / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, root / "blobs" / f"{number:040x}")
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", f"{number:040x}"))
    options = ModelConfig(path=str(snapshot), device="cpu")
    assert load_tokenizer(options).eos_token == "<eos>" and load_model(options).num_parameters() > 0
    code, _, err = pods("train", "pods", f"--model.path={snapshot}", "--dry-run", "--rollouts.max_new_tokens=8")
    assert code == 0, err
    (tmp_path / "mine").symlink_to(snapshot)
    assert load_tokenizer(ModelConfig(path=str(tmp_path / "mine"))).eos_token == "<eos>"
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(folder / "config.json")
    with pytest.raises(UsageError, match=r"config\.json is a link to .*, outside of the folder: copy"):
        load_tokenizer(options)


def test_links_within_the_folder_and_weights_in_parts_load(folder: Path) -> None:
    index()(folder)
    shutil.move(folder / "config.json", folder / "own.json")
    (folder / "config.json").symlink_to("own.json")
    options = ModelConfig(path=str(folder), device="cpu")
    assert load_tokenizer(options).eos_token == "<eos>" and load_model(options).num_parameters() > 0


def test_weights_that_are_no_numbers_are_not_taken_for_answers(folder: Path, pods: Any) -> None:
    weights(lambda w: w.update({NORM: torch.full_like(w[NORM], float("nan"))}))(folder)
    code, out, err = pods("eval", str(folder), "--task=arithmetic", "--num-questions=2", "--rollouts.max_new_tokens=4")
    assert "Traceback" not in err and "no valid answer" in out, out + err
    assert code == 0


BASES = {
    "nowhere": ("/nowhere/base", "/nowhere/base"),
    "a name on the hub": ("no-such-org/no-such-base", "no-such-org/no-such-base"),
    "itself": (".", "holds adapters too"),
    "no text": (7, "base_model_name_or_path"),
}


@pytest.mark.parametrize("name", BASES)
def test_adapters_with_an_odd_base_say_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    base, named = BASES[name]
    monkeypatch.chdir(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    for load in (load_tokenizer, load_model):
        with pytest.raises(UsageError) as caught:
            load(ModelConfig(path=str(tmp_path), device="cpu"))
        assert named in str(caught.value) and "adapter_config.json" in str(caught.value)
