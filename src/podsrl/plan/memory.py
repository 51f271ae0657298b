"""How much memory there is, and how much was in use at most."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def start_peak(device: torch.device) -> None:
    """Forget the peak so far."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _RESET.write_text("5")  # Linux: the resident peak starts again at what is resident now


def peak_bytes(device: torch.device) -> int | None:
    """Most memory in use since `start_peak`: the device's on CUDA, the process's resident one on Linux, else None."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)


def total_bytes(device: torch.device) -> int:
    """Memory of the device; on a CPU the machine's, or what the container or job may use where that is less."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *cgroup_limits(Path("/"))])


def cgroup_limits(root: Path) -> list[int]:
    """The memory limits of this process's Linux control groups (version 1 or 2), from the innermost outwards, in bytes.

    Args:
        root: of the file system.
    """
    texts = [_text(file / name) for file, name in _cgroups(root)]
    return [int(text) for text in texts if text.isdigit()]  # "max" where there is none


def _cgroups(root: Path) -> Iterator[tuple[Path, str]]:
    """Folders of the groups that this process is in, up to the mount's own, and the file that holds a limit.

    A container may see its own group as the mount's root while the path names it from outside.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            yield root / "sys/fs/cgroup" / mount / group, name


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
