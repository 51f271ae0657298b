"""Who started a run: the command, the time, the commit, the version and the machine, once per start and resume."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from podsrl.lib.machine import hardware_line

_GIT_SECONDS = 5


def describe_start(step: int) -> dict[str, Any]:
    """The line of `starts.jsonl` of a process that goes on from `step` now."""
    return {
        "step": step,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "commit": _commit(),
        "version": _version(),
        "hardware": hardware_line(),
    }


def _command() -> str:
    """As it could be typed again, without the program's folder."""
    program, spec = Path(sys.argv[0]), getattr(sys.modules["__main__"], "__spec__", None)
    is_module = program.name == "__main__.py" and spec is not None
    return shlex.join([*(("python", "-m", spec.parent) if is_module else (program.name,)), *sys.argv[1:]])


def _commit() -> str | None:
    """Of the repository that the command ran in, and whether its files differ; None without git, or outside of one."""
    command = ["git", "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty= with changes"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_GIT_SECONDS)
        return done.stdout.strip() or None
    return None


def _version() -> str | None:
    with suppress(PackageNotFoundError):
        return version("podsrl")
    return None
