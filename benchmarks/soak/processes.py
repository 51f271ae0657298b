"""What a command and the processes below it hold, read from /proc; and what their folders hold."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from podsrl.cli.console import new_folder
from podsrl.errors import UsageError
from podsrl.lib.below import below

Json = dict[str, Any]
KINDS = {"scale.generators.child": "generator", "score.workers": "reward workers"}
"""Part of a child's command line -> what the child is."""
SHARED_MEMORY = Path("/dev/shm")
_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def held(pid: int, root: Path = Path("/proc")) -> Json | None:
    """What one process holds; None where it has ended.

    Returns:
        "pss": resident bytes, shared pages divided by the number of processes that share them; "rss": all resident
        bytes; "files": open descriptors; "threads".
    """
    folder = root / str(pid)
    try:
        memory = dict(_FIELD.findall((folder / "smaps_rollup").read_text()))
        return {
            "pss": 1024 * int(memory["Pss"]),
            "rss": 1024 * int(memory["Rss"]),
            "files": len(os.listdir(folder / "fd")),
            "threads": len(os.listdir(folder / "task")),
        }
    except (OSError, KeyError):
        return None


def kind_of(pid: int, root: Path = Path("/proc")) -> str:
    """What a process below a command is."""
    with suppress(OSError):
        line = (root / str(pid) / "cmdline").read_text(errors="replace")
        return next((kind for part, kind in KINDS.items() if part in line), "other")
    return "other"


def held_below(pid: int) -> dict[str, Json]:
    """What a command ("main") and the processes below it hold, added up by kind, with the "count" of each kind."""
    found: dict[str, Counter[str]] = {}
    for each in (pid, *below(pid)):
        if (own := held(each)) is not None:
            found.setdefault("main" if each == pid else kind_of(each), Counter()).update({**own, "count": 1})
    return {kind: dict(total) for kind, total in found.items()}


def shared_memory(pid: int) -> set[str]:
    """Names of the segments of shared memory that a command and the processes below it have mapped or open."""
    found = set()
    for each in (pid, *below(pid)):
        with suppress(OSError):
            lines = Path("/proc", str(each), "maps").read_text().splitlines()
            found |= {line.split(maxsplit=5)[5] for line in lines if f" {SHARED_MEMORY}/" in line}
        found |= {path for path in _open_paths(each) if path.startswith(f"{SHARED_MEMORY}/")}
    return found


def _open_paths(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def folder_bytes(folder: Path) -> dict[str, int]:
    """Bytes of each entry of a folder; those of a folder below it are added up."""
    found = {}
    for entry in sorted(folder.iterdir()) if folder.exists() else []:
        found[entry.name] = sum(map(_size, entry.rglob("*") if entry.is_dir() else [entry]))
    return found


def files(folder: Path) -> list[Path]:
    """Files below a folder; an empty folder, such as torch's torchinductor_USER, is none."""
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _size(path: Path) -> int:
    with suppress(OSError):  # removed meanwhile
        return path.stat().st_size if path.is_file() else 0
    return 0


def looked_at_folder(name: str, out: Path | None) -> Path:
    """A new folder for what a benchmark sees of processes, which Ctrl-C ends also where a shell started it behind.

    UsageError: not Linux, or the folder is there already.
    """
    if sys.platform != "linux":
        raise UsageError(f"benchmarks {name} reads /proc of Linux, and this is {sys.platform}")
    folder = (out or new_folder(name)).absolute()
    if folder.exists():
        raise UsageError(f"--out {folder}: is there already; name a new folder")
    folder.mkdir(parents=True)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return folder


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
