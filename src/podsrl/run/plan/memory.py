"""How much memory there is, and how much was in use at most."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


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


def total_bytes(device: torch.device) -> int | None:
    """Memory of the device; on a CPU the machine's, or what the container may use where that is less."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limits = [*_machine_bytes(), *(limit for path in _CGROUP_LIMITS if (limit := _read_number(path)) is not None)]
    return min(limits, default=None)


def _machine_bytes() -> list[int]:
    try:
        first = Path("/proc/meminfo").read_text().splitlines()[0]
    except OSError:
        return []
    return [1024 * int(first.split()[1])]


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" where there is no limit
