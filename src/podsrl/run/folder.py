"""A run's folder on disk.

    config.toml      the resolved config: what the run read, and what a resume reads
    metrics.jsonl    one object a step, and one an evaluation
    groups.jsonl     whole groups of some steps, for the report
    checkpoints/     step-00000012/ …  (run/checkpoint.py)
    finished.json    how it ended; absent while there is more to do

The two logs are only ever appended to, or cut back to where a checkpoint was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError


class RunFolder:
    """Paths of a run, and its two append-only logs."""

    LOGS = ("metrics.jsonl", "groups.jsonl")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.checkpoints = path / "checkpoints"
        self.finished = path / "finished.json"

    def check_is_free(self) -> None:
        """Raise UsageError where a run is here already, or the path leads to or through a file."""
        if self.config.exists():
            cure = f"go on with --resume {self.path}, or choose another --out"
            raise UsageError(f"{self.path}: holds a run already; {cure}")
        for part in (self.path, *self.path.parents):
            if part.is_file():
                raise UsageError(f"--out {self.path}: {part} is a file, wanted a folder")

    def create(self, config_text: str) -> None:
        """Start a new run here."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config, config_text)

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Add one line, flushed to the operating system so that a killed process loses nothing it wrote."""
        with (self.path / log).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def log_sizes(self) -> dict[str, int]:
        """Bytes of each log, after forcing them to disk: a checkpoint remembers them."""
        sizes = {}
        for log in self.LOGS:
            path = self.path / log
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sizes[log] = path.stat().st_size if path.exists() else 0
        return sizes

    def rewind_logs(self, sizes: Mapping[str, int]) -> None:
        """Cut the logs back to a checkpoint's sizes; the steps after it are made again, with the same numbers."""
        for log in self.LOGS:
            path = self.path / log
            if path.exists() and path.stat().st_size > sizes.get(log, 0):
                os.truncate(path, sizes.get(log, 0))


def write_atomically(path: Path, text: str) -> None:
    """Write beside, force to disk, rename: a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
