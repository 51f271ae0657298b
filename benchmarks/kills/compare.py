"""Whether two runs ended in the same bits, and what a killed one left in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podsrl.lib.logs import read_log

OF_THE_CLOCK = {"train_seconds", "log_bytes", "files"}
"""Entries of a checkpoint's state that hold seconds, or the length of a log that holds some."""


def ends(folder: Path) -> dict[str, Any]:
    """All that two runs must share: metrics without seconds and memory, groups, the last checkpoint, and the files."""
    lines, num_torn = read_log(folder / "metrics.jsonl")
    last = max((folder / "checkpoints").glob("step-" + "[0-9]" * 8))
    state = json.loads((last / "state.json").read_text())
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {
        "metrics.jsonl": [_timeless(line) for line in lines],
        "torn lines": num_torn,
        "groups.jsonl": _digest(folder / "groups.jsonl"),
        **{str(file.relative_to(last)): _digest(file) for file in sorted(last.rglob("*.safetensors"))},
        "state.json": {name: value for name, value in state.items() if name not in OF_THE_CLOCK},
        "finished.json": json.loads((folder / "finished.json").read_text())["step"],
        "files": names,
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names of what differs."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def unfinished(folder: Path) -> list[str]:
    """What a kill left half done, by kind."""
    found = []
    if any(folder.glob("checkpoints/.step-*.tmp")):
        found.append("a checkpoint")
    if any(folder.glob(".*.tmp")):
        found.append("a file that is written atomically")
    for log in folder.glob("*.jsonl"):
        if (text := log.read_bytes()) and not text.endswith(b"\n"):
            found.append("a line")
    return found


def _timeless(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith(("seconds/", "memory/"))}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
