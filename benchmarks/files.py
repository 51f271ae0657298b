"""Result files: benchmarks/results/PROCESSOR/NAME.json, one folder per family of processors."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.processor import processor_family
from podsrl.lib.machine import hardware_line, processor_facts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NO_CODE = (":!benchmarks/results", ":!src/podsrl/compare/systems.json")
"""What a measurement writes below the folders of the code."""
COMMIT = "PODS_COMMIT"
"""Environment variable: the commit of a copy without git, as on a machine to which only files were sent."""
Result = dict[str, Any]
"""JSON-able; `stamp` says what stands in each."""
Files = Callable[[str], Mapping[str, Result]]
"""Name of a benchmark -> its results by processor ("AMD Zen 5"), in the order of their names."""


def folder_name(processor: str) -> str:
    """The folder of a family of processors below `RESULTS`.

    Example:
        >>> folder_name("AMD Zen 5")
        'amd-zen-5'
    """
    return re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")


def path_of(name: str, processor: str | None = None) -> Path:
    """The file of a benchmark's result; processor None: this machine's."""
    folder = folder_name(processor or processor_family(processor_facts()))
    return RESULTS / folder / f"{name.replace('-', '_')}.json"


def read_all(name: str) -> dict[str, Result]:
    """A benchmark's results by processor; empty: there is none."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob(f"*/{name.replace('-', '_')}.json")]
    return {result["processor"]: result for result in sorted(found, key=lambda result: str(result["processor"]))}


def write(result: Result) -> Path:
    """Save a result of this machine."""
    path = path_of(result["name"], result["processor"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(result), encoding="utf-8")
    return path


def text_of(result: Result) -> str:
    """As it stands in a file."""
    return json.dumps(result, indent=1, ensure_ascii=False) + "\n"


def stamp(name: str, options: Mapping[str, Any]) -> Result:
    """Where, when and of which code a measurement that starts now is.

    "commit" is that of the checkout (without git what PODS_COMMIT says), "has_changes" whether its code differs from
    it (None: not known), "version" None where podsrl is not installed, "options" has a folder's name without its place,
    "load" is the number of processes that want to run, as a mean over one minute.
    """
    return {
        "name": name,
        "processor": device_name(options.get("device", "cpu")),
        "hardware": hardware_line(),
        "commit": commit(),
        "has_changes": has_changes(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "version": _version(),
        "options": {key: value.name if isinstance(value, Path) else value for key, value in options.items()},
        "load_before": round(os.getloadavg()[0], 2),
    }


def device_name(device: str) -> str:
    """What names a result's folder: the GPU where a benchmark ran on "cuda", else the family of the processor."""
    if device == "cpu":
        return processor_family(processor_facts())
    import torch

    return torch.cuda.get_device_name()


def commit(revision: str = "HEAD") -> str | None:
    """The short hash of a commit; without git that of `COMMIT`; None: there is no such commit."""
    if git("rev-parse") is None:
        return os.environ.get(COMMIT) or None
    return git("rev-parse", "--short=10", "--verify", "--quiet", f"{revision}^{{commit}}")


def has_changes() -> bool | None:
    """Whether the code differs from the commit that is checked out; None: there is no git."""
    found = git("status", "--porcelain", "--", "src", "benchmarks", *NO_CODE)
    return None if found is None else found != ""


def _version() -> str | None:
    with suppress(PackageNotFoundError):
        return version("podsrl")
    return None


def git(*arguments: str) -> str | None:
    """What git answers in this checkout; None where it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
